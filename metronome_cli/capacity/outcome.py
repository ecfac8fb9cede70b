"""Outcome of a trial from its evidence: why it ended, the limiting factor, its verdict. One table for all backends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from metronome_cli.backends.interface import BackendStats, BackendTraits
from metronome_cli.capacity.trial_plan import TrialPlan
from metronome_cli.core.errors import Verdict
from metronome_cli.core.formatting import format_time, plural
from metronome_cli.core.types import EndReason
from metronome_cli.measure.histogram import LatencyHistogram
from metronome_cli.measure.judgement import Judgement
from metronome_cli.measure.objective import Objective
from metronome_cli.measure.recorder import NOT_LOST, Recorder
from metronome_cli.measure.verdict import (
    drift_reason,
    judge_all,
    lateness_reason,
    may_have_made_late,
    overall_verdict,
    stall_reason,
)
from metronome_cli.results.capacity_result import LimitingFactor, TrialEnd
from metronome_cli.results.measured import Collapse, LatencyMs, ObjectiveResult, OccupancySeries
from metronome_cli.results.network_stats import NetworkStats, Spread

BUSY_SHARE = 0.5  # of a core; a late process that uses less was not scheduled
DEAF_SHARE = 0.25  # of the silence timeout; a later generator may have caused the silence by not reading
LATE_SEND_MS = 5.0  # a frame that is sent later than this counts as sent late
BROKEN: tuple[EndReason, ...] = (
    "connection_closed",
    "server_error",
    "protocol_error",
    "excess_output",
    "send_blocked",
    "unreachable",
)
METRIC_LIMITS: dict[str, LimitingFactor] = {
    "empty": "empty_frames",
    "occupancy": "memory",
}  # others: the deadline


@dataclass(frozen=True, slots=True)
class Seen:
    """Evidence of an outcome."""

    plan: TrialPlan
    traits: BackendTraits
    recorder: Recorder
    stats: BackendStats
    objectives: Sequence[Objective]
    confidence: float
    rejected_at_once: int = 0
    collapse: Collapse | None = None
    delay_s: float | None = None  # of playback; None: the one that is judged first

    @property
    def judgements(self) -> list[Judgement]:
        """One for each objective, listed in order; what could not be measured is inconclusive."""
        judged = judge_all(
            self.objectives, self.recorder, self.stats.occupancy_max, self.confidence, self.delay_s
        )
        if not self.deaf:
            return judged
        late = self.late or "the load generator was late"
        return [
            replace(one, verdict="inconclusive", reason=late)
            if one.metric == "empty" and one.verdict == "fail"
            else one
            for one in judged
        ]

    @property
    def late(self) -> str | None:
        """Why the load generator may have been the limit, and a remedy; None if it was not."""
        late = lateness_reason(self.recorder)
        share = None if self.stats.network is None else self.stats.network.cpu_share
        if late is None or share is None:
            return late
        helps = "use more --workers" if share > BUSY_SHARE else "other processes use the machine"
        return f"{late}, its busiest process using {share:.0%} of a core; {helps}"

    @property
    def deaf(self) -> bool:
        """True if the load generator may have caused a silence by not reading."""
        network, recorder = self.stats.network, self.recorder
        if network is None:
            return False
        silence_s = min(recorder.silence_timeout_s, network.idle_timeout_s)
        late_ms = recorder.send_lateness.max_ms or 0.0
        return stall_reason(recorder) is not None or late_ms > DEAF_SHARE * silence_s * 1e3

    @property
    def failed(self) -> list[Judgement]:
        return [judgement for judgement in self.judgements if judgement.verdict == "fail"]

    @property
    def rejected(self) -> int:
        """Sessions that the backend rejected explicitly."""
        return self.rejected_at_once + self.recorder.ended["rejected"]

    @property
    def lost(self) -> int:
        """Sessions that were lost; those that fell behind only if no objective says how many may."""
        behind = any(objective.metric == "fell_behind" for objective in self.objectives)
        return self.recorder.lost - (self.recorder.ended["fell_behind"] if behind else 0)

    @property
    def behind_by_generator(self) -> bool:
        """Whether sessions fell behind, and the load generator's own delay can explain it."""
        behind = bool(self.recorder.ended["fell_behind"]) and self.lost == self.recorder.ended["fell_behind"]
        return behind and lateness_reason(self.recorder) is not None and may_have_made_late(self.recorder)


def _generator_gone(seen: Seen) -> bool:
    return seen.stats.generator_lost is not None or bool(seen.recorder.ended["generator_error"])


def _full_pool_did_harm(seen: Seen) -> bool:
    """True if a session waited for a block, or was lost, silent or preempted while the pool was full."""
    if seen.stats.pool_full_s is None:
        return False
    if seen.stats.blocked:
        return True
    failed = [judgement.metric for judgement in seen.failed]
    preempted = bool(seen.stats.preemptions) and bool(failed)
    harm = seen.collapse is not None or bool(seen.recorder.lost) or "empty" in failed or preempted
    return harm and stall_reason(seen.recorder) is None


