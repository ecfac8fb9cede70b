"""Pool state of a vLLM engine, as its scheduler reports it after each step.

Occupancy is the share of blocks in use. vLLM counts sessions between two frames, and all sessions of a stalled engine,
as neither running nor waiting, so these counts are not used for conclusions. The pool counts as nearly full while fewer
blocks are free than one frame of a session may need. With several engines (data parallelism) blocks and sessions are
summed, and one nearly full engine is enough.

Known error: an idle engine reports nothing, so the last report remains after the last session has ended.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from metronome_cli.core.types import PoolState

SAMPLE_S = 0.1  # between samples of the trace


class PoolGauge:
    """Collects scheduler reports in one thread; any thread may read. `frame_blocks`: most blocks that a frame needs."""

    def __init__(self, frame_blocks: int = 1, clock: Callable[[], float] = time.perf_counter) -> None:
        self.total_blocks = 0
        self.engines = 1
        self.occupancy_max = 0.0
        self.preemptions = 0
        self.nearly_full_since: float | None = None  # by `clock`
        self.trace: list[tuple[float, float]] = []  # (by `clock`, occupancy of the fullest), a few a second
        self._frame_blocks = frame_blocks
        self.clock = clock
        self._states: dict[int, tuple[float, int, int]] = {}  # engine -> occupancy, running, waiting

    def begin(self, total_blocks: int, engines: int = 1) -> None:
        """Set the number of blocks available to sessions, over all engines."""
        self.total_blocks = total_blocks
        self.engines = max(1, engines)

    def take(self, engine: int, occupancy: float, running: int, waiting: int) -> None:
        """Record the report of one scheduler."""
        self._states = self._states | {engine: (occupancy, running, waiting)}
        fullest = max(state[0] for state in self._states.values())
        self.occupancy_max = max(self.occupancy_max, fullest)
        now = self.clock()
        if not self.trace or now - self.trace[-1][0] >= SAMPLE_S:
            self.trace.append((now, fullest))
        each = self.total_blocks / self.engines
        if (1.0 - fullest) * each > self._frame_blocks - 0.5:  # as many blocks are free as a frame needs
            self.nearly_full_since = None
        elif self.nearly_full_since is None:
            self.nearly_full_since = now

    def preempted(self, count: int) -> None:
        """Count sessions whose cache was preempted."""
        self.preemptions += count

    def forget(self) -> None:
        """Discard all reports from before the run."""
        self.occupancy_max, self.preemptions, self.trace = 0.0, 0, []

    def pool(self) -> PoolState:
        """Return the state of all engines together."""
        states = list(self._states.values())
        share = sum(state[0] for state in states) / self.engines
        return PoolState(
            round(share * self.total_blocks),
            self.total_blocks,
            sum(state[1] for state in states),
            sum(state[2] for state in states),
        )
