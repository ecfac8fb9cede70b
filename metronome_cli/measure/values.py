"""Times of turns, answers and words, and the share of them beyond each limit that an objective sets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from metronome_cli.measure.block_share import BlockShare
from metronome_cli.measure.histogram import LatencyHistogram


@dataclass(slots=True)
class LimitedValues:
    """Values of one kind: their percentiles, and for each limit the share beyond it.

    Values are milliseconds, or ratios scaled by 1000 so that the histogram resolves them. A unit without a value, such
    as a turn that nothing answered, is beyond every limit and in no percentile.
    """

    limits: Sequence[float] = ()
    block_s: float = 10.0
    histogram: LatencyHistogram = field(default_factory=LatencyHistogram)
    over: dict[float, BlockShare] = field(init=False)

    def __post_init__(self) -> None:
        self.over = {limit: BlockShare(self.block_s) for limit in self.limits}

    def add(self, t_s: float, value: float | None) -> None:
        """Count one unit at `t_s`; None: it did not come."""
        if value is not None:
            self.histogram.add(value)
        for limit, share in self.over.items():
            share.add(t_s, int(value is None or value > limit))

    @property
    def units(self) -> int:
        """Units with a value."""
        return self.histogram.total

    def percentile(self, q: float) -> float | None:
        """Percentile of the values; None without one."""
        return self.histogram.percentile(q)
