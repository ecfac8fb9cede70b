"""The shipped profiles: bytes and growth as published, and honest about what is not verified."""

from __future__ import annotations

import pytest

from metronome_cli.commands.describe_profile import blocks_per_session, profile_card
from metronome_cli.config.model_shape import CacheStage
from metronome_cli.config.profile import Profile
from metronome_cli.config.profile_files import list_profiles, load_profile, profile_names
from metronome_cli.core.package_data import data_dir
from metronome_cli.core.types import FrameInput
from metronome_cli.models.registry import ADAPTERS

KIB, MIB, GIB = 2**10, 2**20, 2**30
TINY = ["moshi-tiny", "qwen2.5-omni-tiny", "qwen3-omni-tiny", "minicpm-o-tiny"]
OURS = ["default", "smoke", *TINY]
PUBLISHED = [name for name in profile_names() if name not in OURS]

# Name: KiB a position; MiB a second of audio alone; positions after which the cache is bounded or ends.
TABLE = {
    "moshi": (512, 6.25, 3000),
    "personaplex": (512, 6.25, 3000),
    "kyutai-stt-1b": (128, 1.56, 750),
    "kyutai-stt-2.6b": (384, 4.69, 375),
    "kyutai-tts-1.6b": (128, 1.56, 500),
    "minicpm-o-2.6": (56, 1.48, 32_768),
    "minicpm-o-4.5": (144, 1.69, 40_960),
    "qwen2.5-omni-7b": (56, 1.42, 32_768),
    "qwen2.5-omni-3b": (36, 0.91, 32_768),
    "qwen3-omni-30b": (96, 1.31, 65_536),
    "voxtral-realtime-4b": (104, 1.27, 8192),
    "csm-1b": (32, 0.39, 2048),
    "glm-4-voice": (40, 0.49, 8192),
    "step-audio-2-mini": (56, 0.68, 16_384),
    "nemotronlabs-voicechat-11b": (16, 0.195, 131_072),
    "lfm2.5-audio": (12, 0.146, 128_000),
    "kimi-audio": (68, 0.83, 8192),
    "qwen3-asr": (112, 1.42, 65_536),
}
# Profile, stage: KiB a position, MiB a second while speaking, MiB at most.
STAGES = {
    ("moshi", "depth"): (24, None, 24 * 8 / 1024),
    ("moshi", "codec encoder"): (32, 0.78, 7.8),
    ("moshi", "codec decoder"): (32, 0.78, 7.8),
    ("minicpm-o-2.6", "encoder"): (96, 4.7, 136),
    ("minicpm-o-4.5", "encoder"): (96, 4.7, 136),
    ("minicpm-o-4.5", "talker"): (60, 2.64, 240),
    ("qwen2.5-omni-7b", "talker"): (48, 2.34, 1536),
    ("qwen3-omni-30b", "talker"): (20, 0.24, 1280),
    ("voxtral-realtime-4b", "encoder"): (256, 12.5, 187.5),
    ("csm-1b", "depth"): (4, None, 4 * 33 / 1024),
}


def bound(profile: Profile) -> int:
    spec = profile.policy_spec
    return profile.shape.context_length if spec.kind == "unbounded" else spec.window + spec.sinks


def stage_of(name: str, stage: str) -> CacheStage:
    return next(one for one in load_profile(name).stages if one.name == stage)


def test_the_table_is_complete() -> None:
    assert sorted(TABLE) == sorted(PUBLISHED)


@pytest.mark.parametrize("name", TABLE)
def test_bytes_growth_and_bound_are_the_published_ones(name: str) -> None:
    kib, mib_per_s, positions = TABLE[name]
    profile = load_profile(name)
    assert profile.shape.kv_bytes_per_token == kib * KIB
    audio = profile.tokens.prefill / profile.frame.period_s * profile.shape.kv_bytes_per_token
    assert audio / MIB == pytest.approx(mib_per_s, abs=0.006)
    assert bound(profile) == positions


