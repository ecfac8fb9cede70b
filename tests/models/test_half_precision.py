"""Every adapter of several stages in bfloat16, as on a GPU: no part may need another dtype than its neighbour."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from metronome_cli.config.profile import Profile
from metronome_cli.core.types import FrameInput
from metronome_cli.engine.build_decoder import build_decoder
from metronome_cli.engine.frame_engine import FrameEngine
from metronome_cli.models.minicpm_o import weights as minicpm_o_weights
from metronome_cli.models.qwen_omni import weights as qwen_omni_weights
from metronome_cli.models.registry import load_adapter
from tests.models import mini, omni

PROFILES = {
    "qwen2.5": omni.profile("qwen2.5", options={"talker": True}),
    "qwen3": omni.profile("qwen3", options={"talker": True}),
    "4.5 planned": mini.profile("4.5", options={"talker": True}),
    "4.5 decided": mini.profile("4.5", options={"talker": True, "decide": "model"}),
    "2.6": mini.profile("2.6", options={"talker": True}),
}


@pytest.mark.parametrize("profile", PROFILES.values(), ids=PROFILES)
def test_frames_run_in_bfloat16(profile: Profile, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (minicpm_o_weights, qwen_omni_weights):
        monkeypatch.setattr(module, "working_dtype", lambda shape, device: torch.bfloat16)
    loaded = load_adapter(profile, weights=None, device="cpu", seed=1)
    stack = build_decoder(loaded.decoder, blocks=256, policy=profile.policy_spec)
    machine = FrameEngine(loaded.fresh(), stack, 2)
    slots, rng = [machine.open(), machine.open()], np.random.default_rng(0)
    for out in (5, 1, 4):
        sound = rng.standard_normal((2, profile.frame.samples)).astype(np.float32) * 0.1
        result = machine.step([FrameInput(slot, s, out) for slot, s in zip(slots, sound, strict=True)])
        assert all(outcome.delivered for outcome in result.outcomes)
    assert stack.dtype == torch.bfloat16
