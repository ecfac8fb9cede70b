"""One point over the network: N callers on one server, driven in real time until the verdict is settled, judged.

All callers are new. They knock together; when each has a seat or was turned away, all begin to speak, each at a
phase of its own. The first dozen steps are left out. A caller who was lost fails the point, for the reason that
binds: turned away or left waiting (slots), output behind (deadline), silence (empty), and memory where the server's
own metrics show a full pool.
"""

from __future__ import annotations

from collections.abc import Sequence

from metronome_cli.backends.websocket.network_counts import NOT_LOST, reasons_in_words
from metronome_cli.capacity.counted import collapse_result, trial_counts
from metronome_cli.capacity.network_stats import network_stats
from metronome_cli.capacity.point import BINDS, WARM_UP_STEPS, WINDOW_S, PointPlan
from metronome_cli.capacity.progress import PhaseProgress, steps_done, time_done
from metronome_cli.capacity.remote_lab import RemoteLab
from metronome_cli.capacity.windows import WindowReporter
from metronome_cli.core.errors import Verdict
from metronome_cli.core.formatting import format_time, plural
from metronome_cli.core.types import EndReason
from metronome_cli.forecast.trace_forecast import forecast_of
from metronome_cli.measure.judge import (
    Judgement,
    TrialEvidence,
    drift_reason,
    judge,
    lateness_reason,
    overall_verdict,
    stall_reason,
    without_timing_verdicts,
)
from metronome_cli.measure.silence import SilenceDetector, silence_timeout_s
from metronome_cli.results.capacity_result import LimitingFactor, TrialEnd, TrialResult
from metronome_cli.results.measured import Collapse
from metronome_cli.results.network_stats import NetworkStats

BUSY_SHARE = 0.5  # of a core: a process that uses less was kept from running
DEAF_SHARE = 0.25  # of the silence that ends a session or a point
_CUT_OFF: tuple[EndReason, ...] = ("connection_closed", "unreachable")
_BROKEN: tuple[EndReason, ...] = (
    "connection_closed",
    "server_error",
    "protocol_error",
    "excess_output",
    "send_blocked",
    "unreachable",
)


