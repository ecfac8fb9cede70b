"""Ogg pages with Opus packets: writes encoded packets into pages, and reads the duration of received ones.

No audio is encoded or decoded.

Source: RFC 3533 (pages), RFC 7845 (Opus in Ogg), RFC 6716 section 3.1 (the first byte of a packet).
"""

from __future__ import annotations

import secrets
import struct
import zlib
from collections.abc import Iterator, Sequence

_HEADER = struct.Struct("<4sBBqIIIB")  # magic, version, kind, granule, serial, sequence, checksum, segments
_MAGIC = b"OggS"
_TICKS_PER_S = 48_000  # of a granule, whatever the sample rate
_MIRRORED = bytes(int(f"{byte:08b}"[::-1], 2) for byte in range(256))
# Milliseconds of a frame by configuration 0..31: SILK, hybrid, CELT.
_FRAME_MS = (10, 20, 40, 60) * 3 + (10, 20) * 2 + (2.5, 5, 10, 20) * 4


def checksum(page: bytes) -> int:
    """Ogg's CRC: zlib's polynomial, bits the other way round, from 0."""
    mirrored = zlib.crc32(page.translate(_MIRRORED), 0xFFFFFFFF) ^ 0xFFFFFFFF
    return int.from_bytes(mirrored.to_bytes(4, "little").translate(_MIRRORED), "big")


def packet_s(packet: bytes) -> float:
    """Return the duration of an Opus packet in seconds; 0 for a header and for an empty packet."""
    if not packet or packet.startswith((b"OpusHead", b"OpusTags")):
        return 0.0
    code = packet[0] & 3
    frames = (1, 2, 2)[code] if code < 3 else (packet[1] & 0x3F if len(packet) > 1 else 0)
    return frames * _FRAME_MS[packet[0] >> 3] / 1e3


class OggWriter:
    """One stream. `headers`: the packets that introduce it."""

    def __init__(self, headers: Sequence[bytes]) -> None:
        self._headers = headers
        self._serial = secrets.randbits(32)
        self._sequence = 0
        self._granule = 0

    def pages(self, packets: Sequence[bytes]) -> bytes:
        """One page of these packets (at most 255 segments of 255 bytes); the headers' pages before the first."""
        head = b""
        if not self._sequence:
            head = b"".join(
                self._page([packet], 0x02 if not n else 0) for n, packet in enumerate(self._headers)
            )
        self._granule += round(sum(map(packet_s, packets)) * _TICKS_PER_S)
        return head + self._page(packets)

    def _page(self, packets: Sequence[bytes], kind: int = 0) -> bytes:
        lacing = b"".join(b"\xff" * (len(packet) // 255) + bytes([len(packet) % 255]) for packet in packets)
        fields = (_MAGIC, 0, kind, self._granule, self._serial, self._sequence)
        body = lacing + b"".join(packets)
        self._sequence += 1
        blank = _HEADER.pack(*fields, 0, len(lacing)) + body
        return _HEADER.pack(*fields, checksum(blank), len(lacing)) + body


class OggReader:
    """Pages in, packets out. Pages may come in pieces."""

    def __init__(self) -> None:
        self._buffer = b""
        self._begun = b""  # a packet that continues in the next page

    def packets(self, data: bytes) -> list[bytes] | None:
        """Return the packets that are complete now; None if the data is not Ogg, and ever after."""
        self._buffer += data
        found: list[bytes] = []
        while (page := self._page()) is not None:
            found.extend(self._cut(*page))
        broken = not _MAGIC.startswith(self._buffer[:4]) and not self._buffer.startswith(_MAGIC)
        return None if broken else found

    def _page(self) -> tuple[bytes, bytes] | None:
        """Lacing and body of the next page, taken off the buffer."""
        buffer = self._buffer
        if len(buffer) < _HEADER.size or not buffer.startswith(_MAGIC):
            return None
        begin = _HEADER.size + buffer[_HEADER.size - 1]
        lacing = buffer[_HEADER.size : begin]
        end = begin + sum(lacing)
        if len(buffer) < end or len(lacing) < begin - _HEADER.size:
            return None
        self._buffer = buffer[end:]
        return lacing, buffer[begin:end]

    def _cut(self, lacing: bytes, body: bytes) -> Iterator[bytes]:
        at = 0
        for length in lacing:
            self._begun += body[at : at + length]
            at += length
            if length < 255:
                packet, self._begun = self._begun, b""
                yield packet


class OpusMeter:
    """Duration of received audio, without decoding it."""

    def __init__(self) -> None:
        self._reader = OggReader()
        self.silent = (
            False  # the packets that came last are all the same, as only those of digital silence are
        )
        self._last = b""

    def seconds(self, pages: bytes) -> float | None:
        """Return the duration of the packets that are complete now; None if the data is not Ogg."""
        packets = self._reader.packets(pages)
        if packets:
            self.silent = all(packet == self._last for packet in packets)
            self._last = packets[-1]
        return None if packets is None else sum(map(packet_s, packets))
