"""A stream of speech for each session, no two alike.

All clips, in an order drawn from the seed, are joined end to start into one loop, each seam crossfaded over
20 ms. A session listens to that loop from a place of its own: session i starts at frac(u + i sqrt 2) of the
way round, and its frames fall at frac(i phi) of the period. Multiples of these two numbers keep apart
better than draws would (discrepancy O(log n / n)), so any number of sessions is spread evenly, and one more
moves none of the others.
"""

from __future__ import annotations

import math

import numpy as np

from metronome_cli.audio.library import AudioLibrary
from metronome_cli.core.types import Audio

SEAM_S = 0.020
FEWEST_FRAMES = 256  # of a loop that is shared
_GOLDEN = (math.sqrt(5) - 1) / 2
_SILVER = math.sqrt(2) - 1


class LoopStream:
    """One session's endless audio."""

    def __init__(self, loop: Audio, start: int, frame_samples: int) -> None:
        self._loop = loop  # [samples], joined at its ends
        self._start = start
        self._samples = frame_samples

    def frame(self, k: int) -> Audio:
        """Frame k, counted from 0: [samples] float32, the array being the caller's own. Cost: one frame,
        for any k."""
        length = len(self._loop)
        begin = (self._start + k * self._samples) % length
        end = begin + self._samples
        if end <= length:
            return self._loop[begin:end].copy()
        return self._loop.take(np.arange(begin, end), mode="wrap")


class AlignedLoopStream(LoopStream):
    """One that begins with a whole frame of a loop of whole frames, so that others pass through the same frames."""

    def place(self, k: int) -> int:
        """Which frame of the loop frame k is."""
        return (self._start // self._samples + k) % self.places

    @property
    def places(self) -> int:
        """Frames of the loop."""
        return len(self._loop) // self._samples


class LoopedSpeech:
    """Streams and phases by session index; `period_s` is the frame's length."""

    def __init__(self, library: AudioLibrary, period_s: float, seed: int) -> None:
        rng = np.random.default_rng(seed)
        order = rng.permutation(len(library.clips))
        seam = round(SEAM_S * library.sample_rate)
        self._pieces = [library.clips[i].samples for i in order]
        self._seam = seam
        self._loop = join(self._pieces, seam)
        ordered = [library.clips[i] for i in order]
        self.sources = tuple(
            (clip.name, clip.path) for clip in ordered
        )  # as they follow each other in the loop
        self._turn = float(rng.random())
        self._period_s = period_s
        self._frame_samples = round(period_s * library.sample_rate)

    @property
    def loop_samples(self) -> int:
        """Length of the loop."""
        return len(self._loop)

    def stream(self, index: int) -> LoopStream:
        """Session `index`'s stream; the same for every call."""
        return self.at(self.start(index))

    def start(self, index: int) -> int:
        """The sample of the loop at which session `index` begins."""
        share = (self._turn + index * _SILVER) % 1.0
        return int(share * len(self._loop))

    def at(self, start: int) -> LoopStream:
        """The stream that begins at that sample of the loop."""
        return LoopStream(self._loop, start, self._frame_samples)

    def shared(self) -> LoopedSpeech | AlignedLoopedSpeech:
        """The same speech frame by frame, so that what is made of a frame serves all who get there; itself, where
        that would let sessions hear the same.
        """
        frames = len(self._loop) // self._frame_samples
        return self if frames < FEWEST_FRAMES else AlignedLoopedSpeech(self, frames)

    def phase_s(self, index: int) -> float:
        """Where in the period this session's frames fall, 0 <= phase < period, seconds."""
        return (index * _GOLDEN) % 1.0 * self._period_s


class AlignedLoopedSpeech:
    """Streams that begin with a whole frame; the longest clip gives up what makes the loop no whole number of them."""

    def __init__(self, source: LoopedSpeech, frames: int) -> None:
        pieces, surplus = list(source._pieces), len(source._loop) - frames * source._frame_samples
        longest = max(range(len(pieces)), key=lambda i: len(pieces[i]))
        pieces[longest] = pieces[longest][: len(pieces[longest]) - surplus]
        self._loop = join(pieces, source._seam)
        self.sources = source.sources
        self._frames = frames
        self._samples = source._frame_samples
        self._turn = source._turn
        self._period_s = source._period_s

    @property
    def loop_samples(self) -> int:
        """Length of the loop."""
        return len(self._loop)

    def stream(self, index: int) -> AlignedLoopStream:
        """Session `index`'s stream; the same for every call."""
        return self.at(self.start(index))

    def start(self, index: int) -> int:
        """The sample of the loop at which session `index` begins."""
        return int((self._turn + index * _SILVER) % 1.0 * self._frames) * self._samples

    def at(self, start: int) -> AlignedLoopStream:
        """The stream that begins at that sample, a whole number of frames into the loop."""
        return AlignedLoopStream(self._loop, start, self._samples)

    def phase_s(self, index: int) -> float:
        """As `SpeechStreams.phase_s`."""
        return (index * _GOLDEN) % 1.0 * self._period_s


def join(pieces: list[Audio], seam: int) -> Audio:
    """One loop of all pieces: the last `seam` samples of each fade into the first of the next.

    Weights sum to 1, so nothing exceeds the louder of the two. Needs pieces of at least 2 `seam` samples.
    """
    rise = (0.5 - 0.5 * np.cos(np.pi * (np.arange(seam) + 0.5) / seam)).astype(np.float32)
    parts = []
    for piece, following in zip(pieces, [*pieces[1:], pieces[0]], strict=True):
        parts.append(piece[seam : len(piece) - seam])
        parts.append((1 - rise) * piece[len(piece) - seam :] + rise * following[:seam])
    return np.concatenate(parts)
