"""The shipped profiles of these models against the published sizes: bytes a position, growth, parameters."""

from __future__ import annotations

import pytest

from metronome_cli.config.profile import Profile
from metronome_cli.config.profile_files import load_profile
from metronome_cli.models.minicpm_o.encoder import UnitEncoder
from metronome_cli.models.minicpm_o.shape import MiniCpmShape
from metronome_cli.models.qwen_omni.model import OmniFrame
from metronome_cli.models.qwen_omni.shape import QwenOmniShape
from metronome_cli.models.qwen_omni.tower import make_tower
from metronome_cli.models.weights.checkpoint import on_meta, parameter_count

KIB, MIB = 1024, 2**20
OMNI = ("qwen2.5-omni-3b", "qwen2.5-omni-7b", "qwen3-omni-30b")
MINI = ("minicpm-o-2.6", "minicpm-o-4.5")


def with_talker(name: str) -> Profile:
    profile = load_profile(name)
    return profile.model_copy(update={"adapter_options": {**profile.adapter_options, "talker": True}})


def mib_per_s(profile: Profile, positions: float) -> float:
    """Growth of the cache when a frame adds that many positions."""
    return positions / profile.frame.period_s * profile.shape.kv_bytes_per_token / MIB


@pytest.mark.parametrize(("name", "kib", "audio_mib_per_s"), [
    ("qwen2.5-omni-3b", 36, 0.88),
    ("qwen2.5-omni-7b", 56, 1.37),
    ("qwen3-omni-30b", 96, 1.22),
])  # fmt: skip
def test_thinkers_cost_what_is_published(name: str, kib: int, audio_mib_per_s: float) -> None:
    profile = load_profile(name)
    plan = OmniFrame.of(profile, QwenOmniShape.of(profile))
    assert profile.shape.kv_bytes_per_token == kib * KIB
    assert mib_per_s(profile, plan.audio) == pytest.approx(audio_mib_per_s, abs=0.01)
    assert plan.markers


@pytest.mark.parametrize(("name", "kib", "listening", "speaking"), [
    ("minicpm-o-2.6", 56, 1.48, 2.02), ("minicpm-o-4.5", 144, 1.83, 4.5),
])  # fmt: skip
def test_units_cost_what_is_published(name: str, kib: int, listening: float, speaking: float) -> None:
    profile = load_profile(name)
    assert profile.shape.kv_bytes_per_token == kib * KIB
    assert mib_per_s(profile, profile.tokens.per_frame(speaking=False)) == pytest.approx(listening, abs=0.01)
    assert mib_per_s(profile, profile.tokens.per_frame(speaking=True)) == pytest.approx(speaking, abs=0.01)


@pytest.mark.parametrize(("name", "kib"), [
    ("qwen2.5-omni-7b", 48), ("qwen3-omni-30b", 20), ("minicpm-o-2.6", 60), ("minicpm-o-4.5", 60),
])  # fmt: skip
def test_talkers_cost_what_their_stage_says(name: str, kib: int) -> None:
    profile = with_talker(name)
    shape = QwenOmniShape.of(profile) if name in OMNI else MiniCpmShape.of(profile)
    stage = next(stage for stage in profile.stages if stage.name == "talker")
    assert shape.talker is not None
    assert shape.talker.kv_bytes_per_token == kib * KIB == stage.kv_bytes_per_position


@pytest.mark.parametrize("name", MINI)
def test_encoders_cost_what_their_stage_says(name: str) -> None:
    profile = load_profile(name)
    encoder = MiniCpmShape.of(profile).encoder
    stage = next(stage for stage in profile.stages if stage.name == "encoder")
    assert 2 * encoder.layers * encoder.width * 2 == 96 * KIB == stage.kv_bytes_per_position
    assert stage.state_bytes == 1450 * 96 * KIB


@pytest.mark.parametrize(("name", "millions"), [("qwen2.5-omni-7b", 640), ("qwen3-omni-30b", 650)])
def test_towers_have_their_published_parameters(name: str, millions: int) -> None:
    shape = QwenOmniShape.of(load_profile(name))
    with on_meta():
        tower = make_tower(shape.family, shape.tower)
    assert parameter_count(tower) / 1e6 == pytest.approx(millions, rel=0.01)


@pytest.mark.parametrize("name", MINI)
def test_the_encoder_is_whisper_mediums(name: str) -> None:
    with on_meta():
        encoder = UnitEncoder(MiniCpmShape.of(load_profile(name)).encoder)
    assert parameter_count(encoder) / 1e6 == pytest.approx(307, rel=0.01)
