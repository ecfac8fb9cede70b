"""A caller's end of a websocket, without a queue: a message goes to the session in the call that read it.

The library's own way is a queue and the wake-up of a task for each message, which is half of what a message costs.
Handshake, control frames, limits and closing stay the library's.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable, Sequence
from typing import Any

from websockets.asyncio.client import ClientConnection
from websockets.client import ClientProtocol
from websockets.exceptions import ConnectionClosed
from websockets.frames import DATA_OPCODES, Frame, Opcode
from websockets.protocol import Event, State

from metronome_cli.protocols.messages import Message

UNTAKEN = 1 << 15  # bytes that the server has not taken: more, for long, is a stall


class SessionConnection(ClientConnection):
    """`hear` gets each message, `gone` is called once when the socket is lost. Neither may raise."""

    def __init__(
        self,
        protocol: ClientProtocol,
        *,
        hear: Callable[[Message], None],
        gone: Callable[[], None],
        **options: Any,
    ) -> None:
        super().__init__(protocol, **options)
        self._hear = hear
        self._gone = gone
        self._parts: list[bytes] = []
        self._text = False
        self._parting = False

    @property
    def open(self) -> bool:
        """Whether anything may still be sent."""
        return self.protocol.state is State.OPEN

    @property
    def stuck(self) -> bool:
        """More waits here than the server should leave."""
        return self.transport.get_write_buffer_size() > UNTAKEN

    @property
    def why(self) -> ConnectionClosed:
        """Why it was lost; only then."""
        return self.close_exc

    def put(self, frames: bytes) -> None:
        """Hand framed messages to the kernel, as far as it takes them now; nothing once the socket closes."""
        if self.open:
            self.transport.write(frames)

    def data_received(self, data: bytes) -> None:
        """The library waits for the other side to hang up where the connection failed; here not for long."""
        super().data_received(data)
        if self.protocol.state is State.CLOSING and not self._parting:
            self._parting = True
            self.loop.call_later(self.close_timeout or 0.0, self.transport.abort)

    def process_event(self, event: Event) -> None:
        """Messages to the session, everything else to the library."""
        if not isinstance(event, Frame) or event.opcode not in DATA_OPCODES:
            super().process_event(event)
            return
        if event.opcode is not Opcode.CONT:
            self._text = event.opcode is Opcode.TEXT
        if event.fin and not self._parts:
            data = bytes(event.data)
        else:
            self._parts.append(bytes(event.data))
            if not event.fin:
                return
            data = b"".join(self._parts)
            self._parts.clear()
        self._hear(data.decode("utf-8", "replace") if self._text else data)

    def connection_lost(self, exc: Exception | None) -> None:
        """The library tidies up first."""
        super().connection_lost(exc)
        self._gone()


def frame_messages(messages: Sequence[Message]) -> bytes:
    """Messages as a client puts them on the wire, one frame each, masked."""
    return b"".join(
        Frame(Opcode.TEXT, message.encode()).serialize(mask=True)
        if isinstance(message, str)
        else Frame(Opcode.BINARY, message).serialize(mask=True)
        for message in messages
    )


async def close_within_1s(line: ClientConnection) -> None:
    """Close in good order, within a second; then by force, so that whatever waits on the socket comes back."""
    closing = asyncio.ensure_future(line.close())
    try:
        await asyncio.wait([closing], timeout=1.0)
    finally:
        line.transport.abort()
        closing.cancel()
        await asyncio.gather(closing, return_exceptions=True)


def reset(line: ClientConnection) -> None:
    """Break the connection off with a TCP reset, without a word of websocket."""
    own = line.transport.get_extra_info("socket")
    if own is not None:
        own.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    line.transport.abort()
