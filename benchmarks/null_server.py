"""A websocket server that costs next to nothing: it knows where messages begin, and answers each with the same bytes.

It unmasks nothing, reads no audio and speaks no protocol beyond the first words, so that a generator can be measured
apart from any server. Only for clients that send whole messages and no compression.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
from typing import Any

import numpy as np
from websockets.frames import Frame, Opcode

from metronome_cli.protocols.messages import Answered, Message
from metronome_cli.protocols.registry import host_codec

_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


def plain(message: Message) -> bytes:
    """A message as a server frames it."""
    text = isinstance(message, str)
    data = message.encode() if isinstance(message, str) else message
    return Frame(Opcode.TEXT if text else Opcode.BINARY, data).serialize(mask=False)


class Null(asyncio.Protocol):
    """One connection. The first message that is no audio (`preface` of them) is not answered."""

    def __init__(self, protocol: str, preface: int) -> None:
        codec = host_codec(protocol, answer_s=1e9)()
        silence = np.zeros(round(0.08 * codec.traits.sample_rate), dtype=np.float32)
        self._hello = b"".join(map(plain, codec.greeting()))
        opened = codec.read(json.dumps({"type": "response.create"})) if protocol == "realtime" else ()
        begun = [message for event in opened if isinstance(event, Answered) for message in event.messages]
        self._first = b"".join(map(plain, [*begun, *codec.answer(silence, "", 0)]))
        self._answer = b"".join(map(plain, codec.answer(silence, "", 0)))
        self._preface = preface
        self._buffer = bytearray()
        self._open = False

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if not self._open and not self._upgrade():
            return
        while (size := self._message()) is not None:
            control = self._buffer[0] & 0x08
            del self._buffer[:size]
            if control:
                continue
            if self._preface:
                self._preface -= 1
                continue
            self._transport.write(self._first)
            self._first = self._answer

    def _upgrade(self) -> bool:
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            return False
        lines = bytes(self._buffer[:end]).split(b"\r\n")
        key = next(
            line.split(b":", 1)[1].strip() for line in lines if line.lower().startswith(b"sec-websocket-key")
        )
        asked = [
            line.split(b":", 1)[1].strip()
            for line in lines
            if line.lower().startswith(b"sec-websocket-protocol")
        ]
        sub = b"Sec-WebSocket-Protocol: " + asked[0].split(b",")[0] + b"\r\n" if asked else b""
        accept = base64.b64encode(hashlib.sha1(key + _GUID).digest())
        self._transport.write(
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n" + sub
            + b"Sec-WebSocket-Accept: " + accept + b"\r\n\r\n" + self._hello
        )  # fmt: skip
        del self._buffer[: end + 4]
        self._open = True
        return True

    def _message(self) -> int | None:
        """Bytes of the first message, when all of it is here."""
        buffer = self._buffer
        if len(buffer) < 2:
            return None
        short = buffer[1] & 0x7F
        size = {126: 4, 127: 10}.get(short, 2)
        if len(buffer) < size:
            return None
        length = short if size == 2 else int.from_bytes(buffer[2:size], "big")
        whole = size + 4 + length  # 4: the mask
        return whole if len(buffer) >= whole else None


async def serve_null(protocol: str, port: Any, preface: int) -> None:
    """Serve until cancelled; `port` is a queue that gets the port."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Null(protocol, preface), "127.0.0.1", 0, backlog=4096)
    port.put(server.sockets[0].getsockname()[1])
    async with server:
        await asyncio.sleep(600)
