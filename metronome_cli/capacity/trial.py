"""One trial: N sessions on one run of a backend until a stopping rule holds, judged.

Warm-up is left out: the first batches of a fresh engine pay for allocations that no later one pays for. Then windows
are measured until every objective is proved or refuted, or the batches that the plan allows are spent. A growing cache
is followed through the whole session length instead, since it is a later step that fails.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from metronome_cli.capacity.context import TrialContext
from metronome_cli.capacity.heard import canary, heard_results, misbehaved
from metronome_cli.capacity.offered_load import OfferedLoad, admit_all
from metronome_cli.capacity.outcome import (
    Seen,
    classify,
    collapse_result,
    network_stats,
    occupancy_series,
    trial_counts,
    verdict_of,
)
from metronome_cli.capacity.progress import PhaseProgress, steps_done, time_done
from metronome_cli.capacity.trial_plan import TrialPlan
from metronome_cli.capacity.windows import Windows
from metronome_cli.core.errors import DeviceMemoryError, EngineError
from metronome_cli.core.formatting import plural
from metronome_cli.core.session import SessionSpec
from metronome_cli.forecast.trace_forecast import forecast_of
from metronome_cli.load.arrivals import at_once, spread_ages
from metronome_cli.load.churn import most_at_once
from metronome_cli.load.trace import TraceTrial
from metronome_cli.measure.confidence import batches_needed
from metronome_cli.measure.judgement import Judgement
from metronome_cli.measure.recorder import Counts, TrialEvidence
from metronome_cli.measure.silence import silence_timeout_s
from metronome_cli.measure.verdict import EXTREME_SHARE, lateness_reason, stall_reason
from metronome_cli.results.capacity_result import TrialResult
from metronome_cli.results.forecast_result import Forecast
from metronome_cli.results.listener_result import DelayVerdict
from metronome_cli.results.measured import Collapse

WARM_UP_BATCHES = 12
WARM_UP_SHARE = 0.2  # of a session, at the most, if it cannot start old: a frame may take seconds
FAIR_TRIAL_BATCHES = 150  # before a trial is given up: enough to refute a number that is plainly too large
EXTENSION = 3  # times its batches a trial may last if no bad frame was seen and only batches are missing
MEMORY_TRIAL_SHARE = 0.05  # of the progress bar; the memory trial takes about 5 % of a confirmation
WINDOW_S = 1.0  # or twelve periods, whichever is longer


class Admission(Protocol):
    """Decides which sessions a trial opens. With one, the trial lasts its whole length."""

    @property
    def window_s(self) -> float: ...

    @property
    def session_limit(self) -> float: ...

    def admits(self, session: SessionSpec, load: OfferedLoad) -> bool:
        """Whether that session is opened."""

    def after_window(self, counts: Counts, load: OfferedLoad) -> None:
        """A window has ended."""


@dataclass(frozen=True, slots=True)
class TrialOutcome:
    """Outcome of a trial. `result` is for the report, the rest for planning the next trial.

    `within_limits`: no objective was violated, even if there were few batches. `stalled`: the load generator stalled
    and decided the verdict, so it is worth another try. `slots`: how many sessions the server took when it rejected
    others; None: it rejected none. `failure`: of the engine. `shed`: sessions that admission declined.
    """

    result: TrialResult
    evidence: TrialEvidence
    judgements: tuple[Judgement, ...]
    within_limits: bool
    stalled: bool
    slots: int | None = None
    lateness: str | None = None
    forecast: Forecast | None = None
    failure: EngineError | None = None
    shed: int = 0


class Trial:
    """Runs one plan.

    `sessions`: those that are offered, if not the plan's number at once; `slots`: of the engine; `head`: how a load
    trace names the trial, if not as the plan does.
    """

    def __init__(
        self,
        context: TrialContext,
        plan: TrialPlan,
        admission: Admission | None = None,
        *,
        sessions: Sequence[SessionSpec] | None = None,
        slots: int | None = None,
        head: TraceTrial | None = None,
        detail: str = "",
    ) -> None:
        self.context = context
        self.plan = plan
        self.admission = admission
        self.collapse: Collapse | None = None
        churns = context.churn is not None and not plan.memory_only
        self._replaces = (
            not churns and sessions is None and plan.ages == "spread" and context.backend.traits.sets_age
        )
        self._sessions = self._planned() if sessions is None else sessions
        self.load: OfferedLoad = context.open_load(
            slots or max(plan.sessions, most_at_once(self._sessions) if churns else 0),
            head or plan.head,
            self._sessions,
            admit_all if admission is None else lambda session: admission.admits(session, self.load),
        )
        self.windows = Windows(context, self.load, plan.purpose, detail or plural(plan.sessions, "session"))

    def _planned(self) -> Sequence[SessionSpec]:
        length_s, count, plan = self.context.session_length_s, self.plan.sessions, self.plan
        if self.context.churn is not None and not plan.memory_only:
            return list(self.context.churn.sessions(count, plan.length_s or length_s, self.context.seed))
        if not self.context.backend.traits.sets_age:
            return list(at_once([0.0] * count, plan.length_s or length_s))
        if plan.ages == "spread":
            return list(at_once(spread_ages(count, length_s), length_s))
        last_s = plan.length_s if plan.ages == "end" and plan.length_s is not None else length_s
        return list(at_once([max(0.0, length_s - last_s)] * count, length_s))

    def run(self, into: list[TrialResult]) -> TrialOutcome:
        """The outcome, its result added to `into` and published.

        Raises EngineError after that if the engine failed, except for lack of device memory: fewer sessions may fit.
        """
        outcome = self.measure()
        into.append(outcome.result)
        self.context.observer.event("trial", outcome.result.model_dump(mode="json"))
        if outcome.failure is not None and not isinstance(outcome.failure, DeviceMemoryError):
            raise outcome.failure
        return outcome

    def measure(self) -> TrialOutcome:
        """The outcome; nothing is published. A failing engine ends the trial with what was measured until then."""
        failure = gone = None
        try:
            self._drive()
        except EngineError as error:
            failure = error
        except BaseException:
            self.load.close()
            raise
        end_s = self._now_s
        try:
            self.load.close()
        except EngineError as error:
            gone = error
        self.load.recorder.close(end_s)
        self.context.trace_recorder.end(min(end_s, self.plan.length_s or math.inf))
        if self.context.stop():  # an interrupt also interrupts the engine: that is no failure of it
            failure = gone = None
        return self._outcome(end_s, failure, gone)

    @property
    def _now_s(self) -> float:
        return self.load.run.clock.now()

    # -- until it ends -------------------------------------------------------------------------------------------

    def _drive(self) -> None:
        self.load.begin()
        if self.admission is None:
            self._warm_up()
        while not self.context.stop() and not self._finished():
            self.load.run_until(self._window_end_s())
            self._close_window()
            self._look_for_collapse()
            if self._replaces:  # before it is asked whether any session is open
                self.load.replace_finished(self.context.session_length_s)

    def _close_window(self) -> None:
        if self.admission is not None:
            self.windows.session_limit = self.admission.session_limit
        counts, _ = self.windows.close(self._progress())
        if self.admission is not None:
            self.admission.after_window(counts, self.load)

    def _window_end_s(self) -> float:
        window_s = max(WINDOW_S, 12 * self.context.period_s)
        ahead_s = self._now_s + (window_s if self.admission is None else self.admission.window_s)
        length_s = self.plan.length_s
        return ahead_s if length_s is None or self._now_s >= length_s else min(ahead_s, length_s)

    def _warm_up(self) -> None:
        recorder, until_s = self.load.recorder, self._now_s
        while recorder.total.batches < self._warm_up_batches and len(self.load) and not self.context.stop():
            if self.load.run.stats().generator_lost is not None:
                return
            if self.context.backend.traits.batch == "period" and until_s >= self._quiet_warm_up_s:
                break  # a model that listens owes no frames
            until_s = max(until_s, self._now_s) + self.context.period_s
            self.load.run_until(until_s)
        left_out = not recorder.lost and not self.load.run.stats().blocked
        self.windows.close(self._progress(), warm_up=left_out)
        if left_out:
            recorder.reset()

    @property
    def _warm_up_batches(self) -> int:
        if self.context.backend.traits.sets_age:
            return WARM_UP_BATCHES
        length_s = self.plan.length_s or self.context.session_length_s
        return min(WARM_UP_BATCHES, max(1, int(WARM_UP_SHARE * length_s / self.context.period_s)))

    @property
    def _quiet_warm_up_s(self) -> float:
        """How long warm-up lasts at most if no frames are owed."""
        return 2 * self._warm_up_batches * self.context.period_s

    def _finished(self) -> bool:
        plan, now_s, recorder, stats = self.plan, self._now_s, self.load.recorder, self.load.run.stats()
        if stats.generator_lost is not None or recorder.ended["generator_error"]:
            return True
        if not len(self.load) and self.load.next_s > (plan.length_s or math.inf) - 1e-9:
            return True
        if plan.length_s is not None and now_s >= plan.length_s and self._cut_at_length:
            return True
        if self.admission is not None:
            return False
        if stats.blocked and stats.pool_full_s is not None:
            return plan.screening or now_s - stats.pool_full_s > self._recovery_s
        if self.collapse is not None and now_s - (self.collapse.last_output_s or 0.0) > self._recovery_s:
            return True
        if self._batches_spent():
            return True
        if plan.until == "end":
            return False
        if self._seen.lost or stall_reason(recorder) is not None:
            return True
        return self._settled() or self._cannot_pass()

    @property
    def _cut_at_length(self) -> bool:
        """Whether the plan's length ends the trial. Streaming sessions that live as long end by themselves."""
        if self.context.backend.traits.batch == "step" or self.admission is not None:
            return True
        return any(session.lifetime_s > (self.plan.length_s or math.inf) for session in self._sessions)

    @property
    def _recovery_s(self) -> float:
        """How long a full pool or a silence is watched: a collapse that lasts three timeouts does not recover."""
        return 3 * silence_timeout_s(self.context.period_s)

    def _batches_spent(self) -> bool:
        """Whether the plan allows no more batches. Without a bad frame it may last until enough batches are counted."""
        most, batches = self.plan.max_batches, self.load.recorder.total.batches
        if most is None or batches < most:
            return False
        if self.plan.until == "end":
            return True
        judgements = self._judgements
        clean = not any(j.bad or j.verdict == "fail" for j in judgements)
        missing = max((j.batches_missing for j in judgements), default=0)
        enough = most >= self.context.batches_to_prove and batches + missing <= EXTENSION * most
        return not (clean and missing and enough)

    def _settled(self) -> bool:
        judgements = self._judgements
        if any(judgement.verdict == "fail" for judgement in judgements):
            return True
        enough = self.load.recorder.total.batches >= batches_needed(EXTREME_SHARE, self.context.confidence)
        enough = enough and self._now_s >= self.plan.least_s
        return enough and self.plan.length_s is None and all(j.verdict == "pass" for j in judgements)

    def _cannot_pass(self) -> bool:
        """Whether there are so many bad frames that too few batches are left to make up for them."""
        most, batches = self.plan.max_batches, self.load.recorder.total.batches
        if most is None or batches < FAIR_TRIAL_BATCHES or most < self.context.batches_to_prove:
            return False
        return any(j.bad and batches + j.batches_missing > most for j in self._judgements)

    def _progress(self) -> PhaseProgress:
        plan, batches = self.plan, self.load.recorder.total.batches
        if plan.length_s is not None:
            done = time_done(self._now_s, plan.length_s)
            return (
                replace(done, share=1 - MEMORY_TRIAL_SHARE * (1 - done.share)) if plan.memory_only else done
            )
        needed = batches + max((j.batches_missing for j in self._judgements), default=0)
        done = steps_done(batches, min(needed, plan.max_batches or needed))
        return replace(done, share=done.share * (1 - MEMORY_TRIAL_SHARE))  # what comes after it

    def _look_for_collapse(self) -> None:
        recorder = self.load.recorder
        gave_up = bool(recorder.started) and recorder.ended["no_output"] == recorder.started
        if self.collapse is None and (recorder.collapsed(self._now_s) or gave_up):
            self.collapse = collapse_result(recorder, self.load.run.stats())
            whose = {} if self.admission is None else {"policy_run": self.plan.purpose}
            self.context.observer.event("collapse", {**whose, **self.collapse.model_dump()})

    # -- result --------------------------------------------------------------------------------------------------

    @property
    def _seen(self) -> Seen:
        context = self.context
        return Seen(
            self.plan,
            context.backend.traits,
            self.load.recorder,
            self.load.run.stats(),
            context.objectives,
            context.confidence,
            self.load.rejected,
            self.collapse,
        )

    @property
    def _judgements(self) -> list[Judgement]:
        return self._seen.judgements

    def _outcome(self, end_s: float, failure: EngineError | None, gone: EngineError | None) -> TrialOutcome:
        context, plan, recorder, seen = self.context, self.plan, self.load.recorder, self._seen
        judgements, stats, traits = seen.judgements, seen.stats, context.backend.traits
        ended_by, limit = classify(seen)
        verdict, reason = verdict_of(seen, ended_by, limit)
        if failure is not None:
            verdict, reason, ended_by = "fail", failure.message, "backend_error"
            limit = "memory" if isinstance(failure, DeviceMemoryError) else "none"
        elif context.stop():
            ended_by = "interrupted"
            if verdict == "pass":
                verdict, reason = "inconclusive", "interrupted"
        result = TrialResult(
            **trial_counts(recorder, judgements),
            sessions=plan.sessions,
            verdict=verdict,
            reason=reason,
            limited_by="none" if verdict == "pass" else limit,
            ended_by=ended_by,
            purpose=plan.purpose,
            policy=traits.policy or context.profile.policy,
            duration_s=end_s,
            occupancy_max=stats.occupancy_max,
            pool_full_at_s=stats.pool_full_s,
            preemptions=stats.preemptions or 0,
            recomputed_tokens=stats.recomputed_tokens,
            collapse=self.collapse,
            windows=self.windows.windows,
            windows_merged=self.windows.timeline.each,
            network=network_stats(recorder, stats),
            occupancy=occupancy_series(stats),
            canary=canary(recorder.listener, context.canary),
            misbehaved=misbehaved(recorder.misbehaved),
            **heard_results(recorder.listener, self._at_other_delays(seen)),
        )
        return TrialOutcome(
            result=result,
            evidence=recorder.evidence(plan.sessions),
            judgements=tuple(judgements),
            within_limits=verdict != "fail" and all(judgement.promising for judgement in judgements),
            stalled=stall_reason(recorder) is not None and verdict == "inconclusive",
            slots=self._slots(seen),
            lateness=lateness_reason(recorder),
            forecast=self._forecast(seen),
            failure=failure or gone,
            shed=self.load.shed,
        )

    def _at_other_delays(self, seen: Seen) -> list[DelayVerdict]:
        """The verdict under each further playback delay."""
        found = []
        for delay_s in self.context.playback_delays_s[1:]:
            at_delay = replace(seen, delay_s=delay_s)
            verdict, _ = verdict_of(at_delay, *classify(at_delay))
            found.append(DelayVerdict(delay_ms=delay_s * 1e3, verdict=verdict))
        return found

    def _slots(self, seen: Seen) -> int | None:
        """How many sessions a server took when it rejected others, unless its pool was full."""
        if seen.traits.fresh_engine or seen.stats.pool_full_s is not None or not self.load.rejections:
            return None
        return seen.recorder.started or None

    def _forecast(self, seen: Seen) -> Forecast | None:
        """Return the forecast of the fill time from the occupancy; None without occupancy."""
        stats, sessions = seen.stats, self.plan.sessions
        found = forecast_of(
            stats.occupancy, stats.pool_full_s, sessions, self.context.session_length_s, stats.server
        )
        if found is None or seen.traits.server_reported:
            return found
        return found.model_copy(update={"source": "trace"})
