"""MiniCPM-o's log-mel of one-second units, as its processors cut them.

Both versions: 16 kHz, 400-sample Hann windows every 160 samples, log10 with a floor, scaled by (x + 4) / 4.

- **4.5** keeps a buffer of the stream and a lookahead. The stream begins with 560 zeros; unit k reads up to
  sample 16,480 + 16,000 k, of which 480 are lookahead. Unit 0 gives frames [0, 102), unit k gives
  [100 k - 2, 100 k + 102): two more on each side than the second holds, for the convolutions' edges. The
  floor is -10 while the buffer is under 5 s, then 8 below the loudest value in it. At 30 s the buffer drops
  its oldest 10 s. The authors compute the whole buffer's mel for each unit. Here each frame is computed once,
  and its peak kept for the floor: the numbers are the same.
- **2.6** takes each second alone: reflected at both ends, 100 frames, floor 8 below its own loudest value.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from metronome_cli.core.types import Audio
from metronome_cli.models.audio.whisper_mel import HALF, HOP, RANGE, RATE, WINDOW, WhisperLogMel

UNIT = RATE  # samples
UNIT_FRAMES = UNIT // HOP
SPARE = 2  # frames on each side of a unit, for the convolutions
LEAD = 560  # zeros before the stream
FIRST = 16_480  # samples that unit 0 reads
FLOOR = -10.0
QUIET_UNTIL = 5 * RATE  # samples in the buffer before the floor follows the loudest value
SLIDE_AT, SLIDE_BY = 30 * RATE, 10 * RATE


@dataclass(slots=True)
class UnitMelStream:
    """One session's buffer. peaks[i]: the loudest bin of the buffer's frame i."""

    audio: Audio = field(default_factory=lambda: np.zeros(LEAD, np.float32))
    peaks: Audio = field(default_factory=lambda: np.zeros(0, np.float32))
    units: int = 0
    dropped: int = 0  # samples slid out

    @property
    def end(self) -> int:
        """Samples of the buffer that the unit now due reads."""
        return FIRST + UNIT * self.units - self.dropped

    @property
    def first(self) -> int:
        """The buffer's first frame that this unit emits."""
        return max(0, UNIT_FRAMES * self.units - SPARE) - self.dropped // HOP

    @property
    def nbytes(self) -> int:
        return self.audio.nbytes + self.peaks.nbytes


class UnitMel45:
    """The streaming mel of version 4.5, for many sessions at once."""

    def __init__(self, bins: int, device: torch.device) -> None:
        self.log_mel = WhisperLogMel(bins, device)

    def units(self, streams: Sequence[UnitMelStream], audio: Sequence[Audio]) -> list[Tensor]:
        """The next unit of each stream, of 16,000 samples each: [bins, 102] its first, [bins, 104] after."""
        for stream, samples in zip(streams, audio, strict=True):
            stream.audio = np.concatenate([stream.audio, samples.astype(np.float32, copy=False)])
            self._slide(stream)
        opening = [stream.units == 0 for stream in streams]
        out: dict[int, Tensor] = {}
        for kind in (True, False):
            rows = [row for row, first in enumerate(opening) if first == kind]
            out |= zip(rows, self._emit([streams[row] for row in rows]), strict=True)
        return [out[row] for row in range(len(streams))]

    def _slide(self, stream: UnitMelStream) -> None:
        if stream.end < SLIDE_AT:
            return
        stream.audio = stream.audio[SLIDE_BY:]
        stream.peaks = stream.peaks[SLIDE_BY // HOP :].copy()
        stream.dropped += SLIDE_BY
        edge = self._mel([np.pad(stream.audio[: HOP + HALF], (HALF, 0), mode="reflect")])
        stream.peaks[:2] = edge.amax(1)[0].cpu().numpy()  # a buffer's own start is reflected

    def _emit(self, streams: Sequence[UnitMelStream]) -> list[Tensor]:
        """Streams that are all at their first unit, or all past it."""
        if not streams:
            return []
        raw = self._mel([_surrounded(stream) for stream in streams])  # the unit's frames and one unstable one
        peaks = raw.amax(1).cpu().numpy()
        floors = [self._settle(stream, row) for stream, row in zip(streams, peaks, strict=True)]
        floor = torch.tensor(floors, device=raw.device)[:, None, None]
        return list((torch.maximum(raw[:, :, :-1], floor) + 4.0) / 4.0)

    def _settle(self, stream: UnitMelStream, peaks: Audio) -> float:
        """Take this unit's peaks into the stream; the floor of its mel."""
        stream.peaks = np.concatenate([stream.peaks[: stream.first], peaks])
        quiet = stream.end < QUIET_UNTIL
        stream.units += 1
        return FLOOR if quiet else float(stream.peaks.max()) - RANGE

    def _mel(self, samples: Sequence[Audio]) -> Tensor:
        return self.log_mel(torch.from_numpy(np.stack(samples)).to(self.log_mel.device))


def _surrounded(stream: UnitMelStream) -> Audio:
    """The samples that the unit's frames read, reflected where the buffer begins and ends."""
    start = stream.first * HOP - HALF
    samples = stream.audio[max(0, start) : stream.end]
    # the last frame is not stable: the authors' mel has it, and it counts for the floor
    return np.pad(samples, (max(0, -start), HALF), mode="reflect")[: _span(stream)]


def _span(stream: UnitMelStream) -> int:
    frames = stream.end // HOP - stream.first
    return (frames - 1) * HOP + WINDOW


class UnitMel26:
    """The mel of version 2.6: every second alone."""

    def __init__(self, bins: int, device: torch.device) -> None:
        self.log_mel = WhisperLogMel(bins, device)

    def units(self, audio: Sequence[Audio]) -> Tensor:
        """audio: 16,000 samples each. Returns [batch, bins, 100]."""
        samples = torch.from_numpy(np.stack(audio)).to(self.log_mel.device)
        raw = self.log_mel(F.pad(samples, (HALF, HALF), mode="reflect"))[:, :, :-1]
        return (torch.maximum(raw, raw.amax((1, 2), keepdim=True) - RANGE) + 4.0) / 4.0
