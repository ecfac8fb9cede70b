"""`capacity`: how many live sessions meet all objectives for the session length, and the limiting factor.

A plan in, a report out. Also the Python API:

    from metronome_cli.capacity.capacity_run import run_capacity
    from metronome_cli.capacity.plan import CapacityPlan
    report = run_capacity(CapacityPlan(profile=load_profile("default")))
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from metronome_cli import __version__
from metronome_cli.audio.open_audio import open_audio
from metronome_cli.backends.in_process.backend import InProcessBackend
from metronome_cli.backends.in_process.loading import load_model
from metronome_cli.backends.interface import Backend, BackendTraits
from metronome_cli.backends.websocket.backend import WebsocketBackend
from metronome_cli.capacity.aimd import AimdGains
from metronome_cli.capacity.canary import alone_replies
from metronome_cli.capacity.conclusion import Conclusion
from metronome_cli.capacity.context import TrialContext, batches_to_confirm
from metronome_cli.capacity.cycles import run_cycles
from metronome_cli.capacity.delay_search import search_other_delays
from metronome_cli.capacity.plan import DEFAULT_ARRIVALS_PER_S, DEFAULT_OFFERED, CapacityPlan
from metronome_cli.capacity.policy_comparison import (
    ADMISSION_GAINS,
    GUARDED,
    Offer,
    compare_policies,
    default_variants,
)
from metronome_cli.capacity.repeats import predicted_collapse, run_repeats
from metronome_cli.capacity.replay import TraceReplay, check_replayable, recorded_load
from metronome_cli.capacity.scripted_audio import open_scripted
from metronome_cli.capacity.search import Search
from metronome_cli.capacity.search_setup import search_for
from metronome_cli.capacity.summary import summarize
from metronome_cli.capacity.trace_match import KeptLoad
from metronome_cli.capacity.trial import Trial, TrialOutcome
from metronome_cli.capacity.trial_plan import TrialPlan, memory_plan
from metronome_cli.core.errors import EngineError, Status, exit_code_for
from metronome_cli.core.formatting import duration, plural
from metronome_cli.core.stop import LoadInterrupted, StopRequest
from metronome_cli.forecast.trace_forecast import with_forecast
from metronome_cli.load.script import Script
from metronome_cli.load.trace import LoopedAudio
from metronome_cli.measure.environment import environment
from metronome_cli.measure.machine_load import CpuLoadSampler
from metronome_cli.measure.stall import StallDetector
from metronome_cli.results.audio_files import AudioFiles
from metronome_cli.results.capacity_result import TrialResult
from metronome_cli.results.cycles_result import Cycles
from metronome_cli.results.events import Observer, ObserverGroup
from metronome_cli.results.forecast_result import Forecast
from metronome_cli.results.load_generator import generator_of
from metronome_cli.results.policy_runs import PolicyRun, RepeatSeries
from metronome_cli.results.run_report import Report

DELAYS_TIME_S = 60.0  # of a search, if none is given: twice that ends the search at further playback delays
Builder = Callable[[CapacityPlan, Observer], Backend]  # loads or reaches the system under test


def build_in_process(plan: CapacityPlan, observer: Observer) -> Backend:
    """Load the engine of this process; its model is loaded once for all trials."""
    model = load_model(
        plan.profile, device=plan.device, seed=plan.seed, weights=plan.weights, observer=observer
    )
    return InProcessBackend(model.fresh_engine, plan.profile)


def run_capacity(
    plan: CapacityPlan,
    observer: Observer | None = None,
    stop: StopRequest | None = None,
    build: Builder = build_in_process,
    traits: BackendTraits = InProcessBackend.traits,
) -> Report:
    """Run a plan on the backend that `build` makes. Raises UsageError for bad input before anything is measured; later
    faults are in the report.
    """
    return CapacityRun(plan, observer or ObserverGroup(), stop or StopRequest(), build, traits).run()


class CapacityRun:
    """One run of one plan. A report can be made at any time."""

    def __init__(
        self,
        plan: CapacityPlan,
        observer: Observer,
        stop: StopRequest,
        build: Builder,
        traits: BackendTraits = InProcessBackend.traits,
    ) -> None:
        self.kept_load = KeptLoad(plan, observer)
        if self.kept_load.recorded is not None:
            check_replayable(self.kept_load.recorded, traits)
        plan = self.plan = self.kept_load.plan
        self.traits = traits
        self.observer = observer
        self.stop = stop
        self.points: list[TrialResult] = []
        self.policy_runs: list[PolicyRun] = []
        self.trials: list[RepeatSeries] = []
        self.search: Search | None = None
        self.replay: TraceReplay | None = None
        self.backend: Backend | None = None
        self.forecast: Forecast | None = None  # of the most informative trial about the pool
        self.error: str | None = None
        self.audio = AudioFiles()
        self.script: Script | None = None
        self.cycles: Cycles | None = None
        self.stalls = StallDetector()
        self._load = CpuLoadSampler()
        self._build = build
        self._began_s = time.perf_counter()
        self._started_at = datetime.now(UTC)

    def run(self) -> Report:
        plan = self.plan
        seed = self.kept_load.audio_seed
        if plan.script is None:
            speech, self.audio = open_audio(plan.audio, plan.profile.frame, seed, self.observer)
        else:
            speech, self.audio, self.script = open_scripted(plan, seed, self.observer)
        streams = self.kept_load.open(speech, whole_frames=self.traits.whole_frames)
        self._announce()
        try:
            with self.stalls:
                if not self.stop():
                    self._measure(streams)
        except LoadInterrupted:
            self.observer.notice("stopped while the model was loaded")
        except EngineError as error:
            if not self.stop():  # an interrupt also interrupts an engine: that is no failure of it
                self.error = error.message
                self.observer.notice(f"the engine failed: {error.message}")
        finally:
            self.kept_load.close()
        report = self.report()
        self.observer.event("report", report.model_dump(mode="json", by_alias=True))
        return report

    def _announce(self) -> None:
        partial = self.report()
        keys = (
            "argv",
            "profile",
            "environment",
            "settings",
            "started_at",
            "clock",
            "version",
            "command",
            "seed",
        )
        dumped = partial.model_dump(mode="json", by_alias=True)
        self.observer.event("run_started", {key: dumped[key] for key in keys})

    @property
    def engine(self) -> dict[str, Any]:
        """Describe the backend, as far as it is known."""
        return {} if self.backend is None else self.backend.describe()

    @property
    def weights(self) -> str | None:
        """Return the source of the weights; None before loading."""
        return None if self.backend is None else str(self.engine.get("weights", "random"))

    def _measure(self, audio: LoopedAudio) -> None:
        plan = self.plan
        self.observer.phase("load", f"loading {plan.profile.name}")
        with self.stop.during_load() if self.traits.in_this_process else nullcontext():
            self.backend = self._build(plan, self.observer)
            described = self.engine
        self.observer.event("backend_started", described)
        if self.stop():
            return
        context = self._context(self.backend, audio)
        self._tell_of_few_batches(context)
        if plan.canary:
            context = replace(context, canary=alone_replies(context, plan.length_s))
        if plan.compare or plan.guard:
            self._compare(context)
        elif self.kept_load.recorded is not None:
            self.replay = TraceReplay(context, self.kept_load.recorded, self._note)
            self.points = self.replay.points
            self.replay.run()
        elif plan.trials is not None and plan.sessions is not None:
            policies = list(dict.fromkeys([plan.profile.policy_spec, plan.bounded_policy()]))
            run_repeats(context, policies, plan.sessions, plan.trials, predicted_collapse, into=self.trials)
        elif (
            plan.cycles is not None
            and plan.sessions is not None
            and isinstance(self.backend, WebsocketBackend)
        ):
            self.cycles = run_cycles(
                context, plan.sessions, plan.cycles, plan.cycle_wait_s, self.backend.occupancy, self.points
            )
        elif plan.sessions is not None:
            self._judge_one(context, plan.sessions)
        else:
            self.search = search_for(
                context,
                plan.gains or AimdGains(),
                plan.method,
                soak=plan.soak,
                budget_s=plan.budget_s,
                into=self.points,
                note=self._note,
            )
            self.search.run()
            search_other_delays(
                context, self._single, self.points, self._began_s + 2 * (plan.budget_s or DELAYS_TIME_S)
            )

    def _context(self, backend: Backend, audio: LoopedAudio) -> TrialContext:
        """The conditions that all trials share."""
        plan = self.plan
        return TrialContext(
            backend=backend,
            profile=plan.profile,
            audio=audio,
            objectives=plan.judged_by(),
            clock=plan.clock,
            batching=plan.batching,
            session_length_s=plan.length_s,
            seed=plan.seed,
            observer=self.observer,
            stop=self.stop,
            max_sessions=plan.max_sessions,
            random_weights=self.weights == "random",
            began_s=self._began_s,
            stalls=self.stalls,
            trace_recorder=self.kept_load.recorder,
            playback_delays_s=plan.playback_delays_s,
            script=self.script,
            churn=plan.churn,
            misbehaving=plan.misbehaving,
        )

    def _note(self, outcome: TrialOutcome) -> None:
        """Keep the forecast of a trial, unless a full pool is known already: that says more than what may follow."""
        if outcome.forecast is not None and (
            self.forecast is None or self.forecast.observed_fill_time_s is None
        ):
            self.forecast = outcome.forecast

    def _tell_of_few_batches(self, context: TrialContext) -> None:
        """One session has a batch per period; if it is not replaced, those may be fewer than a proof needs."""
        plan, periods = self.plan, int(self.plan.length_s / context.period_s)
        once = self.traits.batch == "period" or plan.soak or plan.profile.policy_spec.grows
        if not plan.judges or plan.replay is not None or not once or periods >= context.batches_to_prove:
            return
        enough = duration(math.ceil(context.batches_to_prove * context.period_s))
        self.observer.notice(
            f"{duration(plan.length_s)} have {plural(periods, 'period')}, and a proof needs "
            f"{context.batches_to_prove:,} batches: trials of few sessions may be inconclusive "
            f"(--session-length {enough} avoids that)"
        )

    def _compare(self, context: TrialContext) -> None:
        plan = self.plan
        variants = (GUARDED,) if plan.guard and not plan.compare else default_variants(plan.bounded_policy())
        offer = Offer(plan.offered or DEFAULT_OFFERED, plan.arrival_rate_per_s or DEFAULT_ARRIVALS_PER_S)
        if self.kept_load.recorded is not None:
            context, offer = recorded_load(context, self.kept_load.recorded)
        compare_policies(context, variants, offer, plan.gains or ADMISSION_GAINS, into=self.policy_runs)

    def _judge_one(self, context: TrialContext, sessions: int) -> None:
        outcome = Trial(context, self._single(context, sessions)).run(into=self.points)
        self._note(outcome)
        lived_through = outcome.result.duration_s >= self.plan.length_s
        ages = self.traits.sets_age and not lived_through
        if outcome.result.verdict == "pass" and ages and not self.stop():
            memory = memory_plan(sessions, self.plan.length_s, context.period_s)
            self._note(Trial(context, memory).run(into=self.points))

    def _single(self, context: TrialContext, sessions: int) -> TrialPlan:
        """Plan the trial of one N. A growing cache is measured from its start; a bounded one with sessions of all
        ages."""
        plan = self.plan
        if plan.soak or plan.profile.policy_spec.grows or not self.traits.sets_age:
            return TrialPlan(sessions, "single", ages="start", length_s=plan.length_s, until="end")
        most = batches_to_confirm(context.batches_to_prove, plan.confirm_steps)
        return TrialPlan(sessions, "single", max_batches=most)

    # -- the report ---------------------------------------------------------------------------------------------

    def report(self) -> Report:
        """Return the report of everything known now."""
        plan, found = self.plan, self._findings()
        report = Report(
            command="capacity",
            status=found.status,
            verdict=found.verdict,
            exit_code=exit_code_for(found.status, found.verdict, signum=self.stop.signum),
            clock=plan.clock,
            started_at=self._started_at,
            duration_s=time.perf_counter() - self._began_s,
            argv=list(plan.argv),
            version=__version__,
            seed=plan.seed,
            profile=plan.profile.model_dump(mode="json"),
            environment={**environment(), "busy_cores": self._busy_cores()},
            weights=self.weights,
            settings=dict(plan.settings),
            objectives=found.objectives,
            capacity=found.capacity,
            policy_runs=self.policy_runs,
            repeats=self.trials,
            load_generator=generator_of(self.points),
            audio=self.audio,
            backend=self.engine,
            error=self.error,
        )
        report.summary = summarize(report, found.decisive)
        return with_forecast(report, self.forecast, self.traits.whose)

    def _findings(self) -> Conclusion:
        return Conclusion(
            self.plan,
            self._status(),
            self.points,
            self.policy_runs,
            self.trials,
            self.search,
            self.replay,
            self.cycles,
        )

    def _busy_cores(self) -> float | None:
        """Return the load of other processes; None if the backend is one of them."""
        return self._load.others() if self.traits.in_this_process else None

    def _status(self) -> Status:
        if self.error is not None:
            return "failed"
        return "interrupted" if self.stop() else "complete"
