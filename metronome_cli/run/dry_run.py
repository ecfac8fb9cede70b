"""`--dry-run`: what a capacity run would do, how long for, and in how much memory. Loads no model, and
of the recordings only the first that is usable.

A duration is of the run's own clock. Every step takes a period at the most while the beat is kept, so a phase of
k steps takes k periods at the most: a real clock waits that long, a virtual one only for the compute in it. Most
phases end as soon as their verdict is known, and which of them come depends on what is found, so durations are
bounds: `most_s` has the longest ramp, a look at every stride and halving, and a confirmation for each stride down.
Engines that lose the beat take longer than a period for a step, until the run sees it. Left out: loading the
model, which takes seconds to minutes.

Memory is what the profile says (forecast/memory.py), not what a device was asked for.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass

from metronome_cli.config.profile import Profile
from metronome_cli.config.quantities import format_duration, format_size
from metronome_cli.control.aimd import AimdGains
from metronome_cli.forecast.memory import activations, profile_weights, state_outside
from metronome_cli.load.arrivals import ramp
from metronome_cli.report.strict_json import dumps
from metronome_cli.run.arms import GUARDED, default_arms
from metronome_cli.run.audio import check_audio
from metronome_cli.run.capacity_plan import DEFAULT_ARRIVALS_PER_S, DEFAULT_OFFERED, CapacityPlan
from metronome_cli.run.kept_load import KeptLoad
from metronome_cli.run.lab import CONFIDENCE, steps_to_confirm, steps_to_prove
from metronome_cli.run.load_file import LoadFile
from metronome_cli.run.observer import Observers
from metronome_cli.run.point import WARM_UP_STEPS
from metronome_cli.run.scout import LOOK_STEPS, RAMP_WINDOWS
from metronome_cli.run.search import DOWNWARD_TRIES

SCHEMA = "metronome.plan/1"


@dataclass(frozen=True, slots=True)
class Phase:
    """One part of the run, in seconds of the run's clock; 0 where it may not come at all."""

    what: str
    least_s: float
    most_s: float


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes, and how each was found. `sessions`: for how many, the largest batch where that is not known."""

    sessions: int
    weights: int
    weights_how: str
    pool: int | None  # None: the profile has none
    blocks: int | None
    activations: int
    session_state: int

    @property
    def total(self) -> int:
        return self.weights + (self.pool or 0) + self.activations + self.session_state


@dataclass(frozen=True, slots=True)
class Outline:
    """A run, foretold."""

    does: str
    profile: str
    policy: str
    clock: str
    batching: str
    device: str
    weights: str
    session_length_s: float
    seed: int
    objectives: tuple[str, ...]
    audio: tuple[str, ...]
    phases: tuple[Phase, ...]
    memory: Memory

    @property
    def least_s(self) -> float:
        return sum(phase.least_s for phase in self.phases)

    @property
    def most_s(self) -> float:
        return sum(phase.most_s for phase in self.phases)

    def as_json(self) -> str:
        """One object; seconds and bytes."""
        data = asdict(self)
        data["memory"]["total"] = self.memory.total
        duration = {"least_s": self.least_s, "most_s": self.most_s, "of": f"the {self.clock} clock"}
        return dumps({"schema": SCHEMA, **data, "duration": duration}, indent=2)

    def as_text(self) -> str:
        """For people."""
        rows = [
            ("does", self.does),
            (
                "profile",
                f"{self.profile}, policy {self.policy}, {self.weights} weights, device {self.device}",
            ),
            ("load", f"{self.clock} clock, {self.batching} batching, seed {self.seed}"),
            ("audio", ", ".join(self.audio) or "the sample audio"),
            ("objectives", ", ".join(self.objectives)),
            *((phase.what, _span(phase.least_s, phase.most_s)) for phase in self.phases),
            ("duration", f"{_span(self.least_s, self.most_s)}{self._waits()}"),
            *self._memory_rows(),
        ]
        width = max(len(name) for name, _ in rows)
        lines = [f"{name:<{width}}  {text}" for name, text in rows]
        return "\n".join([*lines, "", "Nothing was loaded and nothing was run."])

    def _waits(self) -> str:
        if self.clock == "real":
            return " of real time, and loading"
        return " of virtual time; waiting costs nothing, only the compute in it takes real time"

    def _memory_rows(self) -> Iterable[tuple[str, str]]:
        memory = self.memory
        yield "weights", f"{format_size(memory.weights)} ({memory.weights_how})"
        if memory.pool is not None:
            yield "KV pool", f"{format_size(memory.pool)} in {memory.blocks:,} blocks"
        yield "activations", f"{format_size(memory.activations)}, one step of {memory.sessions} sessions"
        if memory.session_state:
            yield "session state", f"{format_size(memory.session_state)} for {memory.sessions} sessions"
        yield "memory", f"about {format_size(memory.total)}, and the program itself"


def outline(plan: CapacityPlan) -> Outline:
    """What `run_capacity(plan)` would do. Raises UsageError where that would, for the same settings, but for a pool
    that this machine could not hold: a plan may be for another.
    """
    kept_load = KeptLoad(plan, Observers())
    plan, profile = kept_load.plan, kept_load.plan.profile
    check_audio(plan.audio, profile.frame)
    recorded, sessions = kept_load.recorded, plan.sessions
    if recorded is None:
        does, phases = _phases(plan)
    else:
        does, phases = _replay(plan, recorded)
        sessions = max(run.head.sessions for run in recorded.runs)
    return Outline(
        does=does,
        profile=profile.name,
        policy=profile.policy,
        clock=plan.clock,
        batching=plan.batching,
        device=plan.device,
        weights="random" if plan.weights is None else str(plan.weights),
        session_length_s=plan.length_s,
        seed=plan.seed,
        objectives=tuple(str(objective) for objective in plan.judged_by()),
        audio=tuple(str(path) for path in plan.audio),
        phases=tuple(phases),
        memory=memory_of(profile, sessions or profile.max_batch),
    )


def memory_of(profile: Profile, sessions: int) -> Memory:
    """What that many sessions take by the profile's figures, bytes."""
    weights, pool, per_token = profile_weights(profile), profile.pool, profile.shape.kv_bytes_per_token
    blocks = None if pool is None else pool.block_count(per_token)
    return Memory(
        sessions=sessions,
        weights=weights.size,
        weights_how=weights.how,
        pool=None if pool is None or blocks is None else blocks * pool.block_tokens * per_token,
        blocks=blocks,
        activations=activations(profile, sessions),
        session_state=state_outside(profile) * sessions,
    )


