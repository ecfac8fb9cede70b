"""Audio ready for the wire, encoded once for all sessions that play the same recording.

Where a piece's message depends on nothing but its samples (`ClientCodec.encode`), and the stream says at which place
of the recording a frame lies, the framed message is kept and sent again by everybody who gets there. Otherwise each
session encodes for itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from metronome_cli.backends.websocket.connection import frame_messages
from metronome_cli.core.session import AudioStream
from metronome_cli.core.types import Audio
from metronome_cli.protocols.interface import ClientCodec

if TYPE_CHECKING:
    from metronome_cli.backends.websocket.encoded_loop import EncodedLoop

MOST_BYTES = 256 << 20


@runtime_checkable
class AlignedStream(Protocol):
    """A stream that repeats a recording frame by frame."""

    def place(self, k: int) -> int:
        """Where frame k lies: frames at the same place are the same audio, for all streams of the source."""

    @property
    def places(self) -> int:
        """How many there are; after the last one comes the first."""

    def frame(self, k: int) -> Audio:
        """As any stream's."""


class MessageCache:
    """What all sessions of one process share."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._ready: dict[tuple[int, int], bytes] = {}
        self._room = most_bytes

    def get(self, key: tuple[int, int], make: Callable[[], bytes]) -> bytes:
        """What lies there; made on the first call, and again on each when there is no more room."""
        ready = self._ready.get(key)
        if ready is None:
            ready = make()
            if self._room >= len(ready):
                self._room -= len(ready)
                self._ready[key] = ready
        return ready


class MessageSource:
    """One session's audio as bytes for the wire: `pieces` messages a frame. `loop`: the recording in Opus, ready."""

    def __init__(
        self,
        stream: AudioStream,
        codec: ClientCodec,
        pieces: int,
        shelf: MessageCache,
        loop: EncodedLoop | None = None,
    ) -> None:
        self._stream = stream
        self._codec = codec
        self._pieces = pieces
        self._shelf = shelf
        self._wrap = None
        if loop is not None and codec.wrap is not None and isinstance(stream, AlignedStream):
            self._wrap = codec.wrap(loop.headers)
            self._loop, self._loop_place = loop, stream.place
        self._place = stream.place if isinstance(stream, AlignedStream) and codec.encode is not None else None

    def piece(self, frame: int, piece: int) -> bytes:
        """Piece 0..pieces-1 of a frame; each is asked for once, in order. Empty where an encoder waits for more."""
        if self._wrap is not None:
            packets = self._loop.frames[self._loop_place(frame)]
            each = len(packets) // self._pieces
            return frame_messages(self._wrap(packets[each * piece : each * (piece + 1)]))
        if self._place is None:
            return frame_messages(self._codec.audio(self._samples(frame, piece)))
        ready = self._shelf.get((self._place(frame), piece), lambda: self._encoded(frame, piece))
        more = self._codec.after()
        return ready + frame_messages(more) if more else ready

    def _encoded(self, frame: int, piece: int) -> bytes:
        encode = self._codec.encode
        assert encode is not None
        return frame_messages([encode(self._samples(frame, piece))])

    def _samples(self, frame: int, piece: int) -> Audio:
        audio = self._stream.frame(frame)
        return audio[len(audio) * piece // self._pieces : len(audio) * (piece + 1) // self._pieces]
