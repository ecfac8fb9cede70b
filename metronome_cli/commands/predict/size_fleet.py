"""`predict` for a fleet and for cards that are not at hand.

Sessions per GPU are given, or are a capacity report's N*, or are estimated for a GPU from a profile. An estimate is
marked as such and has an interval; its low end gives the number of GPUs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from metronome_cli.config.profile import Profile
from metronome_cli.core.errors import UsageError, Verdict
from metronome_cli.core.formatting import percent, plural
from metronome_cli.forecast.fleet import Fleet, FleetDemand
from metronome_cli.forecast.gpus import Gpu, device_of_limits, find_gpu, gpu_of_device
from metronome_cli.forecast.memory import DEFAULT_SHARE, MemoryPlan, WeightBytes, profile_weights
from metronome_cli.forecast.pool_forecast import DEFAULT_CONFIDENCE, ForecastQuery, max_sessions
from metronome_cli.forecast.step_time import (
    UNMEASURED,
    Efficiency,
    StepPoint,
    StepTime,
    estimate,
    measured_efficiency,
    resident_positions,
)
from metronome_cli.report.report_file import load_report
from metronome_cli.results.forecast_result import FleetPlan, GpuEstimate, Interval
from metronome_cli.results.report_draft import ReportDraft
from metronome_cli.results.run_report import Report

SHOWN_STEPS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
JUDGED_ROLES = ("screen", "confirm", "exceed", "single", "memory", "soak")


@dataclass(frozen=True, slots=True)
class GpuQuery:
    """Cards to estimate, under a profile. `measured`: a capacity or probe report that calibrates them."""

    names: tuple[str, ...]
    profile: Profile
    session_length_s: float
    measured: Path | None = None
    memory_share: float = DEFAULT_SHARE
    weights: WeightBytes | None = None
    confidence: float = DEFAULT_CONFIDENCE


@dataclass(frozen=True, slots=True)
class FleetQuery:
    """Load (`arrivals_per_s` and `mean_call_s`, or `peak_sessions`), what a GPU holds, and what is allowed.

    Of `sessions_per_gpu`, `capacity_report` and `cards` the first that is given says what a GPU holds.
    `gpus`: judge a fleet of that size.
    """

    arrivals_per_s: float | None = None
    mean_call_s: float | None = None
    peak_sessions: int | None = None
    block: float = 0.01
    headroom: float = 0.0
    gpus_per_node: int = 1
    gpus: int | None = None
    sessions_per_gpu: int | None = None
    capacity_report: Path | None = None
    cards: GpuQuery | None = None
    argv: tuple[str, ...] = ()
    settings: dict[str, Any] = field(default_factory=dict)


def predict_fleet(question: FleetQuery) -> Report:
    """Size a fleet. Raises UsageError for a load or a number of slots that is missing, given twice or impossible."""
    draft = ReportDraft(question.argv, question.settings, question.cards.profile if question.cards else None)
    estimates = estimate_cards(question.cards) if question.cards else []
    per_gpu, source = _per_gpu(question, estimates)
    fleet = Fleet(_demand(question), per_gpu, question.block, question.headroom, question.gpus_per_node)
    if fleet.slots_per_gpu < 1:
        raise UsageError(
            f"a GPU holds no session ({per_gpu} with a headroom of {percent(question.headroom)})",
            hint="less --headroom, or another card",
        )
    plan = _plan(question, fleet, source)
    return draft.report(
        _sentence(question, plan), verdict=_verdict(question, fleet), fleet=plan, gpus=estimates
    )


def predict_cards(
    cards: GpuQuery,
    argv: tuple[str, ...] = (),
    settings: dict[str, Any] | None = None,
    sessions: int | None = None,
) -> Report:
    """What each card is estimated to hold, and whether `sessions` fit. Raises UsageError for an unknown card."""
    draft = ReportDraft(argv, settings or {}, cards.profile)
    estimates = estimate_cards(cards)
    best = [f"{e.gpu} {_count(e.sessions)}" for e in estimates]
    text = f"Estimated sessions: {'; '.join(best)}."
    if sessions is None:
        return draft.report(text, gpus=estimates)
    fits = {estimate.gpu: _fits(estimate.sessions, sessions) for estimate in estimates}
    words = {"pass": "fit", "fail": "do not fit", "inconclusive": "may fit"}
    text += (
        f" {plural(sessions, 'session')} "
        + "; ".join(f"{words[how]} on {gpu}" for gpu, how in fits.items())
        + "."
    )
    best_fit = min(fits.values(), key=("pass", "inconclusive", "fail").index)
    return draft.report(text, verdict=best_fit, gpus=estimates)


def _fits(held: Interval, sessions: int) -> Verdict:
    """Pass if the low end holds them, fail if the high end does not."""
    if held.low is not None and held.low >= sessions:
        return "pass"
    return "fail" if held.high is not None and held.high < sessions else "inconclusive"


# -- the fleet -------------------------------------------------------------------------------------


def _demand(question: FleetQuery) -> FleetDemand:
    stream = (question.arrivals_per_s, question.mean_call_s)
    if question.peak_sessions is not None:
        if any(part is not None for part in stream):
            raise UsageError(
                "--peak-sessions contradicts --arrival-rate and --mean-session-length",
                hint="give one or the other",
            )
        return FleetDemand(peak=question.peak_sessions)
    if question.arrivals_per_s is None or question.mean_call_s is None:
        raise UsageError(
            "a fleet needs --arrival-rate and --mean-session-length, or --peak-sessions",
            hint="such as --arrival-rate 2.5/s --mean-session-length 4m",
        )
    if question.block == 0:
        raise UsageError(
            "--max-blocking 0: with random arrivals some sessions are always rejected",
            hint="a small share, such as 0.1%",
        )
    return FleetDemand(erlangs=question.arrivals_per_s * question.mean_call_s)


def _per_gpu(question: FleetQuery, estimates: Sequence[GpuEstimate]) -> tuple[int, str]:
    if question.sessions_per_gpu is not None and question.capacity_report is not None:
        raise UsageError("--sessions-per-gpu contradicts --capacity-report", hint="give one of them")
    if question.sessions_per_gpu is not None:
        return question.sessions_per_gpu, "as given"
    if question.capacity_report is not None and not estimates:
        capacity = load_report(question.capacity_report).capacity
        if capacity is None or capacity.safe_sessions is None:
            raise UsageError(
                f"{question.capacity_report}: no number of sessions was confirmed there",
                hint="give the report of a `metronome capacity` run that passed",
            )
        return (
            capacity.safe_sessions,
            f"measured: {question.capacity_report.name}, limited by {capacity.limited_by}",
        )
    if len(estimates) > 1:
        raise UsageError("a fleet is of one kind of GPU", hint="name one with --gpu")
    if estimates:
        low = estimates[0].sessions.low
        return int(low or 0), f"estimated for {estimates[0].gpu}, low end of the interval"
    raise UsageError(
        "the number of sessions per GPU is unknown",
        hint="give --sessions-per-gpu, --capacity-report, or --gpu with --profile",
    )


def _plan(question: FleetQuery, fleet: Fleet, source: str) -> FleetPlan:
    sizes = fleet.table()
    if question.gpus is not None and question.gpus not in {one.gpus for one in sizes}:
        sizes = sorted([*sizes, fleet.size(question.gpus)], key=lambda one: one.gpus)
    return FleetPlan(
        offered_erlangs=fleet.demand.erlangs,
        peak_sessions=fleet.demand.peak,
        sessions_per_gpu=fleet.per_gpu,
        sessions_per_gpu_source=source,
        headroom=fleet.headroom,
        gpus_per_node=fleet.gpus_per_node,
        max_blocking=fleet.target,
        gpus_needed=fleet.needed,
        gpus_with_spare_node=fleet.needed_with_spare,
        sizes=sizes,
    )


def _verdict(question: FleetQuery, fleet: Fleet) -> Verdict | None:
    if question.gpus is None:
        return None
    return "pass" if fleet.size(question.gpus).blocking <= fleet.target else "fail"


def _sentence(question: FleetQuery, plan: FleetPlan) -> str:
    load = (
        f"{plan.offered_erlangs:,.0f} erlangs"
        if plan.offered_erlangs is not None
        else f"a peak of {plural(plan.peak_sessions or 0, 'session')}"
    )
    row = next(size for size in plan.sizes if size.gpus == plan.gpus_needed)
    cards = f"{plural(plan.gpus_needed, 'GPU')} of {plural(plan.sessions_per_gpu, 'session')}"
    carry = "carries" if plan.gpus_needed == 1 else "carry"
    text = (
        f"{cards} ({plan.sessions_per_gpu_source}) {carry} {load}, {percent(row.blocking)} rejected "
        f"(allowed {percent(plan.max_blocking)}); {plan.gpus_with_spare_node:,} do with one node down."
    )
    if question.gpus is not None:
        asked = next(size for size in plan.sizes if size.gpus == question.gpus)
        text += f" With {plural(question.gpus, 'GPU')} {percent(asked.blocking)} are rejected."
    return text


# -- cards -----------------------------------------------------------------------------------------


def estimate_cards(cards: GpuQuery) -> list[GpuEstimate]:
    """One estimate a card. Raises UsageError for an unknown card or a report without step times."""
    resident = resident_positions(cards.profile, cards.session_length_s)
    efficiency = _efficiency(cards, resident)
    return [_card(cards, *find_gpu(name), resident, efficiency) for name in cards.names]


def _card(cards: GpuQuery, key: str, gpu: Gpu, resident: float, efficiency: Efficiency) -> GpuEstimate:
    step = estimate(cards.profile, gpu, resident, efficiency)
    deadline_s = cards.profile.frame.deadline_s
    by_time = [step.sessions_within(deadline_s, factor) for factor in (1.0, step.spread, 1 / step.spread)]
    by_memory = _memory_sessions(cards, gpu)
    both = [count if by_memory is None else min(count, by_memory) for count in by_time]
    return GpuEstimate(
        gpu=key,
        title=gpu.title,
        memory_bytes=gpu.memory,
        memory_sessions=by_memory,
        deadline_sessions=Interval(estimate=by_time[0], low=by_time[1], high=by_time[2]),
        sessions=Interval(estimate=both[0], low=both[1], high=both[2]),
        limited_by="memory" if by_memory is not None and by_memory <= by_time[0] else "deadline",
        step_ms=_shown_steps(step, max(1, both[0])),
        spread=step.spread,
        how=efficiency.how,
        notes=[gpu.doubt] if gpu.doubt else [],
    )


def _memory_sessions(cards: GpuQuery, gpu: Gpu) -> int | None:
    weights = cards.weights or profile_weights(cards.profile)
    block_tokens = cards.profile.kv_pool.block_size if cards.profile.kv_pool else 16
    plan = MemoryPlan(cards.profile, gpu.memory, weights, cards.memory_share, block_tokens)
    if plan.blocks(1) < 1:
        return 0
    question = ForecastQuery(
        cards.profile, 1, cards.session_length_s, plan.budget(1), confidence=cards.confidence
    )
    return max_sessions(question)


def _shown_steps(step: StepTime, most: int) -> dict[str, float]:
    counts = sorted({n for n in SHOWN_STEPS if n <= 2 * most} | {most})
    return {str(n): step.at(n) * 1e3 for n in counts}


def _efficiency(cards: GpuQuery, resident: float) -> Efficiency:
    """From a capacity or probe report, against its card's peaks; the documented default otherwise."""
    if cards.measured is None:
        return Efficiency()
    report = load_report(cards.measured)
    points = step_points(report, resident)
    if not points:
        raise UsageError(
            f"{cards.measured}: no step times in it", hint="give the report of a capacity or probe run"
        )
    device = _device_of(report)
    known = gpu_of_device(device)
    how = f"measured on {known[0] if known else device or 'its device'} in {cards.measured.name}"
    if known is not None:
        return measured_efficiency(cards.profile, known[1], points, how)
    limits = report.probe.device_peaks if report.probe else None
    if limits is None:
        raise UsageError(
            f"{cards.measured}: measured on {device or 'an unnamed device'}, which is not in the table",
            hint="give a probe report, which measures its device's limits, or none for a documented default",
        )
    own = device_of_limits(limits.bytes_per_s, limits.flops_per_s, cards.profile.shape.dtype)
    return measured_efficiency(cards.profile, own, points, f"{how}, another kind of device", UNMEASURED)


def step_points(report: Report, resident: float) -> list[StepPoint]:
    """Compute of a step in every judged point of a capacity run and every cell of a probe."""
    points = report.capacity.trials if report.capacity else []
    cells = report.probe.cells if report.probe else []
    return [
        StepPoint(p.sessions, sum(p.stages_ms.values()) / 1e3, resident)
        for p in points
        if p.purpose in JUDGED_ROLES and p.stages_ms and p.batches
    ] + [
        StepPoint(c.sessions, c.median_ms / 1e3, c.resident_tokens) for c in cells if c.median_ms is not None
    ]


def _device_of(report: Report) -> str:
    devices = report.environment.get("devices") or []
    named = [str(d.get("name", "")) for d in devices if isinstance(d, dict)]
    on_gpu = "cuda" in str(report.backend.get("device", ""))
    return (
        named[0]
        if named and on_gpu
        else str(report.backend.get("device_name", report.environment.get("cpu") or ""))
    )


def _count(sessions: Interval) -> str:
    return f"{sessions.estimate:,.0f} ({sessions.low:,.0f} to {sessions.high:,.0f})"
