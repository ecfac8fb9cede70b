"""Gives each session its own stream of speech.

All clips, in an order drawn from the seed, are joined into one loop, with a 20 ms crossfade at each seam. Session i
starts at the fraction frac(u + i sqrt 2) of the loop, and its frames fall at frac(i phi) of the period. Multiples of
irrational numbers spread more evenly than random draws (discrepancy O(log n / n), Weyl sequences), and a further
session moves none of the others.
"""

from __future__ import annotations

import math

import numpy as np

from metronome_cli.audio.library import AudioLibrary
from metronome_cli.core.types import Audio

SEAM_S = 0.020
FEWEST_FRAMES = 256  # shortest loop that sessions share
_GOLDEN = (math.sqrt(5) - 1) / 2
_SILVER = math.sqrt(2) - 1


class LoopStream:
    """Endless audio of one session."""

    def __init__(self, loop: Audio, start: int, frame_samples: int) -> None:
        self._loop = loop  # [samples], a closed loop
        self._start = start
        self._samples = frame_samples

    def frame(self, k: int) -> Audio:
        """Return frame k, counted from 0, as a new array: [samples] float32. The cost does not depend on k."""
        length = len(self._loop)
        begin = (self._start + k * self._samples) % length
        end = begin + self._samples
        if end <= length:
            return self._loop[begin:end].copy()
        return self._loop.take(np.arange(begin, end), mode="wrap")


class AlignedLoopStream(LoopStream):
    """Stream that starts at a frame boundary of a loop of whole frames, so that streams share their frames."""

    def place(self, k: int) -> int:
        """Return the index in the loop of frame k."""
        return (self._start // self._samples + k) % self.places

    @property
    def places(self) -> int:
        """Number of frames in the loop."""
        return len(self._loop) // self._samples


class LoopedSpeech:
    """Streams and phases by session index. `period_s` is the length of a frame, s."""

    def __init__(self, library: AudioLibrary, period_s: float, seed: int) -> None:
        rng = np.random.default_rng(seed)
        order = rng.permutation(len(library.clips))
        seam = round(SEAM_S * library.sample_rate)
        self._pieces = [library.clips[i].samples for i in order]
        self._seam = seam
        self._loop = join(self._pieces, seam)
        ordered = [library.clips[i] for i in order]
        self.sources = tuple((clip.name, clip.path) for clip in ordered)  # in the order of the loop
        self._turn = float(rng.random())
        self._period_s = period_s
        self._frame_samples = round(period_s * library.sample_rate)

    @property
    def loop_samples(self) -> int:
        """Length of the loop, samples."""
        return len(self._loop)

    def stream(self, index: int) -> LoopStream:
        """Return the stream of session `index`; every call returns the same."""
        return self.at(self.start(index))

    def start(self, index: int) -> int:
        """Return the sample of the loop at which session `index` starts."""
        share = (self._turn + index * _SILVER) % 1.0
        return int(share * len(self._loop))

    def at(self, start: int) -> LoopStream:
        """Return the stream that starts at this sample of the loop."""
        return LoopStream(self._loop, start, self._frame_samples)

    def shared(self) -> LoopedSpeech | AlignedLoopedSpeech:
        """Return the same speech aligned to frames, so that encoded frames can be shared.

        Returns itself if alignment would give two sessions the same audio.
        """
        frames = len(self._loop) // self._frame_samples
        return self if frames < FEWEST_FRAMES else AlignedLoopedSpeech(self, frames)

    def phase_s(self, index: int) -> float:
        """Return the offset of this session's frames in the period, 0 <= phase < period, s."""
        return (index * _GOLDEN) % 1.0 * self._period_s


class AlignedLoopedSpeech:
    """Streams aligned to frames. The longest clip is cut so that the loop is a whole number of frames."""

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
        """Length of the loop, samples."""
        return len(self._loop)

    def stream(self, index: int) -> AlignedLoopStream:
        """Return the stream of session `index`; every call returns the same."""
        return self.at(self.start(index))

    def start(self, index: int) -> int:
        """Return the sample of the loop at which session `index` starts."""
        return int((self._turn + index * _SILVER) % 1.0 * self._frames) * self._samples

    def at(self, start: int) -> AlignedLoopStream:
        """Return the stream that starts at this sample, a whole number of frames into the loop."""
        return AlignedLoopStream(self._loop, start, self._samples)

    def phase_s(self, index: int) -> float:
        """Return the same as `LoopedSpeech.phase_s`."""
        return (index * _GOLDEN) % 1.0 * self._period_s


def join(pieces: list[Audio], seam: int) -> Audio:
    """Join the pieces into one loop: the last `seam` samples of each fade into the first of the next.

    The weights sum to 1, so the result never exceeds the louder piece. Each piece needs at least 2 `seam` samples.
    """
    rise = (0.5 - 0.5 * np.cos(np.pi * (np.arange(seam) + 0.5) / seam)).astype(np.float32)
    parts = []
    for piece, following in zip(pieces, [*pieces[1:], pieces[0]], strict=True):
        parts.append(piece[seam : len(piece) - seam])
        parts.append((1 - rise) * piece[len(piece) - seam :] + rise * following[:seam])
    return np.concatenate(parts)
