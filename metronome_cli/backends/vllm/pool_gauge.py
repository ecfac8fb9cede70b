"""The pool of a vLLM engine as its scheduler states it after every step.

Occupancy is the share of blocks in use. Sessions between two frames count as neither running nor waiting, and so do
all of them in an engine that has stalled: both read 0 while nothing moves, so nothing is concluded from them. The pool
counts as nearly full while fewer blocks are free than one session's frame may need. With several engines (data
parallelism) blocks and sessions are added up, and one that is nearly full is enough.

Known error: an engine that does nothing says nothing, so after the last session left the last statement stands.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from metronome_cli.core.types import PoolState

SAMPLE_S = 0.1  # between samples of the trace


class PoolGauge:
    """Takes what schedulers state, in one thread; read from any. `frame_blocks`: what a frame may need at once."""

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
        """The engine stands: blocks that sessions can have, of all engines together."""
        self.total_blocks = total_blocks
        self.engines = max(1, engines)

    def take(self, engine: int, occupancy: float, running: int, waiting: int) -> None:
        """One scheduler's statement."""
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
        """Sessions whose cache was taken away."""
        self.preemptions += count

    def forget(self) -> None:
        """What was seen so far was not the run's."""
        self.occupancy_max, self.preemptions, self.trace = 0.0, 0, []

    def pool(self) -> PoolState:
        """All engines together."""
        states = list(self._states.values())
        share = sum(state[0] for state in states) / self.engines
        return PoolState(
            round(share * self.total_blocks),
            self.total_blocks,
            sum(state[1] for state in states),
            sum(state[2] for state in states),
        )
