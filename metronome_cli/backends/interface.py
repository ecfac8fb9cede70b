"""What can be put under load, and one run of it. Every backend implements these two interfaces and nothing else.

A backend is made once per command; a run is one trial on it. The run owns its clock: every time in an event is on it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from metronome_cli.config.profile import Profile
from metronome_cli.core.clock import Clock, ClockName
from metronome_cli.core.session import Batching, SessionEvent, SessionSpec
from metronome_cli.core.types import PoolState
from metronome_cli.forecast.occupancy_trace import OccupancyTrace
from metronome_cli.load.workload import Workload

# Playback model of the output: one stream per session, whole answers, answers made of frames, or none.
Sound = Literal["steady", "answers", "frames", "none"]


@dataclass(frozen=True, slots=True)
class BackendTraits:
    """Properties of a backend that the planning of trials depends on.

    `fresh_engine`: each run starts on a new engine. `sets_age`: a session can be opened at an age. `batch`: what
    counts as one observation. `in_this_process`: the backend's work uses this process's CPU time. `server_reported`:
    the server itself reports running and waiting sessions. `whose`: possessive form for sentences.
    """

    name: str
    clocks: frozenset[ClockName]
    fresh_engine: bool
    sets_age: bool
    batch: Literal["step", "period"]
    in_this_process: bool = False
    server_reported: bool = False
    whole_frames: bool = False  # audio is handed out in whole frames, so that each message is encoded once
    sound: Sound = "none"
    context_limit: int | None = None  # positions of one session's cache, where a server reports its length
    policy: str | None = None  # how a report names the cache policy; None: the profile's
    whose: str = ""


@dataclass(frozen=True, slots=True)
class KvDemand:
    """Most blocks that one session holds up to an age, and blocks in all."""

    per_session: int
    total: int


@dataclass(frozen=True, slots=True)
class RunSetup:
    """Arguments of one run. `record` receives every event, in the thread that calls the run."""

    profile: Profile
    workload: Workload
    slots: int
    clock: ClockName
    batching: Batching
    seed: int
    record: Callable[[SessionEvent], None]
    stop: Callable[[], bool]


@dataclass(frozen=True, slots=True)
class NetworkState:
    """Measurements that only a run over sockets has.

    `steady`: each frame of input must be answered by output of its own. `workers`: processes that hold sessions,
    besides the one that counts. `cpu_share`: CPU time of the busiest process that holds sessions, as a share of one
    core.
    """

    steady: bool
    idle_timeout_s: float
    workers: int = 0
    cpu_share: float | None = None
    scrapes: int = 0
    failed_scrapes: int = 0
    server_step_ms: float | None = None


@dataclass(frozen=True, slots=True)
class BackendStats:
    """State of the backend as a run sees it, during the run and after `close`.

    None means not visible. `pool_full_s`: when the pool was first full; `blocked`: a session then waited for a block.
    `occupancy`: trace for a forecast; `fine_occupancy`: (time, occupancy) after steps. `generator_lost`: why part of
    the load generator was lost; `network`: measurements that only a run over sockets has.
    """

    pool: PoolState | None = None
    stage_occupancy: Mapping[str, float] = field(default_factory=dict)
    occupancy_max: float | None = None
    pool_full_s: float | None = None
    full_pool: str = "KV"
    blocked: bool = False
    preemptions: int | None = None
    recomputed_tokens: int = 0
    occupancy: OccupancyTrace | None = None
    fine_occupancy: Sequence[tuple[float, float]] = ()
    server: str = ""
    generator_lost: str | None = None
    network: NetworkState | None = None


class BackendRun(Protocol):
    """One trial on a backend."""

    @property
    def clock(self) -> Clock: ...

    def open(self, session: SessionSpec) -> None:
        """Open a session. Raises SessionRefused if it is rejected at once; later, that is a SessionEnded event."""

    def begin(self) -> None:
        """Wait until each session is ready or rejected, set the clock to 0, and start the audio. Raises EngineError."""

    def run_until(self, t_s: float) -> None:
        """Serve frames, or collect results, until `t_s` or until no session is open. Raises EngineError."""

    def close_newest(self, count: int) -> None:
        """Close the sessions that were opened last; each ends with reason "shed"."""

    def stats(self) -> BackendStats:
        """Return the state of the backend now."""

    def close(self) -> None:
        """End the run; sessions that are still open end as "completed". A second call does nothing.

        Raises EngineError if the system under test is no longer available.
        """


class Backend(Protocol):
    """A system under test."""

    @property
    def traits(self) -> BackendTraits: ...

    def describe(self) -> dict[str, Any]:
        """Describe the backend for the report, without credentials. More is known once a run has started."""

    def kv_demand(self, profile: Profile, age_s: float) -> KvDemand | None:
        """Return the pool demand of one session at that age; None if unknown."""

    def start(self, setup: RunSetup) -> BackendRun:
        """Return a run without sessions, its clock at 0. Raises EngineError, UsageError."""
