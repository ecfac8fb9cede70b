"""What `capacity` is asked to do."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from metronome_cli.capacity.aimd import AimdGains
from metronome_cli.capacity.scout import SearchMethod
from metronome_cli.config.cache_policy import CachePolicySpec
from metronome_cli.config.profile import Profile
from metronome_cli.core.clock import ClockName
from metronome_cli.core.errors import UsageError
from metronome_cli.core.session import Batching
from metronome_cli.measure.objective import Objective

DEFAULT_CONFIRM_STEPS = 1000
MAX_SESSIONS = 4096
DEFAULT_OFFERED = 128
DEFAULT_ARRIVALS_PER_S = 4.0


@dataclass(frozen=True, slots=True)
class CapacityPlan:
    """What to run. `profile` has every override applied; times in seconds; `sessions` judges that one N only."""

    profile: Profile
    objectives: tuple[Objective, ...] = ()  # empty: the profile's
    audio: tuple[Path, ...] = ()  # empty: the sample audio
    clock: ClockName = "real"
    batching: Batching = "continuous"
    session_length_s: float | None = None  # None: the profile's
    sessions: int | None = None
    method: SearchMethod = "ramp"
    soak: bool = False
    seed: int = 0
    gains: AimdGains | None = None  # None: the defaults of a search, or of admission
    max_sessions: int = MAX_SESSIONS
    confirm_steps: int = DEFAULT_CONFIRM_STEPS
    budget_s: float | None = None  # wall time of a search; None: as capacity/budget.py says
    device: str = "auto"
    weights: Path | None = None  # a checkpoint directory; None: random
    window: CachePolicySpec | None = None  # the bounded policy of comparisons; None: the profile's
    compare: bool = False  # three arms under one controller
    guard: bool = False  # the guarded arm alone
    offered: int | None = None
    arrival_rate_per_s: float | None = None
    trials: int | None = None
    record: Path | None = None  # where to keep the load
    replay: Path | None = None  # a kept load to give again
    argv: tuple[str, ...] = ()
    settings: dict[str, object] = field(default_factory=dict)

    def judged_by(self) -> tuple[Objective, ...]:
        """The objectives that count. Silence always does: a pool that is full is on time and empty."""
        given = self.objectives or tuple(Objective.parse(text) for text in self.profile.objectives)
        if not given:
            given = (Objective("p99", "<", round(self.profile.frame.deadline_s * 1e3, 6), "ms"),)
        if not any(objective.metric == "empty" for objective in given):
            given += (Objective.parse("empty<1%"),)
        return given

    @property
    def judges(self) -> bool:
        """Whether this looks for a capacity; comparisons and trials state counts instead."""
        return not (self.compare or self.guard or self.trials)

    @property
    def length_s(self) -> float:
        return self.session_length_s or self.profile.session_length

    def bounded_policy(self) -> CachePolicySpec:
        """The policy that stands beside `unbounded`. Raises UsageError when none is known."""
        policy = self.window or self.profile.policy_spec
        if policy.kind == "unbounded":
            raise UsageError(
                "there is no bounded policy to compare with: the policy is unbounded",
                hint="give one, such as --policy 'window(256, 16)'",
            )
        return policy