class RemotePointRun:
    """Runs one plan on a server and makes a report point of it."""

    def __init__(self, lab: RemoteLab, plan: PointPlan) -> None:
        self.lab = lab
        self.plan = plan
        self.driver = lab.paced(plan.head)
        self.collapse: Collapse | None = None
        self.watch = WindowReporter(lab, self.driver, plan.role, plural(plan.sessions, "session"))
        self._window_s = max(WINDOW_S, 12 * lab.period_s)
        self._patience_s = silence_timeout_s(lab.period_s)
        self._judged: list[Judgement] = []
        self._spoke_s = 0.0  # when audio began
        self._seated = 0
        self.promising = False  # nothing seen against it, however few steps there were

    def run(self, into: list[TrialResult]) -> TrialResult:
        """The point, added to `into` as well. Everybody has hung up when it is back.

        Raises EngineError after that where everybody was cut off and the server no longer answers: it is gone, which
        says nothing of fewer sessions.
        """
        try:
            self._drive()
        finally:
            self.lab.recorder.end(min(max(0.0, self.driver.clock.now() - self._spoke_s), self._most_s))
            self.driver.close()
        self._look_ahead()
        point = self._point()
        into.append(point)
        self.lab.observer.event("trial", point.model_dump(mode="json"))
        ended = self.driver.population.ended
        if sum(ended[reason] for reason in _CUT_OFF) >= self.plan.sessions and not self.lab.stop():
            self.lab.knock_again()
        return point

    def _drive(self) -> None:
        driver = self.driver
        driver.seat_all(self.plan.sessions, self._lifetime_s)
        driver.population.target.begin()
        self._spoke_s, self._seated = driver.clock.now(), len(driver.population)
        self._warm_up()
        silence = SilenceDetector(driver.ledger, self._patience_s)
        while not self.lab.stop() and not self._over():
            driver.run_until(driver.clock.now() + self._window_s)
            self.watch.close_window(self._done())
            if self.collapse is None and silence.collapsed(driver.clock.now()):
                self._fell_silent()
        if self.collapse is None and self._seated and driver.population.ended["no_output"] == self._seated:
            self._fell_silent()  # all gave up before it was called a collapse

    @property
    def _warm_up_steps(self) -> int:
        """A fifth of the session at the most: a frame may take seconds."""
        length_s = self.plan.length_s or self.lab.session_length_s
        return min(WARM_UP_STEPS, max(1, int(0.2 * length_s / self.lab.period_s)))

    def _warm_up(self) -> None:
        driver = self.driver
        while (
            driver.ledger.total.steps < self._warm_up_steps and len(driver.population) and not self.lab.stop()
        ):
            if driver.population.lost is not None:
                return
            driver.run_until(driver.clock.now() + self.lab.period_s)
        self.watch.close_window(self._done(), warm_up=not self._lost)
        self.watch.close_window(self._done(), warm_up=not self._lost)
        if not self._lost:
            fresh = self.lab.ledger()
            fresh.still_s = driver.ledger.still_s  # whose backlog is still being worked off
            fresh.last_output_s = driver.ledger.last_output_s  # none may follow
            driver.ledger = fresh

    def _over(self) -> bool:
        driver, plan = self.driver, self.plan
        total = driver.ledger.total
        if driver.population.lost is not None:
            return True
        if not len(driver.population) or (plan.settle_early and (self._lost or stall_reason(driver.ledger))):
            return True
        if self.collapse is not None:
            return driver.clock.now() - (self.collapse.last_output_s or 0.0) > 3 * self._patience_s
        if plan.max_steps is not None and total.steps >= plan.max_steps:
            return True
        if not plan.settle_early:
            return False
        self._judged = self._judgements()
        return any(j.verdict == "fail" for j in self._judged)

    @property
    def _lifetime_s(self) -> float:
        return self.plan.length_s or self.lab.session_length_s

    @property
    def _most_s(self) -> float:
        """How long they speak at the most."""
        return self._lifetime_s

    @property
    def _lost(self) -> int:
        return sum(count for reason, count in self.driver.population.ended.items() if reason not in NOT_LOST)

    def _done(self) -> PhaseProgress:
        if self.plan.max_steps is not None:
            return steps_done(self.driver.ledger.total.steps, self.plan.max_steps)
        return time_done(max(0.0, self.driver.clock.now() - self._spoke_s), self._most_s)

    def _fell_silent(self) -> None:
        self.collapse = collapse_result(self.driver)
        self.lab.observer.event("collapse", self.collapse.model_dump())

    def _judgements(self) -> list[Judgement]:
        evidence = TrialEvidence(self.driver.ledger, self.driver.occupancy_max, self.driver.lost_beat)
        return [
            judge(o, evidence, self.lab.confidence) for o in self.lab.objectives if self._can_judge(o.metric)
        ]

    def _can_judge(self, metric: str) -> bool:
        """Occupancy only where the server's metrics are scraped."""
        return metric != "occupancy" or self.driver.population.target.seen

    # -- the point ----------------------------------------------------------------------------------------------

    def _point(self) -> TrialResult:
        driver = self.driver
        judgements = self._judgements()
        late = self._generator_late()
        ended_by, binding = self._classify(judgements, late)
        verdict, reason = self._verdict(judgements, late, ended_by)
        self.promising = verdict != "fail" and all(j.promising for j in judgements)
        return TrialResult(
            **trial_counts(driver, self.watch, without_timing_verdicts(judgements, late)),
            sessions=self.plan.sessions,
            verdict=verdict,
            reason=reason,
            limited_by="none" if verdict == "pass" else binding,
            ended_by="interrupted" if self.lab.stop() else ended_by,
            purpose=self.plan.role,
            policy="the server's own",
            occupancy_max=driver.occupancy_max if driver.population.target.seen else None,
            sessions_ended_early={str(k): n for k, n in driver.population.ended.items() if k not in NOT_LOST},
            collapse=self.collapse,
            preemptions=driver.population.target.preemptions or 0,
            network=self.wire(),
        )

    def _generator_late(self) -> str | None:
        """Why the generator was the limit, and what helps; None when it was not."""
        late = lateness_reason(self.driver.ledger)
        share = self.driver.wire.cpu_share
        if late is None or share is None:
            return late
        helps = "--workers spreads callers over more" if share > BUSY_SHARE else "other work has the machine"
        return f"{late}, its busiest process using {share:.0%} of a core; {helps}"

    def _deaf(self) -> bool:
        """Whether the generator was late enough to have made a silence by not listening."""
        assert self.lab.endpoint is not None
        silence_s = min(self._patience_s, self.lab.endpoint.limits.idle_s)
        return (self.driver.wire.pacing.max_ms or 0.0) > DEAF_SHARE * silence_s * 1e3

    def _classify(self, judgements: Sequence[Judgement], late: str | None) -> tuple[TrialEnd, LimitingFactor]:
        ended = self.driver.population.ended
        if self.driver.population.lost:
            return "load_generator", "load_generator"
        stall = stall_reason(self.driver.ledger)
        failed = [j.metric for j in judgements if j.verdict == "fail"]
        if not stall and self.driver.pool_full_s is not None and self._memory_tells(failed):
            return "pool_full", "memory"
        if ended["rejected"]:  # the server's own word
            return "rejected", "slots"
        if stall:  # before all that a caller who heard nothing may have come to
            return "load_generator", "load_generator"
        if ended["queue_timeout"]:
            return "rejected", "slots"
        if any(ended[reason] for reason in _BROKEN):
            return "backend_error", "none"
        if (self.collapse is not None or ended["no_output"]) and not (late and self._deaf()):
            return "backend_error", "empty_frames"
        if late:
            return "load_generator", "load_generator"
        if self.driver.lost_beat or failed:
            return "objective_failed", "deadline" if self.driver.lost_beat else BINDS.get(
                failed[0], "deadline"
            )
        return "completed", "none"

    def _memory_tells(self, failed: Sequence[str]) -> bool:
        """Whether a full pool did harm: sessions were lost or silent, or had to give up their blocks."""
        preempted = bool(self.driver.population.target.preemptions) and bool(failed)
        return self.collapse is not None or bool(self._lost) or "empty" in failed or preempted

    def _verdict(
        self, judgements: Sequence[Judgement], late: str | None, ended_by: TrialEnd
    ) -> tuple[Verdict, str]:
        driver = self.driver
        lost = reasons_in_words(driver.population.ended, driver.wire.reasons)
        if driver.population.lost:
            return "inconclusive", f"a part of the load generator was lost: {driver.population.lost}"
        verdict, reason = overall_verdict(judgements, drift_reason(driver.ledger), late)
        if ended_by == "pool_full":
            harm = "every session fell silent" if self.collapse is not None else lost or reason
            return "fail", f"the server's KV pool was full at {format_time(driver.pool_full_s)}; {harm}"
        if ended_by == "load_generator" and late:
            return "inconclusive", late
        if lost and ended_by != "load_generator":
            return "fail", f"of {plural(self.plan.sessions, 'session')}: {lost}"
        if self.collapse is not None:
            return "fail", f"every session fell silent at {format_time(self.collapse.t_s)}"
        if self.lab.stop() and verdict == "pass":
            return "inconclusive", "interrupted"
        return verdict, reason

    def wire(self) -> NetworkStats:
        """What only sockets and the server's metrics tell."""
        population = self.driver.population
        assert self.lab.endpoint is not None
        return network_stats(self.driver.wire, population.ended, population.target, self.lab.endpoint)

    def _look_ahead(self) -> None:
        """What the server's occupancy foretells, and how many seats it has."""
        driver, lab = self.driver, self.lab
        target, ended = driver.population.target, driver.population.ended
        trace = target.trace(driver.clock, self._spoke_s)
        name = str(target.describe().get("server", ""))
        found = forecast_of(trace, driver.pool_full_s, self.plan.sessions, lab.session_length_s, name)
        lab.note_forecast(found)
        if (ended["rejected"] or ended["queue_timeout"]) and self._seated and driver.pool_full_s is None:
            lab.note_seats(self._seated)
