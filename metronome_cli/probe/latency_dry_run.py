"""`probe latency --dry-run`: which points would be timed, for how long, and in how much memory. Loads no
model, and of the recordings only the first that is usable.

No further round begins after the budget, and a visit ends after `VISIT_S`, so both bound the duration; the first
round is always finished. Left out: loading the model, and steps so slow that the few which a visit keeps take longer.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import NoReturn

from metronome_cli.audio.open_audio import check_audio
from metronome_cli.backends.memory_check import MemoryEstimate, memory_of
from metronome_cli.config.profile import Profile
from metronome_cli.core.formatting import plural
from metronome_cli.core.quantities import format_duration, format_size
from metronome_cli.core.stop import StopRequest
from metronome_cli.core.strict_json import dumps
from metronome_cli.probe.latency_grid import VISIT_S, GridCell, LatencyProbe
from metronome_cli.probe.latency_report import LatencyProbePlan
from metronome_cli.results.events import ObserverGroup

SCHEMA = "metronome.probe-plan/1"


@dataclass(frozen=True, slots=True)
class ProbeDryRun:
    """Dry run of a probe. `skipped`: points that would not be timed, each with its reason."""

    profile: str
    policies: tuple[str, ...]
    batches: tuple[int, ...]
    ages_s: tuple[float, ...]
    points: int
    steps: int
    rounds: int
    skipped: tuple[str, ...]
    device: str
    weights: str
    seed: int
    audio: tuple[str, ...]
    most_s: float
    pools: int  # bytes of the caches that are held at the same time, at their most
    memory: MemoryEstimate

    @property
    def memory_total(self) -> int:
        return self.memory.weights + self.memory.activations + self.memory.session_state + self.pools

    def as_json(self) -> str:
        """One object; seconds and bytes."""
        data = asdict(self) | {"memory_total": self.memory_total}
        return dumps({"schema": SCHEMA, **data}, indent=2)

    def as_text(self) -> str:
        """For people."""
        ages = ", ".join(map(format_duration, self.ages_s))
        rows = [
            (
                "does",
                f"times {plural(self.points, 'point')}, {plural(self.steps, 'step')} each, in "
                f"{plural(self.rounds, 'round')}",
            ),
            ("profile", f"{self.profile}, {self.weights} weights, device {self.device}, seed {self.seed}"),
            ("policies", ", ".join(self.policies)),
            ("sessions", ", ".join(map(str, self.batches))),
            ("ages", ages),
            *(("left out", text) for text in self.skipped),
            ("audio", ", ".join(self.audio) or "the sample audio"),
            ("duration", self._duration()),
            ("weights", f"{format_size(self.memory.weights)} ({self.memory.weights_how})"),
            ("KV pools", f"{format_size(self.pools)} at once"),
            (
                "activations",
                f"{format_size(self.memory.activations)}, one step of {plural(self.memory.sessions, 'session')}",
            ),
            ("memory", f"about {format_size(self.memory_total)}, and the program itself"),
        ]
        lines = [f"{name:<11}  {text}" for name, text in rows]
        return "\n".join([*lines, "", "Dry run: no model was loaded and nothing was measured."])

    def _duration(self) -> str:
        if not self.points:
            return "none: no point would be timed"
        return f"up to {format_duration(self.most_s)} of real time, and loading"


def outline_probe(run: LatencyProbePlan) -> ProbeDryRun:
    """What `run_probe(run)` would do. Raises UsageError for audio that it would refuse."""
    grid = run.grid
    check_audio(run.audio, grid.profile.frame)
    probe = LatencyProbe(grid, _no_target, _SilentAudio(), ObserverGroup(), StopRequest())
    groups = [group for group in probe.groups() if group]
    per_token = grid.profile.shape.kv_bytes_per_token

    def pool_bytes(point: GridCell) -> int:
        pool = probe.pool_of(point)
        return pool.block_count(per_token) * pool.block_size * per_token

    return ProbeDryRun(
        profile=grid.profile.name,
        policies=tuple(map(str, grid.policies)),
        batches=grid.batches,
        ages_s=grid.ages_s,
        points=sum(map(len, groups)),
        steps=grid.steps,
        rounds=grid.rounds,
        skipped=tuple(f"{_where(point)}: {point.skipped}" for point in probe.points if point.skipped),
        device=run.device,
        weights="random" if run.weights is None else str(run.weights),
        seed=grid.seed,
        audio=tuple(map(str, run.audio)),
        most_s=max(grid.budget_s, len(groups) * VISIT_S) + VISIT_S if groups else 0.0,
        pools=max((sum(pool_bytes(point) for point in group) for group in groups), default=0),
        memory=memory_of(grid.profile, max(grid.batches)),
    )


def _where(point: GridCell) -> str:
    each = "session" if point.sessions == 1 else "sessions"
    return f"{point.policy}, {point.sessions} {each} {format_duration(point.age_s)} old"


def _no_target(profile: Profile, slots: int) -> NoReturn:
    raise AssertionError("a dry run opens nothing")


class _SilentAudio:
    """Of a run that gives no audio."""

    def stream(self, index: int) -> NoReturn:
        raise AssertionError("a dry run opens nothing")

    def phase_s(self, index: int) -> float:
        return 0.0
