"""`probe`: from settings to a report of what a frame costs."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from metronome_cli.audio.open_audio import open_audio
from metronome_cli.backends.in_process.loading import load_model
from metronome_cli.config.cache_groups import DTYPE_BYTES
from metronome_cli.core.errors import EngineError
from metronome_cli.core.formatting import percent
from metronome_cli.core.formatting import sessions as sessions_words
from metronome_cli.core.quantities import format_duration
from metronome_cli.core.stop import LoadInterrupted, StopRequest
from metronome_cli.forecast.memory import decoder_parameters
from metronome_cli.probe.latency_grid import GridCell, LatencyGrid, LatencyProbe, PolicyCostFit
from metronome_cli.results.events import Observer, ObserverGroup
from metronome_cli.results.latency_result import (
    DeadlineLimit,
    DevicePeaksResult,
    GridCellResult,
    PolicyCost,
    ProbeResult,
)
from metronome_cli.results.probe_draft import NOT_LOADED, ProbeDraft
from metronome_cli.results.run_report import Report

if TYPE_CHECKING:
    from metronome_cli.backends.in_process.engine import InProcessModel
    from metronome_cli.engine.device_peaks import DevicePeaks


BUSY = 0.1  # relative standard error of a point's median


@dataclass(frozen=True, slots=True)
class LatencyProbePlan:
    """What `probe latency` runs. `weights`: a checkpoint directory, None for random."""

    grid: LatencyGrid
    audio: tuple[Path, ...] = ()
    device: str = "auto"
    weights: Path | None = None
    argv: tuple[str, ...] = ()
    settings: dict[str, object] | None = None


def run_probe(
    run: LatencyProbePlan, observer: Observer | None = None, stop: StopRequest | None = None
) -> Report:
    """The cost surface of one frame step. What was measured before an engine fault stays in the report."""
    observer, stop = observer or ObserverGroup(), stop or StopRequest()
    grid = run.grid
    draft = ProbeDraft(grid.profile, grid.seed, run.argv, run.settings)
    streams, audio = open_audio(run.audio, grid.profile.frame, grid.seed, observer)
    observer.phase("load", f"loading {grid.profile.name}")
    try:
        with stop.during_load():
            model = load_model(
                grid.profile, device=run.device, seed=grid.seed, weights=run.weights, observer=observer
            )
    except LoadInterrupted:
        return draft.report(NOT_LOADED, ProbeResult(kind="latency"), audio=audio, stop=stop)
    limits = _measured_limits(model, observer)
    random = model.loaded.weights == "random"
    probe = LatencyProbe(grid, model.fresh_engine, streams, observer, stop, random_weights=random)
    error: str | None = None
    surfaces: Sequence[PolicyCostFit] = ()
    observer.phase("probe", f"{len(probe.points)} points, {grid.rounds} rounds")
    try:
        surfaces = probe.run()
    except EngineError as fault:
        error = fault.message
        surfaces = probe.surfaces()
    if not stop() and error is None:
        limits = limits.best(_measured_limits(model, observer))
    part = probe_part(grid, probe.points, surfaces, limits)
    answer = summarize_latency(grid, part)
    return draft.report(answer, part, weights=model.loaded.weights, audio=audio, stop=stop, error=error)


def _measured_limits(model: InProcessModel, observer: Observer) -> DevicePeaks:
    from metronome_cli.engine.device_peaks import measure_limits

    observer.phase("limits", "measuring this device's bandwidth and compute")
    return measure_limits(*model.placement)


def probe_part(
    grid: LatencyGrid,
    points: Sequence[GridCell],
    surfaces: Sequence[PolicyCostFit],
    limits: DevicePeaks | None,
) -> ProbeResult:
    """The report's part from what was measured."""
    return ProbeResult(
        kind="latency",
        cells=[_cell(point) for point in points],
        policies=[_policy(grid, surface) for surface in surfaces],
        device_peaks=_limits(grid, points, limits) if limits is not None else None,
        time_breakdown=_movers(points, surfaces),
    )


def _cell(point: GridCell) -> GridCellResult:
    return GridCellResult(
        policy=str(point.policy),
        sessions=point.sessions,
        age_s=point.age_s,
        resident_tokens=point.resident,
        steps=len(point.step_s),
        median_ms=None if point.median_s is None else point.median_s * 1e3,
        median_relative_error=point.noise if point.step_s else None,
        stages_ms=point.stages_ms(),
        skipped=point.skipped,
    )


def _policy(grid: LatencyGrid, seen: PolicyCostFit) -> PolicyCost:
    surface, slope = seen.surface, seen.slope
    if surface is None:
        return PolicyCost(policy=str(seen.policy))
    measured = {point.age_s: point.resident for point in seen.points if point.step_s}
    largest = max(point.sessions for point in seen.points if point.step_s)
    limits = []
    for age_s, resident in measured.items():
        within = surface.sessions_within(grid.profile.frame.deadline_s, resident)
        beyond = within is None or within > largest
        limits.append(DeadlineLimit(age_s=age_s, sessions=within, extrapolated=beyond))
    return PolicyCost(
        policy=str(seen.policy),
        fixed_ms=surface.fixed_s * 1e3,
        per_session_ms=surface.per_session_s * 1e3,
        per_1000_tokens_ms=surface.per_token_s * 1e6,
        fit_relative_rmse=surface.spread,
        age_ratio=slope.ratio if slope else None,
        age_ratio_low=slope.low if slope else None,
        age_ratio_high=slope.high if slope else None,
        age_independent=slope.flat if slope else None,
        deadline_limits=limits,
    )


