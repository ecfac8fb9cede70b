"""What was counted of a run, as the report has it: the same for an engine in this process and for a server."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from metronome_cli.backends.drives import Drives
from metronome_cli.capacity.windows import WindowReporter
from metronome_cli.measure.judge import Judgement
from metronome_cli.results.measured import Collapse, LatencyMs, ObjectiveResult


def trial_counts(driver: Drives, watch: WindowReporter, judgements: Sequence[Judgement]) -> dict[str, Any]:
    """The fields of a point that are plain counts."""
    ledger, total = driver.ledger, driver.ledger.total
    return {
        "frames": total.frames,
        "batches": total.steps,
        "misses": total.misses,
        "late_batches": total.missed_steps,
        "miss_streak": ledger.worst_streak,
        "sessions_fell_behind": driver.lost_beat,
        "empty_frames": total.empty_frames,
        "duration_s": driver.clock.now(),
        "latency_ms": latency_of(driver),
        "pool_full_at_s": driver.pool_full_s,
        "load_generator_lateness_ms_p99": ledger.lateness.percentile(0.99),
        "objectives": [objective_result(judgement) for judgement in judgements],
        "windows": watch.timeline,
        "windows_merged": watch.windows.each,
    }


def collapse_result(driver: Drives) -> Collapse:
    """A collapse as it stands now: since when the pool is full, and when the last answer came."""
    pool, last = driver.population.target.pool(), driver.ledger.last_output_s
    return Collapse(
        t_s=driver.pool_full_s if driver.pool_full_s is not None else (last or 0.0),
        occupancy=pool.occupancy,
        running=pool.running,
        waiting=pool.waiting,
        last_output_s=last,
        last_output_period=None if last is None else int(last / driver.population.profile.frame.period_s),
    )


def latency_of(driver: Drives) -> LatencyMs:
    """Frame latency percentiles of the whole ledger."""
    histogram = driver.ledger.total.latency
    return LatencyMs(
        p50=histogram.percentile(0.5),
        p90=histogram.percentile(0.9),
        p99=histogram.percentile(0.99),
        p999=histogram.percentile(0.999),
        max=histogram.max_ms,
    )


def objective_result(judgement: Judgement) -> ObjectiveResult:
    """A judgement as the report has it."""
    return ObjectiveResult(
        objective=judgement.objective,
        verdict=judgement.verdict,
        measured=judgement.measured,
        limit=judgement.limit,
        unit=judgement.unit,
        confidence=judgement.confidence,
        reason=judgement.reason,
    )
