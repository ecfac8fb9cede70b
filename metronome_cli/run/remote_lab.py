"""The conditions of points that are measured on a server over the network.

The same server serves every point: it cannot be made fresh from here, and its sessions are all new when a point
begins, whatever their number. The profile says period, deadline and objectives; its audio is brought to the
protocol's rate.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import cast

from metronome_cli.config.profile import Profile
from metronome_cli.errors import EngineError
from metronome_cli.load.driver import Driver
from metronome_cli.load.paced import PacedDriver, WirePopulation
from metronome_cli.run.lab import Lab
from metronome_cli.targets.base import Target
from metronome_cli.targets.endpoint import Endpoint, KnockError, Limits, detect, endpoint, shown
from metronome_cli.targets.protocols import need_libraries
from metronome_cli.targets.remote import RemoteTarget


@dataclass(frozen=True, slots=True)
class RemotePlan:
    """Which server, and how: `protocol` "auto" finds it out; `scrape` is the address of its Prometheus metrics.

    `model` is the name that vLLM's realtime endpoint serves. Keys come from the environment (targets/endpoint.py).
    """

    target: str
    protocol: str = "auto"
    scrape: str | None = None
    metric: str | None = None
    model: str | None = None
    limits: Limits = field(default_factory=Limits)
    environ: Mapping[str, str] | None = field(default=None, repr=False)

    def find(self) -> Endpoint:
        """The endpoint, after a knock at the door. Raises UsageError, EngineError."""
        need_libraries()
        protocol = self.protocol
        if protocol == "auto":
            protocol = asyncio.run(detect(self.target, self.limits, self.environ))
        found = endpoint(self.target, protocol, self.limits, self.environ, self.model)
        asyncio.run(_knock(found))
        return found


async def _knock(found: Endpoint) -> None:
    """Raises EngineError where nobody opens."""
    try:
        socket = await found.connect()
    except KnockError as error:
        raise EngineError(f"{shown(found.url)}: {error.reason}: {error.detail}") from None
    await socket.close()


def at_rate(profile: Profile, sample_rate: int) -> Profile:
    """The profile with its audio at the protocol's rate."""
    frame = profile.frame.model_copy(update={"sample_rate": sample_rate})
    return profile.model_copy(update={"frame": frame})


@dataclass(slots=True)
class RemoteLab(Lab):
    """A lab whose drivers have sockets. `fetch` makes one scrape's text."""

    endpoint: Endpoint | None = None
    fetch: Callable[[], str] | None = None
    metric: str | None = None
    drivers: list[PacedDriver] = field(default_factory=list)

    def fresh_target(self, seats: int) -> Target:
        assert self.endpoint is not None
        return cast(Target, RemoteTarget(self.endpoint))

    def driver(self, seats: int) -> Driver:
        return cast(Driver, self.paced())  # the same shape, but for `step`

    def paced(self) -> PacedDriver:
        """Nobody on the line, a clock at 0, an empty ledger. Whoever was on the line before is hung up."""
        assert self.endpoint is not None
        self.hang_up()
        target = RemoteTarget(self.endpoint, self.fetch, self.metric)
        population = WirePopulation(target, self.endpoint, self.streams, self.profile)
        driver = PacedDriver(population, self.ledger(), self.stop, self.pulse)
        self.drivers.append(driver)
        return driver

    def hang_up(self) -> None:
        """Close every driver."""
        while self.drivers:
            self.drivers.pop().close()
