"""Conditions that all trials of one command share."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from metronome_cli.backends.interface import Backend, KvDemand, RunSetup
from metronome_cli.capacity.offered_load import Admission, OfferedLoad, TakeDown, admit_all
from metronome_cli.config.profile import Profile
from metronome_cli.core.clock import ClockName
from metronome_cli.core.session import Batching, SessionSpec
from metronome_cli.load.churn import Churn
from metronome_cli.load.misbehaving import MisbehavingSessions
from metronome_cli.load.script import Script
from metronome_cli.load.trace import LoopedAudio, NoRecorder, TraceRecorder, TraceTrial, trace_session
from metronome_cli.load.workload import Workload, generated_workload
from metronome_cli.measure.confidence import batches_needed
from metronome_cli.measure.listener import Listener, ListenerSetup
from metronome_cli.measure.listener_verdict import limits_of
from metronome_cli.measure.objective import Objective
from metronome_cli.measure.recorder import Recorder
from metronome_cli.measure.stall import StallDetector, Still
from metronome_cli.measure.verdict import EXTREME_SHARE, allowed_share, tail_share
from metronome_cli.results.events import Observer

CONFIDENCE = 0.99
ROOM_FOR_BAD = 2.2  # times the batches that a trial without a bad one needs: room for one or two


@dataclass(frozen=True, slots=True)
class AloneReplies:
    """Replies of session 0 alone on the server, by turn, ms: two passes."""

    first_ms: Mapping[int, float]
    again_ms: Mapping[int, float]


@dataclass(slots=True)
class Progress:
    """How far the command is: the share of it that the present phase spans, or the time that a search has.

    `highest`: what was shown so far; none that is shown later is less. `time_limit_s`: wall time of a search.
    """

    low: float = 0.0
    high: float = 1.0
    searching: bool = False
    time_limit_s: float | None = None
    highest: float = 0.0

    def span(self, low: float, high: float) -> None:
        """The next phase spans that share of the command."""
        self.low, self.high = low, high

    def share(self, elapsed_s: float, of_phase: float) -> float | None:
        """Of the command, or of a search's time; None if that is not known."""
        if not self.searching:
            now = self.low + min(1.0, of_phase) * (self.high - self.low)
        elif self.time_limit_s is not None:
            now = min(1.0, elapsed_s / self.time_limit_s)
        else:
            return None
        self.highest = max(self.highest, now)
        return self.highest


@dataclass(frozen=True, slots=True)
class TrialContext:
    """The conditions of one command's trials. `stalls` detects that this process was not scheduled."""

    backend: Backend
    profile: Profile
    audio: LoopedAudio
    objectives: Sequence[Objective]
    clock: ClockName
    batching: Batching
    session_length_s: float
    seed: int
    observer: Observer
    stop: Callable[[], bool]
    max_sessions: int
    confidence: float = CONFIDENCE
    random_weights: bool = True
    began_s: float = field(default_factory=time.perf_counter)
    stalls: StallDetector | Still = field(default_factory=Still)
    progress: Progress = field(default_factory=Progress)
    trace_recorder: TraceRecorder = field(default_factory=NoRecorder)
    canary: AloneReplies | None = None  # replies to one session alone
    misbehaving: MisbehavingSessions = field(default_factory=MisbehavingSessions)  # sessions that misbehave
    churn: Churn | None = None  # None: every session lasts the session length
    script: Script | None = None  # when users speak; None: all the time
    playback_delays_s: tuple[float, ...] = (0.0,)  # the first is judged
    recorded: Workload | None = None  # of a load trace; None: turns are drawn from the seed

    @property
    def deadline_ms(self) -> float:
        return self.profile.frame.deadline_s * 1e3

    @property
    def period_s(self) -> float:
        return self.profile.frame.period_s

    @property
    def batches_to_prove(self) -> int:
        """Batches without a bad frame that prove every objective."""
        return batches_to_prove(self.objectives, self.profile, self.confidence)

    @property
    def workload(self) -> Workload:
        """Audio and turns of every session."""
        if self.recorded is not None:
            return self.recorded
        return generated_workload(
            self.audio, self.profile.turn_taking, self.seed, self.script, self.misbehaving
        )

    def kv_demand(self) -> KvDemand | None:
        """Return the pool demand of a session at the end of the session length; None if unknown."""
        return self.backend.kv_demand(self.profile, self.session_length_s)

    def under(self, policy: str) -> TrialContext:
        """The same context under another cache policy."""
        return replace(self, profile=self.profile.model_copy(update={"policy": policy}))

    def open_load(
        self,
        slots: int,
        head: TraceTrial | None = None,
        arrivals: Iterable[SessionSpec] = (),
        admission: Admission = admit_all,
    ) -> OfferedLoad:
        """Start a run of the backend, with nothing counted and no session open.

        With a `head` its load is recorded, if the command records; `trace_recorder.end` says when it is over.
        """
        limits = [
            objective.limit for objective in self.objectives if tail_share(objective.metric) is not None
        ]
        recorder = Recorder(self.deadline_ms, limits, period_s=self.period_s)
        recorder.listener = self._listener()
        before = self.backend.describe()
        setup = RunSetup(
            profile=self.profile,
            workload=self.workload,
            slots=slots,
            clock=self.clock,
            batching=self.batching,
            seed=self.seed,
            record=recorder.record,
            stop=self.stop,
        )
        run = self.backend.start(setup)
        if (now := self.backend.describe()) != before:
            self.observer.event("backend_started", now)
        return OfferedLoad(
            run,
            recorder,
            self.stop,
            self.stalls,
            arrivals=arrivals,
            admission=admission,
            take_down=self._take_down(head),
        )

    def _listener(self) -> Listener | None:
        """Return the model of the listeners; None if the backend returns no sound."""
        sound, (delay_s, *others) = self.backend.traits.sound, self.playback_delays_s
        if sound == "none":
            return None
        return Listener(
            ListenerSetup(
                self.period_s,
                steady=sound == "steady",
                context_limit=self.backend.traits.context_limit,
                delay_s=delay_s,
                other_delays_s=tuple(others),
                headroom_s=self.period_s if sound == "frames" else None,
                alone_ms=None if self.canary is None else self.canary.first_ms,
                limits=limits_of(self.objectives, self.playback_delays_s),
            )
        )

    def _take_down(self, head: TraceTrial | None) -> TakeDown | None:
        """Return the function that records the sessions of the next trial to the load trace; None without one."""
        take = None if head is None else self.trace_recorder.begin(head)
        if take is None:
            return None
        workload, period_s = self.workload, self.period_s

        def record_session(session: SessionSpec) -> None:
            take(trace_session(session, workload.audio, workload.turns(session.index), period_s))

        return record_session


def batches_to_prove(
    objectives: Sequence[Objective], profile: Profile, confidence: float = CONFIDENCE
) -> int:
    """Batches of one session without a bad frame that prove every one of these objectives.

    If a profile owes no output while it listens, only some batches say something of `empty`.
    """
    most = batches_needed(EXTREME_SHARE, confidence)
    for objective in objectives:
        if (share := allowed_share(objective)) is not None:
            needed = batches_needed(share, confidence)
            silent = objective.metric == "empty" and not profile.tokens.decode.listening
            if silent and profile.turn_taking.speaking_share:
                needed = round(needed / profile.turn_taking.speaking_share)
            most = max(most, needed)
    return most


def batches_to_confirm(needed: int, at_least: int) -> int:
    """The most batches of a confirmation whose objectives need `needed` without a bad one."""
    return max(at_least, round(ROOM_FOR_BAD * needed))
