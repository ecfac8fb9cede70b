"""`--url --dry-run`: the load that a server would get, its duration, and the protocols that would be tried.

No connection is opened. Values that only the server can report are listed as unknown.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace

from metronome_cli.audio.open_audio import check_audio
from metronome_cli.backends.websocket.backend import TRAITS, WebsocketSetup, at_rate
from metronome_cli.backends.websocket.endpoint import candidates, endpoint
from metronome_cli.capacity.dry_run import aligned, plan_dict
from metronome_cli.capacity.duration import DurationEstimate, estimate_duration
from metronome_cli.capacity.plan import CapacityPlan
from metronome_cli.capacity.replay import check_replayable
from metronome_cli.capacity.trace_match import KeptLoad
from metronome_cli.core.formatting import plural
from metronome_cli.core.http import shown
from metronome_cli.core.quantities import format_duration
from metronome_cli.core.strict_json import dumps
from metronome_cli.results.events import ObserverGroup


@dataclass(frozen=True, slots=True)
class ServerOutline:
    """Plan of a run against a server. `protocols`: those that are tried, in order."""

    target: str
    protocols: tuple[str, ...]
    scrape: str | None
    placement: str
    sessions: int | None
    max_sessions: int
    period_s: float
    sample_rate: int | None  # None: as the protocol wants it
    session_length_s: float
    seed: int
    objectives: tuple[str, ...]
    audio: tuple[str, ...]
    unknown: tuple[str, ...]
    course: DurationEstimate

    def as_json(self) -> str:
        """Return the plan as JSON types, in s."""
        return dumps(plan_dict(asdict(self), self.course), indent=2)

    def as_text(self) -> str:
        """Return the plan as text."""
        return f"{aligned(list(self._rows()))}\n\nDry run: no connection was opened."

    def _rows(self) -> Iterator[tuple[str, str]]:
        many = self.sessions is not None
        offered = (
            plural(self.sessions or 0, "session") if many else f"1 to {plural(self.max_sessions, 'session')}"
        )
        rate = f" at {self.sample_rate:,} Hz" if self.sample_rate else ""
        named, length = self.protocols, format_duration(self.session_length_s)
        yield "does", self.course.does
        yield "server", self.target
        yield "protocol", named[0] if len(named) == 1 else f"the first that connects: {', '.join(named)}"
        yield (
            "offered",
            f"{offered}, a frame of {format_duration(self.period_s)}{rate} each, for up to {length}",
        )
        yield "load generator", self.placement
        yield "audio", ", ".join(self.audio) or "the sample audio"
        yield "objectives", ", ".join(self.objectives)
        yield "metrics", self.scrape or "not scraped: the limiting factor is inferred from the sessions"
        yield from self.course.rows()
        yield "not known", "; ".join(self.unknown)


def plan_dry_run(plan: CapacityPlan, remote: WebsocketSetup) -> ServerOutline:
    """Plan `run_remote_capacity`. Raises UsageError for bad input, as it would before connecting."""
    remote.host_starter()
    protocols = candidates(remote.target) if remote.protocol == "auto" else (remote.protocol,)
    found = [
        endpoint(remote.target, name, remote.limits, remote.environ, remote.model, remote.ca_file)
        for name in protocols
    ]
    rates = {one.traits.sample_rate for one in found}
    profile = at_rate(plan.profile, rates.pop()) if len(rates) == 1 else plan.profile
    kept_load = KeptLoad(replace(plan, profile=profile, clock="real", batching="continuous"), ObserverGroup())
    recorded, plan = kept_load.recorded, kept_load.plan
    if recorded is not None:
        check_replayable(recorded, TRAITS)
    check_audio(plan.audio, profile.frame)
    return ServerOutline(
        target=shown(remote.target),
        protocols=protocols,
        scrape=None if remote.scrape is None else shown(remote.scrape),
        placement=_placement(remote),
        sessions=plan.sessions if recorded is None else max(run.head.sessions for run in recorded.runs),
        max_sessions=plan.max_sessions,
        period_s=profile.frame.period_s,
        sample_rate=found[0].traits.sample_rate
        if len({one.traits.sample_rate for one in found}) == 1
        else None,
        session_length_s=plan.length_s,
        seed=plan.seed,
        objectives=tuple(str(objective) for objective in plan.judged_by()),
        audio=tuple(str(path) for path in plan.audio),
        unknown=_unknown(protocols, remote),
        course=estimate_duration(plan, recorded, server=True),
    )


def _placement(remote: WebsocketSetup) -> str:
    if remote.ray is not None:
        return f"on the machines of the Ray cluster {remote.ray}"
    return "in this process" if remote.workers is None else f"in {plural(remote.workers, 'process')}"


def _unknown(protocols: tuple[str, ...], remote: WebsocketSetup) -> tuple[str, ...]:
    """Return the values that only the server can report."""
    asked = ["whether the server responds, and its number of slots"]
    if len(protocols) > 1 or (remote.protocol == "auto" and protocols == ("realtime",)):
        asked.append("its protocol; a realtime one may be vLLM's or Unmute's (set it with --protocol)")
    if remote.protocol == "vllm-realtime" and remote.model is None:
        asked.append("its model")
    return (*asked, "its policy, its weights and its memory")
