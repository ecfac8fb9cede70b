"""Audio messages, encoded once for all sessions that play the same recording.

A message is cached if it depends only on the samples of its piece (`ClientCodec.encode`) and the stream knows the
position of the frame in the recording. Each session that reaches this position sends the cached message. A recording
in Opus is encoded as a loop (`EncodedLoop`). Otherwise each session encodes its own audio.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from metronome_cli.backends.websocket.connection import frame_messages
from metronome_cli.core.session import AudioStream
from metronome_cli.core.types import Audio
from metronome_cli.load.trace import LoopedAudio
from metronome_cli.protocols.interface import ClientCodec
from metronome_cli.protocols.ogg import OggReader
from metronome_cli.protocols.opus import FRAME_S, OpusEncoder

MOST_BYTES = 256 << 20
LONGEST_S = 1200.0  # longest loop that is encoded once; a longer one would take minutes
LEAD_S = (
    1.0  # s, end of the loop, encoded first so that the encoder starts in its state at the end of the loop
)


@runtime_checkable
class AlignedStream(Protocol):
    """A stream that repeats a recording aligned to frames."""

    def place(self, k: int) -> int:
        """Return the index of frame k in the loop. Equal indices mean equal audio, for all streams of the source."""

    @property
    def places(self) -> int:
        """Number of frames in the loop."""

    def frame(self, k: int) -> Audio:
        """See `AudioStream.frame`."""


@dataclass(frozen=True, slots=True)
class EncodedLoop:
    """A recording as Opus. `frames`: packets of each frame of the loop; `headers` introduce a stream."""

    headers: tuple[bytes, ...]
    frames: tuple[tuple[bytes, ...], ...]


class MessageCache:
    """Messages shared by the sessions of one process."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._ready: dict[tuple[int, int], bytes] = {}
        self._room = most_bytes

    def get(self, key: tuple[int, int], make: Callable[[], bytes]) -> bytes:
        """Return the message of a key. It is made on the first call, and on each call once the cache is full."""
        ready = self._ready.get(key)
        if ready is None:
            ready = make()
            if self._room >= len(ready):
                self._room -= len(ready)
                self._ready[key] = ready
        return ready


class MessageSource:
    """Audio of one session as bytes to send: `pieces` messages per frame. `loop`: the recording in Opus."""

    def __init__(
        self,
        stream: AudioStream,
        codec: ClientCodec,
        pieces: int,
        cache: MessageCache,
        loop: EncodedLoop | None = None,
    ) -> None:
        self._stream = stream
        self._codec = codec
        self._pieces = pieces
        self._cache = cache
        self._wrap = None
        if loop is not None and codec.wrap is not None and isinstance(stream, AlignedStream):
            self._wrap = codec.wrap(loop.headers)
            self._loop, self._loop_place = loop, stream.place
        self._place = stream.place if isinstance(stream, AlignedStream) and codec.encode is not None else None

    def piece(self, frame: int, piece: int) -> bytes:
        """Return piece 0..pieces-1 of a frame, once each and in order. Empty while an encoder buffers."""
        if self._wrap is not None:
            packets = self._loop.frames[self._loop_place(frame)]
            each = len(packets) // self._pieces
            return frame_messages(self._wrap(packets[each * piece : each * (piece + 1)]))
        if self._place is None:
            return frame_messages(self._codec.audio(self._samples(frame, piece)))
        ready = self._cache.get((self._place(frame), piece), lambda: self._encoded(frame, piece))
        more = self._codec.after()
        return ready + frame_messages(more) if more else ready

    def _encoded(self, frame: int, piece: int) -> bytes:
        encode = self._codec.encode
        assert encode is not None
        return frame_messages([encode(self._samples(frame, piece))])

    def _samples(self, frame: int, piece: int) -> Audio:
        audio = self._stream.frame(frame)
        return audio[len(audio) * piece // self._pieces : len(audio) * (piece + 1) // self._pieces]


def encode_loop(streams: LoopedAudio, sample_rate: int, period_s: float, pieces: int) -> EncodedLoop | None:
    """Encode the loop of these streams once, with its last second before it.

    A session that starts elsewhere gets the packets from there on; a decoder recovers within about 80 ms. Returns
    None if the streams share no loop, or if a piece is not a whole number of packets.
    """
    stream, each = streams.stream(0), round(period_s / FRAME_S)
    if not isinstance(stream, AlignedStream) or abs(each * FRAME_S - period_s) > 1e-9 or each % pieces:
        return None
    count = stream.places
    if count * period_s > LONGEST_S:
        return None
    encoder, reader = OpusEncoder(sample_rate), OggReader()
    lead = min(count, round(LEAD_S / period_s))
    packets: list[bytes] = []
    first = -stream.place(0) % count  # the frame at position 0
    for k in range(first + count - lead, first + 2 * count):
        packets.extend(reader.packets(encoder.encode(stream.frame(k))) or ())
    headers, sound = packets[:2], packets[2 + lead * each :]
    if len(sound) != count * each:
        return None
    frames = tuple(tuple(sound[at : at + each]) for at in range(0, len(sound), each))
    return EncodedLoop(tuple(headers), frames)
