"""A whole model on an engine, given frames of sound."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from metronome_cli.config.profile import Profile
from metronome_cli.core.types import Audio, FrameInput, FrameOutput
from metronome_cli.engine.build_decoder import build_decoder
from metronome_cli.engine.frame_engine import FrameEngine
from metronome_cli.models.registry import LoadedModel


def speech(samples: int, frames: int, seed: int) -> list[Audio]:
    """Tones at 16 kHz that change in pitch and loudness ten times a second; `samples` a frame."""
    rng = np.random.default_rng(seed)
    notes = frames * samples // 1600
    pitch = np.repeat(rng.uniform(80, 4000, notes), 1600)
    loudness = np.repeat(10.0 ** rng.uniform(-3, 0, notes), 1600)
    wave = loudness * np.sin(2 * np.pi * np.cumsum(pitch) / 16_000)
    return list(wave.astype(np.float32).reshape(frames, samples))


def engine(loaded: LoadedModel, profile: Profile, slots: int = 4) -> FrameEngine:
    stack = build_decoder(loaded.decoder, blocks=256, policy=profile.policy_spec)
    return FrameEngine(loaded.fresh(), stack, slots)


def step(
    machine: FrameEngine, slots: Sequence[int], audio: Sequence[Audio], out: Sequence[int]
) -> list[FrameOutput]:
    frames = [FrameInput(slot, samples, n) for slot, samples, n in zip(slots, audio, out, strict=True)]
    return list(machine.step(frames).outcomes)
