"""`probe latency`: what one frame step costs, by batch size, session age and policy.

Every point is a fresh engine whose sessions are opened at the age at once, their blocks filled, and whose frames all
come due together: the step is timed whole, from the batch's start to its last token, with its stages. Warm-up steps
are left out. Ages of one batch and policy take turns, step by step, and batches and policies are visited round by
round, so that a slow spell of the machine falls on all alike; a point's cost is the median of all its steps, and
whether it grows with age is read from steps that were neighbours. Ages that the pool could not hold are probed on a
pool as large as they need, up to a memory bound. On a slow machine rounds are left out once the time is up; every
point keeps at least its first.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from metronome_cli.backends.in_process.backend import EngineFactory
from metronome_cli.backends.step_engine import StepEngine
from metronome_cli.config.cache_policy import CachePolicySpec
from metronome_cli.config.model_shape import KvPoolSpec
from metronome_cli.config.profile import Profile
from metronome_cli.core.quantities import format_duration
from metronome_cli.core.session import AudioSource
from metronome_cli.core.stop import StopRequest
from metronome_cli.core.types import FrameInput, SessionRefused
from metronome_cli.measure.cost_surface import AgeSlope, CostPoint, CostSurface, fit, slope
from metronome_cli.results.events import Observer, progress_only

WARM_UP = 2
DEFAULT_BATCHES = (1, 8, 32)
DEFAULT_AGES_S = (60.0, 600.0, 3600.0)
MEMORY_BOUND = 2**30  # bytes of KV that one point may take
GROUP_BOUND = 2 * MEMORY_BOUND  # and those that take turns with it
BUDGET_S = 40.0  # no further round after that
VISIT_S = 4.0  # no further step of a visit after that, beyond `LEAST_STEPS`
LEAST_STEPS = 2


@dataclass(frozen=True, slots=True)
class LatencyGrid:
    """The grid: batch sizes x ages (s) x policies; `steps` timed steps a point in `rounds` visits."""

    profile: Profile
    policies: tuple[CachePolicySpec, ...]
    batches: tuple[int, ...] = DEFAULT_BATCHES
    ages_s: tuple[float, ...] = DEFAULT_AGES_S
    steps: int = 15
    rounds: int = 3
    memory_bound: int = MEMORY_BOUND
    budget_s: float = BUDGET_S
    seed: int = 0


@dataclass(slots=True)
class GridCell:
    """One cell of the grid, measured or with the reason why not."""

    policy: CachePolicySpec
    sessions: int
    age_s: float
    resident: int
    step_s: list[float] = field(default_factory=list)
    stages_s: dict[str, float] = field(default_factory=dict)  # summed over the steps
    skipped: str | None = None

    @property
    def median_s(self) -> float | None:
        return statistics.median(self.step_s) if self.step_s else None

    @property
    def noise(self) -> float:
        """Relative standard error of the median, from the quartiles: 0.93 IQR / (median sqrt(n))."""
        if len(self.step_s) < 4 or not statistics.median(self.step_s):
            return 0.0
        low, middle, high = statistics.quantiles(self.step_s, n=4)
        return float(0.93 * (high - low) / middle / len(self.step_s) ** 0.5)

    def stages_ms(self) -> dict[str, float]:
        """Mean milliseconds a step in each stage."""
        return {k: v * 1e3 / len(self.step_s) for k, v in self.stages_s.items()} if self.step_s else {}


@dataclass(frozen=True, slots=True)
class PolicyCostFit:
    """Measurements of one policy."""

    policy: CachePolicySpec
    points: Sequence[GridCell]
    surface: CostSurface | None
    slope: AgeSlope | None


class LatencyProbe:
    """Measures the grid. `points` fills as it goes, so an interrupted probe keeps what it has."""

    def __init__(
        self,
        plan: LatencyGrid,
        make_target: EngineFactory,
        streams: AudioSource,
        observer: Observer,
        stop: StopRequest,
        *,
        random_weights: bool = True,
    ) -> None:
        self.plan = plan
        self.observer = observer
        self.stop = stop
        self._make_target = make_target
        self._streams = streams
        self._random_weights = random_weights
        self.points = [self._cell(*cell) for cell in self._grid()]

    def _grid(self) -> Iterator[tuple[CachePolicySpec, int, float]]:
        for policy in self.plan.policies:
            for sessions in self.plan.batches:
                for age_s in self.plan.ages_s:
                    yield policy, sessions, age_s

    def _cell(self, policy: CachePolicySpec, sessions: int, age_s: float) -> GridCell:
        profile = self.plan.profile
        seen = profile.positions_at(age_s)
        point = GridCell(policy, sessions, age_s, policy.resident_tokens(seen))
        needed = self.cache_bytes(point)
        if policy.kind == "unbounded" and seen > profile.shape.need("context_length"):
            point.skipped = (
                f"{seen:,} tokens are beyond the model's context of {profile.shape.need('context_length'):,}"
            )
        elif needed > self.plan.memory_bound:
            point.skipped = f"its cache needs {needed / 2**30:.1f} GiB, more than the bound"
        return point

    def pool_of(self, point: GridCell) -> KvPoolSpec:
        """A pool that holds the point's sessions and no more than they need."""
        profile = self.plan.profile
        block_tokens = profile.kv_pool.block_size if profile.kv_pool else 16
        each = -(-point.resident // block_tokens) + 8
        return KvPoolSpec(blocks=point.sessions * each, block_size=block_tokens)

    def cache_bytes(self, point: GridCell) -> int:
        """What the caches of a point's sessions take, with room for the steps."""
        return point.sessions * (point.resident + 64) * self.plan.profile.shape.kv_bytes_per_token

    def run(self) -> list[PolicyCostFit]:
        """Every cell, round by round; then the fit of each policy."""
        groups = [group for group in self.groups() if group]
        visits, began_s = self.plan.rounds * len(groups), time.perf_counter()
        for visit in range(visits):
            elapsed_s = time.perf_counter() - began_s
            if self.stop() or (visit >= len(groups) and elapsed_s > self.plan.budget_s):
                break
            group = groups[visit % len(groups)]
            self._tell(visit, visits, group, elapsed_s)
            self._visit(group, -(-self.plan.steps // self.plan.rounds))
            for cell in group:
                self._tell_cell(cell)
        return self.surfaces()

    def _tell_cell(self, cell: GridCell) -> None:
        median_s = cell.median_s
        data = {"policy": str(cell.policy), "sessions": cell.sessions, "age_s": cell.age_s}
        self.observer.event("cell", {**data, "median_ms": None if median_s is None else median_s * 1e3})

    def groups(self) -> Iterator[list[GridCell]]:
        """Points that take turns: the ages of one policy and batch, as many as memory allows at once."""
        group: list[GridCell] = []
        held = 0
        for point in self.points:
            if point.skipped is not None:
                continue
            needed = self.cache_bytes(point)
            alike = group and (group[0].policy, group[0].sessions) == (point.policy, point.sessions)
            if not alike or held + needed > GROUP_BOUND:
                yield group
                group, held = [], 0
            group.append(point)
            held += needed
        yield group

    def _tell(self, visit: int, visits: int, group: Sequence[GridCell], elapsed_s: float) -> None:
        first, ages = group[0], " and ".join(format_duration(point.age_s) for point in group)
        each = "session" if first.sessions == 1 else "sessions"
        where = f"{first.policy}, {first.sessions} {each}, {ages} old"
        done = visit / visits
        self.observer.event("probe", {"done": done, "point": where})
        self.observer.snapshot(
            progress_only(
                "probe",
                f"visit {visit + 1} of {visits}: {where}",
                elapsed_s,
                done,
                random_weights=self._random_weights,
            )
        )

    def surfaces(self) -> list[PolicyCostFit]:
        """The fit of each policy to what is measured by now."""
        return [self._surface(policy) for policy in self.plan.policies]

    def _visit(self, group: Sequence[GridCell], steps: int) -> None:
        """Run `steps` timed steps of each point, alternating between points; fewer if they are slow."""
        opened = [(point, *engine) for point in group if (engine := self._open(point)) is not None]
        began_s = time.perf_counter()
        for k in range(WARM_UP + steps):
            late = time.perf_counter() - began_s > VISIT_S
            if self.stop() or (late and k >= WARM_UP + LEAST_STEPS):
                return
            for point, target, slots in opened:
                self._time(target, point, slots, k)

    def _open(self, point: GridCell) -> tuple[StepEngine, list[int]] | None:
        """Open the point's sessions on a fresh engine; None if they do not fit."""
        if point.skipped is not None:
            return None
        target = self._make_target(self._profile(point), point.sessions)
        try:
            return target, [target.open(point.age_s) for _ in range(point.sessions)]
        except SessionRefused as refusal:
            point.skipped = str(refusal)
            return None

    def _time(self, target: StepEngine, point: GridCell, slots: Sequence[int], k: int) -> None:
        out = self.plan.profile.tokens.decode
        frames = [
            FrameInput(slot, self._streams.stream(i).frame(k), (out.speaking, out.listening)[(i + k) % 2])
            for i, slot in enumerate(slots)
        ]
        began = time.perf_counter()
        result = target.step(frames)
        seconds = time.perf_counter() - began
        if k < WARM_UP or any(outcome.waiting or outcome.ended for outcome in result.outcomes):
            return
        point.step_s.append(seconds)
        for stage, spent in result.stages_s.items():
            point.stages_s[stage] = point.stages_s.get(stage, 0.0) + spent

    def _profile(self, point: GridCell) -> Profile:
        """The profile under that policy, with the point's pool."""
        return self.plan.profile.model_copy(
            update={"policy": str(point.policy), "kv_pool": self.pool_of(point)}
        )

    def _surface(self, policy: CachePolicySpec) -> PolicyCostFit:
        points = [point for point in self.points if point.policy == policy]
        costs = [
            CostPoint(point.sessions, point.age_s, point.resident, median)
            for point in points
            if (median := point.median_s) is not None
        ]
        return PolicyCostFit(policy, points, fit(costs), _slope(points))


def _slope(points: Sequence[GridCell]) -> AgeSlope | None:
    """At the largest batch that was measured at two ages or more."""
    for sessions in sorted({point.sessions for point in points}, reverse=True):
        aged = [point for point in points if point.sessions == sessions and point.step_s]
        if len(aged) > 1:
            young, old = min(aged, key=lambda p: p.age_s), max(aged, key=lambda p: p.age_s)
            return slope(sessions, young.step_s, old.step_s)
    return None
