"""How many blocks a session holds is the same in the engine, in the simulated target and in the forecast."""

import numpy as np
import pytest

from metronome_cli.backends.in_process.engine import InProcessModel
from metronome_cli.backends.simulated_engine import SimulatedEngine
from metronome_cli.core.types import FrameInput
from metronome_cli.forecast.hazards import decoder_growth
from tests.capacity.builders import small_profile


def profile_of(policy, into, speaking, block_tokens):
    return small_profile(
        policy=policy,
        adapter="speech-lm",
        adapter_options={"encoder_width": 8, "encoder_blocks": 1},
        tokens={"prefill": into, "decode": {"listening": 1, "speaking": speaking}},
        kv_pool={"blocks": 400, "block_size": block_tokens},
    )


@pytest.mark.parametrize("block_tokens", [4, 16])
@pytest.mark.parametrize(("into", "speaking"), [(1, 1), (2, 2), (4, 7), (8, 3)])
@pytest.mark.parametrize(
    "policy", ["ring(255)", "ring(64)", "window(64, 16)", "window(30, 5)", "recycle(40)"]
)
def test_what_a_bounded_session_holds_at_most(policy, into, speaking, block_tokens):
    profile = profile_of(policy, into, speaking, block_tokens)
    expected = decoder_growth(profile, block_tokens).blocks_at_most()
    engine = InProcessModel.load(profile, device="cpu", seed=0).fresh_engine(profile, 1)
    fake = SimulatedEngine(profile, 1, lambda batch: 0.001)
    held = {"engine": most_held(engine, profile, speaking), "fake": most_held(fake, profile, speaking)}
    assert held["fake"] == expected
    if profile.policy_spec.kind == "ring":
        assert held["engine"] == expected == engine.blocks_at(1e4)
    else:  # the engine counts after a step: what only the step itself needs has gone by then
        assert expected - 3 <= held["engine"] <= expected
        assert engine.blocks_at(1e4) <= expected


def most_held(target, profile, speaking):
    slot, silence = target.open(), np.zeros(profile.frame.samples, dtype=np.float32)
    frames = [FrameInput(slot, silence, speaking)]
    return max(target.step(frames).pool.used_blocks for _ in range(150))