def _limits(grid: LatencyGrid, points: Sequence[GridCell], limits: DevicePeaks) -> DevicePeaksResult:
    profile = grid.profile
    shape = profile.shape
    parameters = (
        shape.parameters or decoder_parameters(profile) - shape.need("vocab_size") * shape.hidden_size
    )  # less the embedding
    weight_bytes = parameters * DTYPE_BYTES[profile.shape.dtype]
    measured = [point for point in points if point.step_s and point.policy == grid.policies[0]]
    smallest = min(measured, key=lambda p: p.sessions, default=None)
    largest = max(measured, key=lambda p: p.sessions, default=None)
    share = profile.turn_taking.speaking_share
    passes = max(1.0, (profile.tokens.decode.speaking + profile.tokens.decode.listening) / 2)
    floor_s = weight_bytes / limits.bytes_per_s
    tokens = profile.tokens.per_frame(True) * share + profile.tokens.per_frame(False) * (1 - share)
    return DevicePeaksResult(
        bytes_per_s=limits.bytes_per_s,
        flops_per_s=limits.flops_per_s,
        weight_bytes=weight_bytes,
        weight_read_floor_ms=floor_s * 1e3,
        share_of_bandwidth=_share(smallest, lambda p: passes * floor_s)
        if smallest and smallest.sessions == 1
        else None,
        share_of_compute=_share(largest, lambda p: 2 * parameters * p.sessions * tokens / limits.flops_per_s),
    )


def _share(point: GridCell | None, least_s: Callable[[GridCell], float]) -> float | None:
    """The least time of the decoder's passes over the time that they took."""
    if point is None:
        return None
    took_s = sum(point.stages_s.get(stage, 0.0) for stage in ("prefill", "decode")) / len(point.step_s)
    return least_s(point) / took_s if took_s > 0 else None


def _movers(points: Sequence[GridCell], surfaces: Sequence[PolicyCostFit]) -> list[str]:
    """Shares of the largest measured step of the first policy: what to shrink to make it faster."""
    surface = next((s for s in surfaces if s.surface is not None), None)
    if surface is None or surface.surface is None:
        return []
    point = max((p for p in surface.points if p.step_s), key=lambda p: (p.sessions, p.age_s))
    mean_s, fitted = statistics.fmean(point.step_s), surface.surface
    encode_s = point.stages_s.get("encode", 0.0) / len(point.step_s)
    staged_s = sum(point.stages_s.values()) / len(point.step_s)
    shares = {
        "encoder": encode_s / mean_s,
        "weights and launches, paid once a step": fitted.fixed_s / mean_s,
        "attention over the resident cache": point.sessions * point.resident * fitted.per_token_s / mean_s,
        "host overhead outside the stages": (mean_s - staged_s) / mean_s,
    }
    shares["each session's own products"] = max(0.0, 1 - sum(shares.values()))
    ordered = sorted(shares.items(), key=lambda item: -item[1])
    return [f"{name}: {share:.0%}".replace("%", " %") for name, share in ordered]


def summarize_latency(grid: LatencyGrid, probe: ProbeResult) -> str:
    """Return the summary of `probe latency`."""
    said = [_of_policy(grid, cost) for cost in probe.policies]
    return " ".join([*said, *_busy(probe.cells)]) or "Nothing was measured."


def _busy(cells: Sequence[GridCellResult]) -> Iterator[str]:
    """Return a warning if the steps of a point varied as much as they do only beside other programs."""
    noises = [cell.median_relative_error for cell in cells if cell.median_relative_error is not None]
    if noises and (noise := statistics.median(noises)) > BUSY:
        yield f"Medians are unsure by {percent(noise)}: the machine was busy, and a quiet one is faster."


def _of_policy(grid: LatencyGrid, cost: PolicyCost) -> str:
    if cost.fixed_ms is None or not cost.deadline_limits:
        return f"{cost.policy}: too few points for a fit."
    oldest = max(cost.deadline_limits, key=lambda limit: limit.age_s)
    reading = {True: "flat in age", False: "grows with age", None: "seen at one age only"}[
        cost.age_independent
    ]
    ratio = ""
    if cost.age_ratio is not None:
        reading = "not clear whether it grows with age" if cost.age_independent is None else reading
        ratio = f" (x{cost.age_ratio:.2f}, {cost.age_ratio_low:.2f} to {cost.age_ratio_high:.2f})"
    age, deadline = format_duration(oldest.age_s), format_duration(grid.profile.frame.deadline_s)
    return f"{cost.policy}: {reading}{ratio}; at {age} {_fits(oldest, deadline)}."


def _fits(limit: DeadlineLimit, deadline: str) -> str:
    if limit.sessions == 0:
        return f"not even one session's step fits {deadline}"
    many = "any number of sessions" if limit.sessions is None else sessions_words(limit.sessions)
    return f"a step fits {deadline} with {many}{', extrapolated' if limit.extrapolated else ''}"
