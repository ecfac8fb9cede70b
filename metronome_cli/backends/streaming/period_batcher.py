"""Frames of sessions that live by themselves, gathered into steps.

The frames of all sessions that were due in one period make one step: who answers batches them, so they are no
independent evidence. A step is counted when no frame of it can be answered any more.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from metronome_cli.core.session_events import FrameSent
from metronome_cli.measure.ledger import FrameRecord, Ledger


@dataclass(slots=True)
class _PeriodBatch:
    records: list[FrameRecord] = field(default_factory=list)
    late_s: float = 0.0  # the latest of its frames


class PeriodBatcher:
    """Those that are not counted yet."""

    def __init__(self, period_s: float) -> None:
        self._period_s = period_s
        self._steps: dict[int, _PeriodBatch] = {}

    def __len__(self) -> int:
        return len(self._steps)

    def answered(self, record: FrameRecord) -> None:
        """A frame was answered, or given up."""
        self._of(record.due_s).records.append(record)

    def paced(self, news: FrameSent) -> None:
        """A frame was handed over."""
        step = self._of(news.due_s)
        step.late_s = max(step.late_s, news.late_s)

    def _of(self, due_s: float) -> _PeriodBatch:
        return self._steps.setdefault(math.floor(due_s / self._period_s), _PeriodBatch())

    def count(self, before_s: float, ledger: Ledger) -> None:
        """Every step whose frames are all known goes into the ledger."""
        done = [number for number in sorted(self._steps) if (number + 1) * self._period_s <= before_s]
        for number in done:
            step = self._steps.pop(number)
            if step.records:
                ledger.add(sorted(step.records, key=_by_session), {}, step.late_s)


def _by_session(record: FrameRecord) -> tuple[int, float]:
    return record.session, record.due_s