def _phases(plan: CapacityPlan) -> tuple[str, list[Phase]]:
    length = format_duration(plan.length_s)
    if plan.compare or plan.guard:
        return _arms(plan)
    if plan.trials is not None and plan.sessions is not None:
        count = 2 * plan.trials if plan.profile.policy_spec.grows else plan.trials
        whole = Phase(f"{count} lives", 0.0, count * plan.length_s)
        return f"{plan.trials} trials of {plan.sessions} sessions for {length} under each policy", [whole]
    if plan.sessions is not None:
        return f"judges {plan.sessions} sessions for {length}", _single(plan)
    return f"finds how many sessions hold for {length}, by {plan.method}", _search(plan)


def _replay(plan: CapacityPlan, recorded: LoadFile) -> tuple[str, list[Phase]]:
    """Points last as long as the recorded ones, arms at the most as long as the recorded ones could."""
    arms = plan.compare or plan.guard
    lengths = [(run.head.length_s or run.end_s) if arms else run.end_s for run in recorded.runs]
    if arms:
        count = len(_arms(plan)[1])
        return f"offers the callers of {recorded.path} to {count} arms", [
            Phase("arms", 0.0, count * max(lengths))
        ]
    numbers = {run.head.sessions for run in recorded.runs}
    span = f"{min(numbers)}" if len(numbers) == 1 else f"{min(numbers)} to {max(numbers)}"
    does = f"gives the load of {recorded.path} again, of {span} sessions"
    return does, [Phase(f"{len(lengths)} recorded runs", 0.0, sum(lengths))]


def _arms(plan: CapacityPlan) -> tuple[str, list[Phase]]:
    count = plan.offered or DEFAULT_OFFERED
    rate = plan.arrival_rate_per_s or DEFAULT_ARRIVALS_PER_S
    arms = (GUARDED,) if plan.guard and not plan.compare else default_arms(plan.bounded_policy())
    last_s = max(arrival.at_s for arrival in ramp(count, rate))
    does = f"offers {count} callers at {rate:g}/s to {len(arms)} arm{'s' if len(arms) > 1 else ''}"
    return does, [Phase(arm.name, last_s, plan.length_s + count / rate) for arm in arms]


def _single(plan: CapacityPlan) -> list[Phase]:
    period_s = plan.profile.frame.period_s
    if plan.soak or plan.profile.policy_spec.grows:
        return [Phase("the whole life", 0.0, plan.length_s)]
    steps = _confirm_steps(plan)
    judged = Phase("judged steps", 0.0, (steps + WARM_UP_STEPS) * period_s)
    return [judged, Phase("everybody old", 0.0, _old_s(plan))]


def _search(plan: CapacityPlan) -> list[Phase]:
    period_s = plan.profile.frame.period_s
    halvings = math.ceil(math.log2(max(2, min(plan.max_sessions, plan.profile.max_batch * 16))))
    look_s = (LOOK_STEPS + WARM_UP_STEPS) * period_s
    one = _confirm_s(plan)
    gains = plan.gains or AimdGains()
    first = (
        Phase("ramp", gains.window_s, RAMP_WINDOWS * gains.window_s)
        if plan.method == "ramp"
        else Phase("doubling", look_s / LOOK_STEPS, halvings * look_s)
    )
    return [
        first,
        Phase("looks", 0.0, 2 * halvings * look_s),
        Phase("confirmation", 0.0, DOWNWARD_TRIES * one),
        Phase("one more fails", 0.0, 3 * one),
    ]


def _confirm_s(plan: CapacityPlan) -> float:
    period_s, length_s = plan.profile.frame.period_s, plan.length_s
    if plan.soak:
        return length_s
    if plan.profile.policy_spec.grows:
        steps = 1.05 * steps_to_prove(plan.judged_by(), CONFIDENCE) + 2 * WARM_UP_STEPS
        return min(length_s, steps * period_s)
    return (_confirm_steps(plan) + WARM_UP_STEPS) * period_s + _old_s(plan)


def _confirm_steps(plan: CapacityPlan) -> int:
    needed = steps_to_prove(plan.judged_by(), CONFIDENCE)
    return steps_to_confirm(needed, plan.confirm_steps)


def _old_s(plan: CapacityPlan) -> float:
    return min(plan.length_s, 2 * WARM_UP_STEPS * plan.profile.frame.period_s)


def _span(least_s: float, most_s: float) -> str:
    most = format_duration(round(most_s, 1))
    return f"up to {most}" if least_s <= 0.0 else f"{format_duration(round(least_s, 1))} to {most}"