def _rejected_for_memory(seen: Seen) -> bool:
    return bool(seen.recorder.rejected["memory"])


def _context_filled(seen: Seen) -> bool:
    return bool(seen.recorder.ended["context_limit"])


def _rejected(seen: Seen) -> bool:
    return bool(seen.rejected)


def _stalled(seen: Seen) -> bool:
    """A stall explains lost sessions and an inconclusive verdict, but not a failure with another cause."""
    if stall_reason(seen.recorder) is None or seen.failed:
        return False
    open_ = any(judgement.verdict != "pass" for judgement in seen.judgements)
    return open_ or bool(seen.recorder.lost) or seen.collapse is not None


def _queue_timeout(seen: Seen) -> bool:
    return bool(seen.recorder.ended["queue_timeout"])


def _broken(seen: Seen) -> bool:
    return any(seen.recorder.ended[reason] for reason in BROKEN)


def _silent(seen: Seen) -> bool:
    return (seen.collapse is not None or bool(seen.recorder.ended["no_output"])) and not seen.deaf


def _late(seen: Seen) -> bool:
    """Only what the lateness could have changed is left open by it."""
    late = lateness_reason(seen.recorder)
    if late is None or seen.failed:
        return False
    silence = seen.collapse is not None or bool(seen.recorder.ended["no_output"])
    left_open = any(j.verdict == "inconclusive" and j.reason.startswith(late) for j in seen.judgements)
    return left_open or seen.behind_by_generator or (silence and seen.deaf)


def _fell_behind(seen: Seen) -> bool:
    return bool(seen.lost)


def _objective_failed(seen: Seen) -> bool:
    return bool(seen.failed)


Rule = tuple[Callable[[Seen], bool], TrialEnd, LimitingFactor]
RULES: tuple[Rule, ...] = (  # the first that applies gives the end reason and the limiting factor
    (_generator_gone, "load_generator", "load_generator"),
    (_full_pool_did_harm, "pool_full", "memory"),
    (_rejected_for_memory, "rejected", "memory"),
    (_context_filled, "context_limit", "context_length"),
    (_rejected, "rejected", "slots"),
    (_stalled, "load_generator", "load_generator"),
    (_queue_timeout, "rejected", "slots"),
    (_broken, "backend_error", "none"),
    (_silent, "backend_error", "empty_frames"),
    (_late, "load_generator", "load_generator"),
    (_fell_behind, "objective_failed", "deadline"),
    (_objective_failed, "objective_failed", "deadline"),
)


def classify(seen: Seen) -> tuple[TrialEnd, LimitingFactor]:
    """Return what ended the trial and the limiting factor."""
    for holds, ended_by, limit in RULES:
        if holds(seen):
            failed = holds is _objective_failed
            return ended_by, METRIC_LIMITS.get(seen.failed[0].metric, limit) if failed else limit
    return "completed", "none"


def verdict_of(seen: Seen, ended_by: TrialEnd, limit: LimitingFactor) -> tuple[Verdict, str]:
    """Return the verdict and its reason."""
    recorder, stats = seen.recorder, seen.stats
    lost = lost_in_words(recorder)
    if _generator_gone(seen):
        gone = stats.generator_lost
        return "inconclusive", (
            f"a part of the load generator was lost: {gone}" if gone else f"the load generator failed: {lost}"
        )
    if ended_by == "pool_full":
        return "fail", _full_pool_reason(seen, lost)
    if ended_by == "rejected" and limit == "memory":
        count = seen.rejected
        return (
            "fail",
            f"{plural(count, 'session')} {'was' if count == 1 else 'were'} rejected: the KV pool was full",
        )
    if ended_by == "context_limit":
        reached, first_s = (
            plural(recorder.ended["context_limit"], "session"),
            recorder.first_ended_s.get("context_limit"),
        )
        return "fail", f"{reached} reached the model's context limit, the first one at {format_time(first_s)}"
    if ended_by == "load_generator":
        return "inconclusive", seen.late or ""
    if seen.rejected_at_once and not lost:
        return "fail", f"of {plural(seen.plan.sessions, 'session')}: {seen.rejected_at_once} rejected"
    if seen.lost:
        return "fail", f"of {plural(seen.plan.sessions, 'session')}: {lost}"
    if seen.collapse is not None:
        return "fail", f"no session produced output at {format_time(seen.collapse.t_s)}"
    steady = seen.plan.ages == "spread" or not seen.traits.sets_age
    verdict, reason = overall_verdict(seen.judgements, drift_reason(recorder) if steady else None)
    if seen.plan.memory_only and verdict == "inconclusive" and recorder.total.batches:
        return "pass", "every session's cache fits until its end"
    return verdict, reason


def _full_pool_reason(seen: Seen, lost: str) -> str:
    stats, of_server = (
        seen.stats,
        "the server's KV" if seen.traits.server_reported else f"the {seen.stats.full_pool}",
    )
    full = f"{of_server} pool was full at {format_time(stats.pool_full_s)}"
    if seen.collapse is not None:
        return f"{full}; no session produced output"
    if stats.preemptions and not seen.traits.server_reported:
        return f"{full}: {plural(stats.preemptions, 'preemption')}"
    harm = lost or overall_verdict(seen.judgements)[1]
    return f"{full}; {harm}" if seen.traits.server_reported and harm else full


