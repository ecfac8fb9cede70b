"""Events of a run for its observers: live view, plain lines, event log, /metrics. Nothing returns to the run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from metronome_cli.core.errors import MetronomeError

BatchKind = Literal["ok", "late", "empty"]
SessionView = Literal["on time", "late", "empty", "waiting"]


@dataclass(frozen=True, slots=True)
class WindowHistogram:
    """Counts of one window, to be added up. Milliseconds of the run's own clock."""

    frames: int
    misses: int
    empty_frames: int
    steps: int
    bounds_ms: Sequence[float]  # ascending
    at_most: Sequence[int]  # for each bound, the frames whose latency did not exceed it
    latency_sum_ms: float


@dataclass(frozen=True, slots=True)
class HeardNow:
    """What listeners have heard so far in a trial; None means no data yet. Milliseconds."""

    longest_gap_ms: float | None = None
    starved_share: float | None = None
    need_p50_ms: float | None = None
    need_max_ms: float | None = None
    asked: int = 0
    answered: int = 0
    reply_p50_ms: float | None = None
    reply_p95_ms: float | None = None
    talked_over: int = 0
    yield_p95_ms: float | None = None
    listens_share: float | None = None  # of the model's answers
    cache: int | None = None  # longest, in positions
    cache_limit: int | None = None
    full_in_s: float | None = None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The run now, taken a few times a second. Milliseconds of the run's own clock; None means no data yet."""

    phase: str  # "load", "ramp", "confirm", "next step", ...
    detail: str  # one short line: what this phase is doing
    elapsed_s: float  # wall time since the command began
    run_s: float  # the run's own clock in this phase (virtual or real)
    clock: Literal["real", "virtual"]
    progress: float | None  # 0..1 of the whole command, or of a search's time; never less than it was
    eta_s: float | None
    offered: int
    admitted: int
    shed: int
    running: int
    waiting: int
    cap: float | None  # the controller's cap in sessions
    deadline_ms: float
    p50_ms: float | None  # over the last window
    p99_ms: float | None
    max_ms: float | None
    misses: int
    empty_frames: int
    frames: int
    steps: int
    occupancy: float | None
    stages_ms: dict[str, float] = field(default_factory=dict)  # mean per step over the last window
    recent: Sequence[
        tuple[float, BatchKind]
    ] = ()  # worst latency (ms) and kind of the last steps, oldest first
    session_views: Sequence[SessionView] = ()  # state of each open session, in order of opening
    verdict: str | None = None  # the verdict so far, one short sentence
    random_weights: bool = True
    heard: HeardNow | None = None  # None: nothing is listened to
    window: WindowHistogram | None = None  # None: no frames that count
    has_sessions: bool = (
        True  # False: work without sessions, such as a probe; session and frame counts are empty
    )
    told_by_server: bool = False  # `running` and `waiting` are from the last scrape of a server
    done: str = ""  # how far this phase is, in words: "step 210 of 480"
    budget_s: float | None = (
        None  # wall time that a search has; None: no search, or one without an end in time
    )


def progress_only(
    phase: str, detail: str, elapsed_s: float, progress: float, *, random_weights: bool
) -> Snapshot:
    """A snapshot of work that has no sessions to show: how far it is, and how long it will take yet."""
    return Snapshot(
        phase=phase,
        detail=detail,
        elapsed_s=elapsed_s,
        run_s=elapsed_s,
        clock="real",
        progress=progress,
        eta_s=elapsed_s * (1 - progress) / progress if 0.02 <= progress < 1 else None,
        offered=0,
        admitted=0,
        shed=0,
        running=0,
        waiting=0,
        cap=None,
        deadline_ms=0.0,
        p50_ms=None,
        p99_ms=None,
        max_ms=None,
        misses=0,
        empty_frames=0,
        frames=0,
        steps=0,
        occupancy=None,
        random_weights=random_weights,
        has_sessions=False,
    )


class Observer(Protocol):
    """A watcher. Every method returns at once and never raises for reasons of its own display."""

    def phase(self, name: str, detail: str) -> None:
        """A new phase began."""

    def snapshot(self, snapshot: Snapshot) -> None:
        """A few times a second."""

    def event(self, kind: str, data: dict[str, Any]) -> None:
        """A fact worth keeping: "run_started", "backend_started", "audio", "admission", "window", "trial",
        "policy_run", "repeats", "collapse", "write_failed", "report".
        """

    def notice(self, message: str) -> None:
        """One line for the user now (a refused file, a device chosen, ...)."""

    def close(self) -> None:
        """The run is over: restore the terminal, flush files."""


class ObserverGroup:
    """Many watchers as one."""

    def __init__(self, *watchers: Observer) -> None:
        self._watchers = watchers

    def phase(self, name: str, detail: str) -> None:
        for watcher in self._watchers:
            watcher.phase(name, detail)

    def snapshot(self, snapshot: Snapshot) -> None:
        for watcher in self._watchers:
            watcher.snapshot(snapshot)

    def event(self, kind: str, data: dict[str, Any]) -> None:
        for watcher in self._watchers:
            watcher.event(kind, data)

    def notice(self, message: str) -> None:
        for watcher in self._watchers:
            watcher.notice(message)

    def close(self) -> None:
        for watcher in self._watchers:
            watcher.close()


class WriteFailures(ObserverGroup):
    """Records output files that could not be written, so that the command reports them under every view."""

    def __init__(self) -> None:
        super().__init__()
        self._lost: list[dict[str, Any]] = []

    def event(self, kind: str, data: dict[str, Any]) -> None:
        if kind == "write_failed":
            self._lost.append(data)

    def tell(self) -> None:
        """Raises MetronomeError for the first of it."""
        for lost in self._lost:
            raise MetronomeError(lost["message"], hint=lost["hint"])
