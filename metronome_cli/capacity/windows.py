"""Windows of a trial: figures for live views, about once per second."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

from metronome_cli.backends.interface import BackendStats
from metronome_cli.capacity.context import TrialContext
from metronome_cli.capacity.heard import heard_now
from metronome_cli.capacity.offered_load import OfferedLoad
from metronome_cli.capacity.progress import PhaseProgress
from metronome_cli.core.formatting import duration, format_utc
from metronome_cli.measure.recorder import Counts, SessionState
from metronome_cli.results.events import SessionView, Snapshot, WindowHistogram
from metronome_cli.results.measured import Window
from metronome_cli.results.timeline import WindowTimeline

SLOW_S = 5.0  # a period from which on the wait for the first frame is announced
LEAST_SHARE = 0.02  # of the command, before the pace says when it will end
# Bounds of the latency histogram that a metrics endpoint shows, ms; the deadline is one more.
BOUNDS_MS = (1, 2, 5, 10, 20, 30, 40, 50, 60, 80, 100, 150, 200, 300, 500, 1000, 2000, 5000, 10000)


class Windows:
    """Follows one trial through one phase; closes windows and shows them."""

    def __init__(self, context: TrialContext, load: OfferedLoad, phase: str, detail: str) -> None:
        self.context = context
        self.load = load
        self.timeline = WindowTimeline()
        self.session_limit: float | None = None
        self.verdict: str | None = None
        self._fullest = 0.0  # occupancy, up to the end of the last window
        self._phase = phase
        self._detail = detail
        self._began_s = time.perf_counter()
        context.observer.phase(phase, detail + self._first_frame())

    def _first_frame(self) -> str:
        """When it is due, if that is long to wait for: nothing else is shown until then."""
        period_s = self.context.period_s
        if self.context.clock != "real" or period_s < SLOW_S:
            return ""
        due = datetime.now(UTC) + timedelta(seconds=period_s)
        return f", first frame due at {format_utc(due)}, after {duration(period_s)}"

    @property
    def windows(self) -> list[Window]:
        """All windows so far, merged to a bounded number."""
        return self.timeline.windows

    def close(self, done: PhaseProgress | None = None, warm_up: bool = False) -> tuple[Counts, Window]:
        """End the window: its counts, and its entry in the timeline; `done`: how far this phase is.

        `warm_up`: the window counts nowhere else.
        """
        self.load.recorder.look(self.load.run.clock.now())
        counts, stats = self.load.recorder.close_window(), self.load.run.stats()
        point = self._timeline_point(counts, stats, warm_up)
        self.timeline.add(point)
        self.context.observer.event("window", {"phase": self._phase, **point.model_dump()})
        self.context.observer.snapshot(self._snapshot(counts, point, done or PhaseProgress(0.0)))
        return counts, point

    def _occupancy(self, stats: BackendStats) -> float | None:
        """Now, or the new highest of the trial that the window has seen."""
        if stats.pool is None or not stats.pool.total_blocks:
            return None
        before, self._fullest = self._fullest, max(self._fullest, stats.occupancy_max or 0.0)
        return max(stats.pool.occupancy, self._fullest) if self._fullest > before else stats.pool.occupancy

    def _timeline_point(self, counts: Counts, stats: BackendStats, warm_up: bool) -> Window:
        pool = stats.pool
        return Window(
            t_s=self.load.run.clock.now(),
            occupancy=self._occupancy(stats),
            stage_occupancy=dict(stats.stage_occupancy),
            running=pool.running if pool else 0,
            waiting=pool.waiting if pool else 0,
            sessions=len(self.load),
            session_limit=self.session_limit,
            p50_ms=counts.latency.percentile(0.5),
            p99_ms=counts.latency.percentile(0.99),
            max_ms=counts.latency.max_ms,
            frames=counts.frames,
            misses=counts.misses,
            empty_frames=counts.empty,
            shed=self._shed,
            warm_up=warm_up,
        )

    @property
    def _shed(self) -> int:
        """Sessions that were declined or closed so far, by this side or by the backend at once."""
        return self.load.shed + self.load.rejected + self.load.recorder.ended["shed"]

    def _snapshot(self, counts: Counts, point: Window, done: PhaseProgress) -> Snapshot:
        context, total = self.context, self.load.recorder.total
        elapsed = time.perf_counter() - context.began_s
        return Snapshot(
            phase=self._phase,
            detail=self._detail,
            elapsed_s=elapsed,
            run_s=point.t_s,
            clock=context.clock,
            progress=self._progress(elapsed, done.share),
            eta_s=self._left_s(done.share),
            offered=max(self.load.offered, point.sessions),
            admitted=point.sessions,
            shed=self._shed,
            running=point.running,
            waiting=point.waiting,
            cap=self.session_limit,
            deadline_ms=context.deadline_ms,
            p50_ms=point.p50_ms,
            p99_ms=point.p99_ms,
            max_ms=point.max_ms,
            misses=total.misses,
            empty_frames=total.empty,
            frames=total.frames,
            steps=total.batches,
            occupancy=point.occupancy,
            stages_ms=counts.stages_ms(),
            recent=tuple(self.load.recorder.recent),
            session_views=[_view(state) for state in self.load.recorder.active.values()],
            verdict=self.verdict,
            random_weights=context.random_weights,
            told_by_server=context.backend.traits.server_reported,
            done=done.words,
            budget_s=context.progress.time_limit_s,
            heard=heard_now(self.load.recorder.listener),
            window=None if point.warm_up else self._counts(counts),
        )

    def _progress(self, elapsed_s: float, share: float) -> float | None:
        return self.context.progress.share(elapsed_s, share)

    def _left_s(self, share: float) -> float | None:
        """Until the command ends, at this phase's pace; None if that is not known.

        The virtual clock does not keep step with wall time, and a search does not know what follows.
        """
        progress = self.context.progress
        if progress.searching or self.context.clock == "virtual":
            return None
        gone = min(1.0, share) * (progress.high - progress.low)
        if gone < LEAST_SHARE or progress.low + gone >= 1:
            return None
        return (time.perf_counter() - self._began_s) * (1 - progress.low - gone) / gone

    def _counts(self, counts: Counts) -> WindowHistogram:
        bounds = sorted({*map(float, BOUNDS_MS), self.context.deadline_ms})
        return WindowHistogram(
            frames=counts.frames,
            misses=counts.misses,
            empty_frames=counts.empty,
            steps=counts.batches,
            bounds_ms=bounds,
            at_most=counts.latency.cumulative(bounds),
            latency_sum_ms=counts.latency.sum_ms,
        )


def _view(state: SessionState) -> SessionView:
    """Return the state of an open session by its last frame."""
    if not state.ready:
        return "waiting"
    return "late" if state.miss_streak else "empty" if state.empty_since_s is not None else "on time"
