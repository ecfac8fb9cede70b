"""The shipped profiles that this adapter runs: their sizes against the model built of them, without memory."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest
import torch
from torch import Tensor

from metronome_cli.backends.in_process.engine import InProcessModel
from metronome_cli.config.profile_files import load_profile, profile_names
from metronome_cli.core.types import FrameInput
from metronome_cli.models.mimi import Mimi
from metronome_cli.models.moshi.shape import MoshiShape
from metronome_cli.models.moshi.weights import MoshiWeights

KIB, MIB, GIB = 2**10, 2**20, 2**30
PROFILES = [name for name in profile_names() if load_profile(name).adapter == "moshi"]


@dataclass(slots=True)
class Weightless:
    """A weight source of shapes alone."""

    dtype: torch.dtype
    device: torch.device = field(default_factory=lambda: torch.device("meta"))
    taken: int = 0
    taken_bytes: int = 0

    def tensor(
        self, name: str, *shape: int, fan_in: int = 0, gain: float = 1.0, value: float | None = None
    ) -> Tensor:
        out = torch.empty(shape, dtype=self.dtype, device=self.device)
        self.taken += out.numel()
        self.taken_bytes += out.numel() * out.element_size()
        return out


def network(name: str) -> MoshiWeights:
    shape = MoshiShape.from_profile(load_profile(name))
    return MoshiWeights(shape, Weightless(torch.bfloat16), Weightless(torch.float32), "shapes")


def test_the_family_is_there() -> None:
    assert {"moshi", "personaplex", "kyutai-stt-1b", "kyutai-stt-2.6b", "moshi-tiny"} <= set(PROFILES)


@pytest.mark.parametrize(
    ("name", "kib_a_token", "mib_a_second", "streams"),
    [
        ("moshi", 512, 6.25, 17),
        ("personaplex", 512, 6.25, 17),
        ("kyutai-stt-1b", 128, 1.5625, 33),
        ("kyutai-stt-2.6b", 384, 4.6875, 33),
    ],
)
def test_cache_growth_is_the_published_one(
    name: str, kib_a_token: int, mib_a_second: float, streams: int
) -> None:
    profile = load_profile(name)
    assert profile.shape.kv_bytes_per_token == kib_a_token * KIB
    assert profile.mean_tokens_per_frame / profile.frame.period_s * kib_a_token * KIB == mib_a_second * MIB
    assert MoshiShape.from_profile(profile).streams == streams


@pytest.mark.parametrize("name", sorted(set(PROFILES) - {"moshi-tiny"}))
def test_weights_of_the_whole_model_are_what_the_profile_plans_for(name: str) -> None:
    """A file also holds what is not run: PersonaPlex's 8 further depth steps, a listener's codec decoder."""
    profile, built = load_profile(name), network(name)
    planned = profile.shape.weight_bytes
    assert planned is not None
    unread = 2 * 0.67e9 if name == "personaplex" else 0
    if built.depth is None:
        whole, heard = (Weightless(torch.float32) for _ in range(2))
        Mimi(whole, built.shape.mimi, 32)
        Mimi(heard, built.shape.mimi, 32, speaks=False)
        unread = whole.taken_bytes - heard.taken_bytes
    assert built.weight_bytes + unread == pytest.approx(planned, rel=0.04)


def test_moshis_weights_read_a_frame_are_what_the_profile_says() -> None:
    """All but the embedding tables, of which a frame reads a row a stream."""
    profile, built = load_profile("moshi"), network("moshi")
    shape = built.shape
    tables = sum(initial + 1 for initial in shape.initial) * shape.decoder.hidden_size
    depth_tables = (32_001 + 7 * 2049) * 1024
    codec = 83_519_297  # float32, read as well
    read = built.parameters - tables - depth_tables - codec
    assert profile.shape.parameters == pytest.approx(read, rel=0.01)


@pytest.mark.parametrize("name", PROFILES)
def test_the_codecs_memory_is_what_the_profile_plans_for(name: str) -> None:
    profile, built = load_profile(name), network(name)
    rings = [stage for stage in profile.stages if stage.kind == "ring"]
    assert len(rings) == (2 if built.depth else 1)
    planned = sum(stage.kv_bytes_per_position * (stage.limit or 0) for stage in rings)
    half = built.mimi.encoder.transformer
    assert rings[0].kv_bytes_per_position == built.shape.mimi.kv_bytes_per_position
    assert half.ring * built.shape.mimi.kv_bytes_per_position * len(rings) == pytest.approx(planned, rel=0.03)


def test_the_tiny_one_runs_in_process() -> None:
    profile = load_profile("moshi-tiny")
    target = InProcessModel.load(profile, device="cpu", seed=1).fresh_engine(profile, slots=3)
    slots = [target.open(), target.open(age_s=60.0)]
    sound = np.random.default_rng(1).standard_normal(profile.frame.samples).astype(np.float32)
    for _ in range(3):
        result = target.step([FrameInput(slot, sound, 1) for slot in slots])
    assert [outcome.delivered for outcome in result.outcomes] == [1, 1]
    assert set(result.stages_s) == {"encode", "prefill", "depth", "codec"}
    assert all(outcome.audio is not None for outcome in result.outcomes)