@pytest.mark.parametrize(("name", "listening", "speaking"), [
    ("moshi", 6.25, 6.25), ("minicpm-o-4.5", 1.83, 4.5), ("csm-1b", 0.39, 0.39),
])  # fmt: skip
def test_growth_in_both_states(name: str, listening: float, speaking: float) -> None:
    growth = profile_card(load_profile(name)).growth_bytes_per_s
    assert growth.listening is not None
    assert growth.speaking is not None
    assert growth.listening / MIB == pytest.approx(listening, abs=0.006)
    assert growth.speaking / MIB == pytest.approx(speaking, abs=0.006)


@pytest.mark.parametrize(("name", "stage"), STAGES)
def test_stages_cost_what_is_published(name: str, stage: str) -> None:
    kib, mib_per_s, at_most = STAGES[name, stage]
    assert stage_of(name, stage).kv_bytes_per_position == kib * KIB
    card = next(one for one in profile_card(load_profile(name)).stages if one.name == stage)
    growth = card.growth_bytes_per_s.speaking
    assert growth is not None
    assert growth / MIB == pytest.approx(mib_per_s or 0, abs=0.02)
    assert card.bytes_at_most is not None
    assert card.bytes_at_most / MIB == pytest.approx(at_most, rel=0.01)


def test_a_moshi_ring_is_as_large_as_published() -> None:
    profile = load_profile("moshi")
    blocks = blocks_per_session(profile, 0.0)
    assert blocks * 16 * profile.shape.kv_bytes_per_token / GIB == pytest.approx(1.465, abs=0.01)


def test_sixteen_unbounded_sessions_fill_the_default_pool_after_about_a_minute() -> None:
    profile = load_profile("default")
    assert profile.kv_pool is not None
    assert profile.kv_pool.blocks is not None
    rate = 16 * profile.mean_tokens_per_frame / profile.frame.period_s
    assert profile.kv_pool.blocks * profile.kv_pool.block_size / rate == pytest.approx(60, abs=1)
    assert 16 * blocks_per_session(profile, 3600.0) < profile.kv_pool.blocks / 4


@pytest.mark.parametrize("name", profile_names())
def test_the_file_is_named_like_its_profile_and_its_adapter_exists(name: str) -> None:
    profile = load_profile(name)
    assert profile.name == name
    assert profile.adapter is None or profile.adapter in ADAPTERS
    assert profile.objectives
    assert any(text.startswith("empty") for text in profile.objectives)


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_figures_have_sources_and_doubt_is_named(name: str) -> None:
    profile = load_profile(name)
    assert profile.sources
    second_hand = [source.what for source in profile.sources if source.grade in "BC"]
    doubtful = [stage.name for stage in profile.stages if not stage.verified]
    assert not profile.verified or not (second_hand or doubtful)


@pytest.mark.parametrize("name", ["voxtral-realtime-4b", "glm-4-voice", "step-audio-2-mini", "minicpm-o-4.5"])
def test_second_hand_profiles_say_what_is_not_verified(name: str) -> None:
    profile = load_profile(name)
    assert not profile.verified
    assert all(": " in figure for figure in profile.unverified)


@pytest.mark.parametrize("name", ["smoke", *TINY])
def test_small_profiles_run_a_few_frames(name: str) -> None:
    import numpy as np

    from metronome_cli.backends.in_process.engine import InProcessModel

    profile = load_profile(name)
    target = InProcessModel.load(profile, device="cpu", seed=0).fresh_engine(profile, 2)
    slots = [target.open(), target.open(10.0)]
    rng = np.random.default_rng(0)
    for _ in range(2):
        audio = rng.standard_normal((2, profile.frame.samples)).astype(np.float32) * 0.1
        frames = [
            FrameInput(s, one, profile.tokens.decode.speaking) for s, one in zip(slots, audio, strict=True)
        ]
        outcomes = target.step(frames).outcomes
        assert [outcome.delivered for outcome in outcomes] == [profile.tokens.decode.speaking] * 2


def test_list_is_every_file() -> None:
    assert len(list_profiles()) == len(list(data_dir("profiles").glob("*.yaml")))
