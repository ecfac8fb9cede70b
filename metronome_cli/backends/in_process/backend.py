"""The engine in this process as a backend: a fresh engine on the loaded weights for each trial."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from metronome_cli.backends.in_process.run import StepRun
from metronome_cli.backends.interface import BackendTraits, KvDemand, RunSetup
from metronome_cli.backends.step_engine import StepEngine
from metronome_cli.config.profile import Profile
from metronome_cli.core.types import FrameInput, SessionRefused

WARM_UP_STEPS = 4


EngineFactory = Callable[[Profile, int], StepEngine]  # (profile with its policy, slots) -> a fresh engine


class InProcessBackend:
    """Implements `Backend` on a factory of step engines."""

    traits: ClassVar[BackendTraits] = BackendTraits(
        name="in-process",
        clocks=frozenset({"real", "virtual"}),
        fresh_engine=True,
        sets_age=True,
        batch="step",
        in_this_process=True,
        sound="frames",
    )

    def __init__(self, make_engine: EngineFactory, profile: Profile) -> None:
        self._make_engine = make_engine
        self._profile = profile
        self._description: dict[str, Any] | None = None

    def describe(self) -> dict[str, Any]:
        if self._description is None:
            self._description = self._make_engine(self._profile, 1).describe()
        return dict(self._description)

    def kv_demand(self, profile: Profile, age_s: float) -> KvDemand | None:
        engine = self._make_engine(profile, 1)
        blocks = engine.blocks_at(age_s)
        return KvDemand(blocks, engine.pool().total_blocks) if blocks else None

    def start(self, setup: RunSetup) -> StepRun:
        engine = self._make_engine(setup.profile, setup.slots)
        warm_up_engine(engine, setup.profile)
        return StepRun(engine, setup)


def warm_up_engine(engine: StepEngine, profile: Profile, steps: int = WARM_UP_STEPS) -> None:
    """Serve a few frames of silence in one slot, so that one-time costs of an engine's first steps are not measured."""
    try:
        slot = engine.open()
    except SessionRefused:
        return  # the trial's sessions will be rejected too, and counted
    silence = np.zeros(profile.frame.samples, dtype=np.float32)
    for _ in range(steps):
        result = engine.step([FrameInput(slot, silence, profile.tokens.decode.speaking)])
        if result.outcomes[0].ended is not None:
            return
    engine.close(slot)
