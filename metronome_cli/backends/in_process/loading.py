"""Loads a model for a run. Threads are configured before torch is imported, and their number is tuned after loading."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from metronome_cli.backends.in_process.threads import fit, prepare
from metronome_cli.backends.memory_check import check_memory
from metronome_cli.config.profile import Profile
from metronome_cli.core.types import FrameInput, SessionRefused
from metronome_cli.results.events import Observer

if TYPE_CHECKING:
    from metronome_cli.backends.in_process.engine import InProcessEngine, InProcessModel

TRIAL_SESSIONS = 16


def load_model(
    profile: Profile, *, device: str, seed: int, weights: Path | None, observer: Observer
) -> InProcessModel:
    """Load the model and choose the number of threads with the fastest step. Raises UsageError, EngineError."""
    check_memory(profile, device)
    prepare()
    from metronome_cli.backends.in_process.engine import InProcessModel

    model = InProcessModel.load(profile, device=device, seed=seed, weights=weights)
    if profile.kv_pool is not None and model.placement[0].type == "cpu":
        _fit_threads(model, profile, observer)
    return model


def _fit_threads(model: InProcessModel, profile: Profile, observer: Observer) -> None:
    target = model.fresh_engine(profile, TRIAL_SESSIONS)
    step = _trial_step(target, profile)
    trial = fit(step) if step is not None else None
    if trial is not None:
        observer.event("threads", {"chosen": trial.chosen, "step_s": trial.seconds})


def _trial_step(target: InProcessEngine, profile: Profile) -> Callable[[], object] | None:
    """Return a step that serves one frame of silence to new sessions; None if no session can be opened."""
    slots = _open_sessions(target)
    if not slots:
        return None
    silence = np.zeros(profile.frame.samples, dtype=np.float32)

    def step() -> None:
        frames = [FrameInput(slot, silence, profile.tokens.decode.speaking) for slot in slots]
        for outcome in target.step(frames).outcomes:
            if outcome.ended is not None:
                slots.remove(outcome.slot)
        if not slots:
            slots.extend(_open_sessions(target))

    return step


def _open_sessions(target: InProcessEngine) -> list[int]:
    slots: list[int] = []
    try:
        while len(slots) < TRIAL_SESSIONS:
            slots.append(target.open())
    except SessionRefused:
        pass
    return slots
