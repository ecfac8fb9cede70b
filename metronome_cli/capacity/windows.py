"""Turns a driver's state into what observers see: snapshots and timeline windows."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

from metronome_cli.backends.drives import Drives
from metronome_cli.capacity.lab import Lab
from metronome_cli.capacity.progress import PhaseProgress
from metronome_cli.core.formatting import duration, format_utc
from metronome_cli.core.types import PoolState
from metronome_cli.measure.ledger import Tally
from metronome_cli.results.events import Snapshot, WindowHistogram
from metronome_cli.results.measured import Window
from metronome_cli.results.timeline import WindowTimeline

SLOW_S = 5.0  # a period from which on the wait for the first frame is announced
LEAST_SHARE = 0.02  # of the command, before the pace says when it will end
# Bounds of the latency histogram that a metrics endpoint shows, ms; the deadline is one more.
BOUNDS_MS = (1, 2, 5, 10, 20, 30, 40, 50, 60, 80, 100, 150, 200, 300, 500, 1000, 2000, 5000, 10000)


class WindowReporter:
    """Follows one driver through one phase; closes windows and shows them."""

    def __init__(self, lab: Lab, driver: Drives, phase: str, detail: str) -> None:
        self.lab = lab
        self.driver = driver
        self.windows = WindowTimeline()
        self.cap: float | None = None
        self.offered = 0
        self.shed = 0
        self.verdict: str | None = None
        self._fullest = 0.0  # occupancy, up to the end of the last window
        self._phase = phase
        self._detail = detail
        self._began_s = time.perf_counter()
        lab.observer.phase(phase, detail + self._first_frame())

    def _first_frame(self) -> str:
        """When it is due, where that is long to wait for: nothing else is seen until then."""
        period_s = self.lab.period_s
        if self.lab.clock != "real" or period_s < SLOW_S:
            return ""
        due = datetime.now(UTC) + timedelta(seconds=period_s)
        return f", first frame due at {format_utc(due)}, after {duration(period_s)}"

    @property
    def timeline(self) -> list[Window]:
        """The windows so far, in bounded room."""
        return self.windows.windows

    def close_window(self, done: PhaseProgress | None = None, warm_up: bool = False) -> tuple[Tally, Window]:
        """End the window: its tally, its line in the timeline; `done`: how far this phase is.

        `warm_up`: the window counts nowhere else.
        """
        tally = self.driver.ledger.close_window()
        point = self._timeline_point(tally, warm_up)
        self.windows.add(point)
        self.lab.observer.event("window", {"phase": self._phase, **point.model_dump()})
        self.lab.observer.snapshot(self._snapshot(tally, point, done or PhaseProgress(0.0)))
        return tally, point

    def _occupancy(self, pool: PoolState) -> float | None:
        """Now, or the new highest of the run that the window has seen."""
        if not pool.total_blocks:
            return None
        before, self._fullest = self._fullest, max(self._fullest, self.driver.occupancy_max)
        return max(pool.occupancy, self._fullest) if self._fullest > before else pool.occupancy

    def _timeline_point(self, tally: Tally, warm_up: bool) -> Window:
        pool = self.driver.population.target.pool()
        return Window(
            t_s=self.driver.clock.now(),
            occupancy=self._occupancy(pool),
            stage_occupancy=dict(self.driver.stage_occupancy),
            running=pool.running,
            waiting=pool.waiting,
            sessions=len(self.driver.population),
            session_limit=self.cap,
            p50_ms=tally.latency.percentile(0.5),
            p99_ms=tally.latency.percentile(0.99),
            max_ms=tally.latency.max_ms,
            frames=tally.frames,
            misses=tally.misses,
            empty_frames=tally.empty_frames,
            shed=self.shed,
            warm_up=warm_up,
        )

    def _snapshot(self, tally: Tally, point: Window, done: PhaseProgress) -> Snapshot:
        lab, total = self.lab, self.driver.ledger.total
        elapsed = time.perf_counter() - lab.began_s
        return Snapshot(
            phase=self._phase,
            detail=self._detail,
            elapsed_s=elapsed,
            run_s=point.t_s,
            clock=lab.clock,
            progress=self._progress(elapsed, done.share),
            eta_s=self._left_s(done.share),
            offered=max(self.offered, point.sessions),
            admitted=point.sessions,
            shed=self.shed,
            running=point.running,
            waiting=point.waiting,
            cap=self.cap,
            deadline_ms=lab.deadline_ms,
            p50_ms=point.p50_ms,
            p99_ms=point.p99_ms,
            max_ms=point.max_ms,
            misses=total.misses,
            empty_frames=total.empty_frames,
            frames=total.frames,
            steps=total.steps,
            occupancy=point.occupancy,
            stages_ms=tally.stages_ms(),
            recent=tuple(self.driver.ledger.recent),
            verdict=self.verdict,
            random_weights=lab.random_weights,
            told_by_server=lab.told_by_server,
            done=done.words,
            budget_s=lab.budget_s,
            window=None if point.warm_up else self._counts(tally),
        )

    def _progress(self, elapsed_s: float, share: float) -> float | None:
        """Of the command, or of a search's time; a bad step makes more steps needed, and the bar waits for them."""
        lab = self.lab
        if not lab.searching:
            now = lab.progress[0] + min(1.0, share) * (lab.progress[1] - lab.progress[0])
        elif lab.budget_s is not None:
            now = min(1.0, elapsed_s / lab.budget_s)
        else:
            return None
        lab.furthest = max(lab.furthest, now)
        return lab.furthest

    def _left_s(self, share: float) -> float | None:
        """Until the command ends, at this phase's pace; None where that means nothing.

        The virtual clock does not keep step with the wall's, and a search does not know what follows.
        """
        if self.lab.searching or self.lab.clock == "virtual":
            return None
        low, high = self.lab.progress
        gone = min(1.0, share) * (high - low)
        if gone < LEAST_SHARE or low + gone >= 1:
            return None
        return (time.perf_counter() - self._began_s) * (1 - low - gone) / gone

    def _counts(self, tally: Tally) -> WindowHistogram:
        bounds = sorted({*map(float, BOUNDS_MS), self.lab.deadline_ms})
        return WindowHistogram(
            frames=tally.frames,
            misses=tally.misses,
            empty_frames=tally.empty_frames,
            steps=tally.steps,
            bounds_ms=bounds,
            at_most=tally.latency.cumulative(bounds),
            latency_sum_ms=tally.latency.sum_ms,
        )
