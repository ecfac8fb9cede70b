"""Groups the frames of streaming sessions into batches by the period in which they were due.

The system under test batches them, so the frames of one period are not independent evidence. A batch is complete when
no frame of it can be answered any more. Late submission shifts load to later periods, so a batch inherits the lateness
of earlier batches, less half a period for each period in between.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

from metronome_cli.core.session import FrameBatch, FrameResult, FrameSent


@dataclass(slots=True)
class _PeriodBatch:
    frames: list[FrameResult] = field(default_factory=list)
    sent_late_s: list[float] = field(default_factory=list)


class PeriodBatcher:
    """Batches that are not complete yet."""

    def __init__(self, period_s: float) -> None:
        self._period_s = period_s
        self._open: dict[int, _PeriodBatch] = {}
        self._delay_s = 0.0
        self._last = 0  # period

    def __len__(self) -> int:
        return len(self._open)

    def add(self, frame: FrameResult) -> None:
        """Record a frame that was answered or given up."""
        self._of(frame.due_s).frames.append(frame)

    def add_sent(self, sent: FrameSent) -> None:
        """Record the submission of a frame."""
        self._of(sent.due_s).sent_late_s.append(sent.late_s)

    def _of(self, due_s: float) -> _PeriodBatch:
        return self._open.setdefault(math.floor(due_s / self._period_s), _PeriodBatch())

    def complete(self, before_s: float) -> Iterator[FrameBatch]:
        """Return the complete batches: those of periods that ended before that instant."""
        done = [number for number in sorted(self._open) if (number + 1) * self._period_s <= before_s]
        for number in done:
            batch = self._open.pop(number)
            late_s = max(batch.sent_late_s, default=0.0)
            inherited_s = self._delay_s - 0.5 * self._period_s * max(0, number - self._last)
            self._delay_s, self._last = max(late_s, inherited_s), number
            frames = sorted(batch.frames, key=lambda frame: (frame.session, frame.due_s))
            yield FrameBatch(frames, late_s, self._delay_s, sent_late_s=batch.sent_late_s)
