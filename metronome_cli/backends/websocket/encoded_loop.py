"""A recording as Opus packets, encoded once for all sessions that play it.

The loop is encoded from beginning to end after its last second, so that the encoder comes round as it began. A session
that starts elsewhere gets the packets from there on, in pages of its own; a decoder finds into them within some 80 ms.
"""

from __future__ import annotations

from dataclasses import dataclass

from metronome_cli.backends.websocket.message_cache import AlignedStream
from metronome_cli.load.trace import LoopedAudio
from metronome_cli.protocols.ogg import OggReader
from metronome_cli.protocols.opus import FRAME_S, OpusEncoder

LONGEST_S = 1200.0  # of a loop: a longer one would take minutes and is encoded by each session
LEAD_S = 1.0


@dataclass(frozen=True, slots=True)
class EncodedLoop:
    """`frames`: by place, its packets; `headers` introduce a stream."""

    headers: tuple[bytes, ...]
    frames: tuple[tuple[bytes, ...], ...]


def encode_loop(streams: LoopedAudio, sample_rate: int, period_s: float, pieces: int) -> EncodedLoop | None:
    """The loop of these streams; None where they share none, or where a piece is no whole number of packets."""
    stream, each = streams.stream(0), round(period_s / FRAME_S)
    if not isinstance(stream, AlignedStream) or abs(each * FRAME_S - period_s) > 1e-9 or each % pieces:
        return None
    count = stream.places
    if count * period_s > LONGEST_S:
        return None
    encoder, reader = OpusEncoder(sample_rate), OggReader()
    lead = min(count, round(LEAD_S / period_s))
    packets: list[bytes] = []
    first = -stream.place(0) % count  # the frame that lies at place 0
    for k in range(first + count - lead, first + 2 * count):
        packets.extend(reader.packets(encoder.encode(stream.frame(k))) or ())
    headers, sound = packets[:2], packets[2 + lead * each :]
    if len(sound) != count * each:
        return None
    frames = tuple(tuple(sound[at : at + each]) for at in range(0, len(sound), each))
    return EncodedLoop(tuple(headers), frames)
