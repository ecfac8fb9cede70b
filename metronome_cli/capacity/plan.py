"""Plan of a `capacity` run."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from metronome_cli.capacity.aimd import AimdGains
from metronome_cli.capacity.ramp import SearchMethod
from metronome_cli.config.cache_policy import CachePolicySpec
from metronome_cli.config.profile import Profile
from metronome_cli.core.clock import ClockName
from metronome_cli.core.errors import UsageError
from metronome_cli.core.session import Batching
from metronome_cli.load.churn import Churn
from metronome_cli.load.misbehaving import MisbehavingSessions
from metronome_cli.load.script import BUILT_IN, ScriptLine, built_in_script, parse_script
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
    budget_s: float | None = None  # wall time of a search; None: as capacity/time_budget.py says
    device: str = "auto"
    weights: Path | None = None  # a checkpoint directory; None: random
    window: CachePolicySpec | None = None  # the bounded policy of comparisons; None: the profile's
    compare: bool = False  # three policy variants under one controller
    guard: bool = False  # the guarded policy run alone
    offered: int | None = None
    arrival_rate_per_s: float | None = None
    trials: int | None = None
    playback_delays_s: tuple[float, ...] = (0.0,)  # of listeners; the first is judged
    only_these: bool = (
        False  # the user named the objectives: nothing else of a server's sound and turns is judged
    )
    hears_server: bool = False  # a server's sound is played
    misbehaving: MisbehavingSessions = field(default_factory=MisbehavingSessions)  # sessions that misbehave
    cycles: int | None = None  # of filling a server and leaving it
    cycle_wait_s: float = 60.0  # alone, after each
    canary: bool = False  # one session is heard alone as well
    churn: Churn | None = None  # None: every session lasts the session length
    script: Path | None = None  # what users say, and when; None: they speak all the time
    record: Path | None = None  # load trace to write
    replay: Path | None = None  # load trace to replay
    argv: tuple[str, ...] = ()
    settings: dict[str, object] = field(default_factory=dict)

    def judged_by(self) -> tuple[Objective, ...]:
        """The objectives that count. Silence always does: a pool that is full is on time and empty."""
        given = self.objectives or tuple(Objective.parse(text) for text in self.profile.objectives)
        if not given:
            given = (Objective("p99", "<", round(self.profile.frame.deadline_s * 1e3, 6), "ms"),)
        if not any(objective.metric == "empty" for objective in given):
            given += (Objective.parse("empty<1%"),)
        return given + (() if self.only_these else tuple(map(Objective.parse, self._heard_objectives)))

    @property
    def _heard_objectives(self) -> tuple[str, ...]:
        """What is judged of a server's sound and turns if no objective is given."""
        heard = ("underrun<1%",) if self.hears_server else ()
        return (*heard, "unanswered<5%", "broken<1%") if self.script is not None else heard

    def script_lines(self) -> tuple[ScriptLine, ...]:
        """The script. Raises UsageError if its file cannot be read or is none."""
        if self.script is None or str(self.script) == BUILT_IN:
            return built_in_script()
        try:
            return parse_script(self.script.read_text(encoding="utf-8"), f"--script {self.script}")
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(
                f"--script {self.script}: cannot be read: {error}", hint=f"a text file, or {BUILT_IN}"
            ) from None

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