def lost_in_words(recorder: Recorder) -> str:
    """ "3 refused (HTTP 503), 1 closed (...)", the most frequent first; empty if no session was lost."""
    return ", ".join(
        f"{count} {reason}" + (f" ({recorder.details[reason]})" if recorder.details.get(reason) else "")
        for reason, count in recorder.ended.most_common()
        if reason not in NOT_LOST and count
    )


def trial_counts(recorder: Recorder, judgements: Sequence[Judgement]) -> dict[str, Any]:
    """The fields of a trial's result that are plain counts."""
    total, latency = recorder.total, recorder.total.latency
    return {
        "frames": total.frames,
        "batches": total.batches,
        "misses": total.misses,
        "late_batches": total.late_batches,
        "miss_streak": recorder.miss_streak_max,
        "sessions_fell_behind": recorder.ended["fell_behind"],
        "empty_frames": total.empty,
        "latency_ms": LatencyMs(
            p50=latency.percentile(0.5),
            p90=latency.percentile(0.9),
            p99=latency.percentile(0.99),
            p999=latency.percentile(0.999),
            max=latency.max_ms,
        ),
        "stages_ms": total.stages_ms(),
        "load_generator_lateness_ms_p99": recorder.lateness.percentile(0.99),
        "objectives": [objective_result(judgement) for judgement in judgements],
        "sessions_ended_early": {
            str(reason): count
            for reason, count in recorder.ended.items()
            if reason not in ("completed", "shed") and count
        },
    }


def objective_result(judgement: Judgement) -> ObjectiveResult:
    """Return an objective's result for the report."""
    return ObjectiveResult(
        objective=judgement.objective,
        verdict=judgement.verdict,
        measured=judgement.measured,
        limit=judgement.limit,
        unit=judgement.unit,
        confidence=judgement.confidence,
        reason=judgement.reason,
    )


def occupancy_series(stats: BackendStats) -> OccupancySeries | None:
    """The pool's occupancy in time; None if it was not seen."""
    points = list(stats.fine_occupancy)
    if not points and stats.occupancy is not None:
        points = list(zip(stats.occupancy.t_s.tolist(), stats.occupancy.occupancy.tolist(), strict=True))
    if not points:
        return None
    return OccupancySeries(
        t_s=[round(t_s, 4) for t_s, _ in points], occupancy=[round(level, 6) for _, level in points]
    )


def collapse_result(recorder: Recorder, stats: BackendStats) -> Collapse:
    """Return a collapse: since when the pool is full, and when the last output arrived."""
    pool, last = stats.pool, recorder.last_output_s
    return Collapse(
        t_s=stats.pool_full_s if stats.pool_full_s is not None else (last or 0.0),
        occupancy=pool.occupancy if pool else 0.0,
        running=pool.running if pool else 0,
        waiting=pool.waiting if pool else 0,
        last_output_s=last,
        last_output_period=None if last is None else int(last / recorder.period_s),
    )


MAX_NAMES = 50  # of messages and errors in a report


def network_stats(recorder: Recorder, stats: BackendStats) -> NetworkStats | None:
    """Return the network results for the report; None without a network."""
    network = stats.network
    if network is None:
        return None
    sent = recorder.send_lateness
    counted = bool(recorder.sent_s and recorder.received_s)
    return NetworkStats(
        session_setup_ms=_spread(recorder.setup),
        send_lateness_ms=_spread(sent),
        late_send_share=sent.above(LATE_SEND_MS) / sent.total if sent.total else None,
        workers=network.workers,
        busiest_process_cpu_share=network.cpu_share,
        server_backlog_ms=_spread(recorder.server_backlog),
        output_s_per_input_s=recorder.received_s / recorder.sent_s if counted else None,
        expected_output_s_per_input_s=1.0 if network.steady else None,
        sessions_started=recorder.started,
        sessions_rejected=recorder.ended["rejected"],
        sessions_queue_timeout=recorder.ended["queue_timeout"],
        reconnects=recorder.reconnects,
        end_reasons={str(reason): count for reason, count in recorder.ended.items() if count},
        end_details=dict(recorder.details),
        unknown_messages=dict(recorder.message_names.most_common(MAX_NAMES)),
        server_errors=dict(recorder.server_errors.most_common(MAX_NAMES)),
        silent_output_share=recorder.silent_s / recorder.sound_s if recorder.sound_s else None,
        scrapes=network.scrapes,
        failed_scrapes=network.failed_scrapes,
        preemptions=stats.preemptions,
        server_step_ms=network.server_step_ms,
    )


def _spread(histogram: LatencyHistogram) -> Spread:
    return Spread(
        p50=histogram.percentile(0.5),
        p99=histogram.percentile(0.99),
        p999=histogram.percentile(0.999),
        max=histogram.max_ms,
    )
