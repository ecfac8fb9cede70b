"""`--dry-run`: what a capacity run would do, its duration and its memory.

Loads no model and only the first usable recording; sends nothing to a server. Duration: capacity/duration.py. Memory is
computed from the profile (forecast/memory.py), not measured. Left out: loading the model, which takes seconds to
minutes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from metronome_cli.audio.open_audio import check_audio
from metronome_cli.backends.memory_check import MemoryEstimate, memory_of
from metronome_cli.capacity.duration import DurationEstimate, estimate_duration
from metronome_cli.capacity.plan import CapacityPlan
from metronome_cli.capacity.trace_match import KeptLoad
from metronome_cli.core.formatting import plural
from metronome_cli.core.quantities import format_size
from metronome_cli.core.strict_json import dumps
from metronome_cli.results.events import ObserverGroup

SCHEMA = "metronome.plan/1"


@dataclass(frozen=True, slots=True)
class DryRunPlan:
    """Plan of a run, with duration and memory."""

    profile: str
    policy: str
    batching: str
    device: str
    weights: str
    session_length_s: float
    seed: int
    objectives: tuple[str, ...]
    audio: tuple[str, ...]
    course: DurationEstimate
    memory: MemoryEstimate

    def as_json(self) -> str:
        """Return the plan as JSON types, in s and bytes."""
        data = plan_dict(asdict(self), self.course)
        data["memory"]["total"] = self.memory.total
        return dumps(data, indent=2)

    def as_text(self) -> str:
        """Return the plan as text."""
        rows = [
            ("does", self.course.does),
            (
                "profile",
                f"{self.profile}, policy {self.policy}, {self.weights} weights, device {self.device}",
            ),
            ("load", f"{self.course.clock} clock, {self.batching} batching, seed {self.seed}"),
            ("audio", ", ".join(self.audio) or "the sample audio"),
            ("objectives", ", ".join(self.objectives)),
            *self.course.rows(),
            *self._memory_rows(),
        ]
        return f"{aligned(rows)}\n\nDry run: no model was loaded and nothing was measured."

    def _memory_rows(self) -> Iterable[tuple[str, str]]:
        memory = self.memory
        sessions = plural(memory.sessions, "session")
        yield "weights", f"{format_size(memory.weights)} ({memory.weights_how})"
        if memory.pool is not None:
            yield "KV pool", f"{format_size(memory.pool)} in {plural(memory.blocks or 0, 'block')}"
        yield "activations", f"{format_size(memory.activations)}, one step of {sessions}"
        if memory.session_state:
            yield "session state", f"{format_size(memory.session_state)} for {sessions}"
        yield "memory", f"about {format_size(memory.total)}, and the program itself"
        if memory.shortage:
            yield "too much", memory.shortage


def plan_dict(data: dict[str, Any], course: DurationEstimate) -> dict[str, Any]:
    """Return the fields of a plan as JSON types, `course` included."""
    did = data.pop("course")
    return {"schema": SCHEMA, "does": did["does"], "clock": did["clock"], "phases": did["phases"], **data} | {
        "duration": course.as_dict()
    }


def aligned(rows: Sequence[tuple[str, str]]) -> str:
    """Two columns."""
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name:<{width}}  {text}" for name, text in rows)


def outline(plan: CapacityPlan) -> DryRunPlan:
    """Plan `run_capacity(plan)`. Raises UsageError for the same settings, except for a pool that does not fit this
    machine, since the run may be meant for another.
    """
    kept_load = KeptLoad(plan, ObserverGroup())
    plan, profile = kept_load.plan, kept_load.plan.profile
    check_audio(plan.audio, profile.frame)
    recorded, sessions = kept_load.recorded, plan.sessions
    if recorded is not None:
        sessions = max(run.head.sessions for run in recorded.runs)
    return DryRunPlan(
        profile=profile.name,
        policy=profile.policy,
        batching=plan.batching,
        device=plan.device,
        weights="random" if plan.weights is None else str(plan.weights),
        session_length_s=plan.length_s,
        seed=plan.seed,
        objectives=tuple(str(objective) for objective in plan.judged_by()),
        audio=tuple(str(path) for path in plan.audio),
        course=estimate_duration(plan, recorded),
        memory=memory_of(profile, sessions or profile.max_batch_size, plan.device),
    )
