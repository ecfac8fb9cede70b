"""The client side of a websocket, without a queue: each message is passed to the session in the call that read it.

The library's own interface has a queue and wakes a task for each message, which takes half of the CPU time per message.
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

MAX_UNSENT = 1 << 15  # bytes in the send buffer; more than that for the stall timeout ends the session


class SessionConnection(ClientConnection):
    """A connection that passes each message to `on_message`; `on_lost` is called once. Neither may raise."""

    def __init__(
        self,
        protocol: ClientProtocol,
        *,
        on_message: Callable[[Message], None],
        on_lost: Callable[[], None],
        **options: Any,
    ) -> None:
        super().__init__(protocol, **options)
        self._on_message = on_message
        self._on_lost = on_lost
        self._parts: list[bytes] = []
        self._text = False
        self._parting = False

    @property
    def open(self) -> bool:
        """True while data may be sent."""
        return self.protocol.state is State.OPEN

    @property
    def write_blocked(self) -> bool:
        """True if more than `MAX_UNSENT` bytes wait to be sent."""
        return self.transport.get_write_buffer_size() > MAX_UNSENT

    @property
    def close_error(self) -> ConnectionClosed:
        """Why the connection was lost. Valid only after it was."""
        return self.close_exc

    def put(self, frames: bytes) -> None:
        """Write framed messages to the socket. Does nothing once it closes."""
        if self.open:
            self.transport.write(frames)

    def data_received(self, data: bytes) -> None:
        """Limit how long the library waits for the server to close a failed connection."""
        super().data_received(data)
        if self.protocol.state is State.CLOSING and not self._parting:
            self._parting = True
            self.loop.call_later(self.close_timeout or 0.0, self.transport.abort)

    def process_event(self, event: Event) -> None:
        """Pass messages to the session, and all other events to the library."""
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
        self._on_message(data.decode("utf-8", "replace") if self._text else data)

    def connection_lost(self, exc: Exception | None) -> None:
        """Call `on_lost` after the library has cleaned up."""
        super().connection_lost(exc)
        self._on_lost()


def frame_messages(messages: Sequence[Message]) -> bytes:
    """Return messages as masked websocket frames, one per message."""
    return b"".join(
        Frame(Opcode.TEXT, message.encode()).serialize(mask=True)
        if isinstance(message, str)
        else Frame(Opcode.BINARY, message).serialize(mask=True)
        for message in messages
    )


async def close_within_1s(line: ClientConnection) -> None:
    """Close the connection normally within 1 s, else abort it, so that all waiting tasks return."""
    closing = asyncio.ensure_future(line.close())
    try:
        await asyncio.wait([closing], timeout=1.0)
    finally:
        line.transport.abort()
        closing.cancel()
        await asyncio.gather(closing, return_exceptions=True)


def reset(line: ClientConnection) -> None:
    """Abort the connection with a TCP reset, without a websocket close frame."""
    own = line.transport.get_extra_info("socket")
    if own is not None:
        own.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    line.transport.abort()
