"""From config.json and memory to a pool."""

from __future__ import annotations

from typing import Any

import pytest

from metronome_cli.config.cache_groups import describe_groups, grows_until
from metronome_cli.core.errors import UsageError
from metronome_cli.forecast.checkpoint_config.read_config import read_config
from metronome_cli.forecast.memory import MemoryPlan, WeightBytes, profile_weights, state_outside
from metronome_cli.forecast.pool_forecast import PoolBudget
from tests.forecast.profiles import SHAPE, profile

GIB = 2**30
QWEN3 = {
    "model_type": "qwen3", "num_hidden_layers": 36, "num_attention_heads": 32, "num_key_value_heads": 8,
    "head_dim": 128, "hidden_size": 4096, "intermediate_size": 12_288, "vocab_size": 151_748,
    "max_position_embeddings": 40_960, "rope_theta": 1e6, "torch_dtype": "bfloat16", "tie_word_embeddings": False,
    "sliding_window": None, "use_sliding_window": False,
}  # fmt: skip
OMNI: dict[str, Any] = {
    "model_type": "qwen3_omni_moe",
    "talker_config": {"text_config": {"num_hidden_layers": 20}},
    "thinker_config": {
        "dtype": "bfloat16",
        "audio_config": {"d_model": 1280},
        "text_config": {
            "num_hidden_layers": 48, "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128,
            "hidden_size": 2048, "intermediate_size": 768, "moe_intermediate_size": 768, "num_experts": 128,
            "num_experts_per_tok": 8, "vocab_size": 152_064, "max_position_embeddings": 65_536,
        },
    },
}  # fmt: skip


def test_a_plain_decoder() -> None:
    decoder = read_config(QWEN3)
    assert decoder.kv_bytes_per_token == 144 * 1024
    assert decoder.context == 40_960
    assert decoder.parameters == pytest.approx(8.2e9, rel=0.02)
    assert [group.law for group in decoder.groups] == ["growing"]


def test_a_thinker_inside_an_omni_model() -> None:
    decoder = read_config(OMNI)
    assert decoder.kv_bytes_per_token == 96 * 1024
    assert decoder.parameters == pytest.approx(30e9, rel=0.05)
    assert decoder.active == pytest.approx(3.3e9, rel=0.1)
    assert "thinker_config.text_config" in decoder.notes[0]


def test_layers_of_other_kinds_keep_no_growing_cache() -> None:
    kinds = ["linear_attention", "linear_attention", "full_attention"] * 12
    groups = read_config(QWEN3 | {"layer_types": kinds}).groups
    assert [(group.law, group.layers) for group in groups] == [("growing", 12), ("state", 24)]


@pytest.mark.parametrize(
    ("kinds", "says"),
    [
        (["sliding_attention"] * 3, "a list of 3"),
        ([], "a list of 0"),
        (["full_attention"] * 37, "a list of 37"),
        ("sliding_attention", "layer_types is 'sliding_attention'"),
        ([1] * 36, "layer_types is "),
    ],
)
def test_kinds_of_layers_that_are_not_one_each_are_refused(kinds: object, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        read_config(QWEN3 | {"layer_types": kinds, "sliding_window": 128})


def test_latent_attention_caches_the_latent() -> None:
    decoder = read_config(QWEN3 | {"kv_lora_rank": 512, "qk_rope_head_dim": 64})
    assert decoder.kv_bytes_per_token == 36 * 576 * 2


@pytest.mark.parametrize(
    ("change", "until"),
    [
        ({"sliding_window": 4096, "use_sliding_window": True, "max_window_layers": 0}, 4096),
        ({"sliding_window": 4096, "use_sliding_window": True, "max_window_layers": 36}, None),
        ({"sliding_window": 4096, "use_sliding_window": False}, None),
        ({"sliding_window": 4096, "use_sliding_window": True, "layer_types": ["full_attention"] * 36}, None),
    ],
)
def test_growth_ends_if_all_layers_have_a_window(change: dict[str, Any], until: int | None) -> None:
    assert grows_until(read_config(QWEN3 | change).groups) == until


@pytest.mark.parametrize("key", ["num_hidden_layers", "num_attention_heads"])
def test_what_the_cache_needs_is_not_made_up(key: str) -> None:
    config = {name: value for name, value in QWEN3.items() if name != key}
    with pytest.raises(UsageError, match=key):
        read_config(config)


@pytest.mark.parametrize("key", ["vocab_size", "intermediate_size"])
def test_without_a_width_the_cache_is_known_and_the_weights_are_not(key: str) -> None:
    decoder = read_config({name: value for name, value in QWEN3.items() if name != key})
    assert decoder.kv_bytes_per_token == 144 * 1024
    assert decoder.parameters is None
    assert any(key in note for note in decoder.notes)


@pytest.mark.parametrize("value", [0, -3, "many", True, 1.5, 10**12])
def test_numbers_that_are_none_are_refused(value: object) -> None:
    with pytest.raises(UsageError, match="num_key_value_heads"):
        read_config(QWEN3 | {"num_key_value_heads": value})


WINDOWED = {
    "cache": [
        {"name": "full", "law": "growing", "layers": 5, "key_width": 512, "value_width": 512},
        {
            "name": "window",
            "law": "windowed",
            "layers": 25,
            "key_width": 1024,
            "value_width": 1024,
            "limit": 1024,
        },
        {"name": "state", "law": "state", "layers": 2, "state_bytes": "1MiB"},
    ],
}


def test_windows_and_states_are_paid_once_by_every_session() -> None:
    """10 KiB per position grow; 25 x 2,048 x 2 x 1,024 bytes and 1 MiB do not."""
    case = profile(kv_pool=None, shape=SHAPE | WINDOWED)
    once = 25 * 2048 * 2 * 1024 + 2**20
    assert case.shape.kv_bytes_per_token == 5 * 1024 * 2
    assert state_outside(case) == once
    own = profile(kv_pool={"bytes": "1GiB"}, shape=SHAPE | WINDOWED)
    budget = PoolBudget.of(own)
    each = own.shape.kv_bytes_per_token * budget.block_tokens
    assert budget.blocks_for(4) == (2**30 - 4 * once) // each
    assert describe_groups(own.shape.cache) == "grows by 10 KiB per token, plus 101 MiB once per session"


def test_lines_add_up_to_the_pool() -> None:
    plan = MemoryPlan(profile(kv_pool=None), 96 * GIB, WeightBytes(33 * GIB, "files"))
    lines = plan.lines(100)
    assert [line.what for line in lines] == ["memory", "reserve", "weights", "activations", "KV pool"]
    assert sum(line.size for line in lines[:-1]) == lines[-1].size
    per_block = profile().shape.kv_bytes_per_token * 16
    assert 0 <= lines[-1].size - plan.blocks(100) * per_block < per_block


def test_state_outside_the_pool_is_paid_by_every_session() -> None:
    stages = [
        {"name": "codec", "kind": "state", "state_bytes": "8MiB"},
        {"name": "ring", "kind": "ring", "limit": 250, "kv_bytes_per_position": 32 * 1024},
        {"name": "talker", "kind": "paged", "limit": 4096, "kv_bytes_per_position": 60 * 1024,
         "positions_per_s": {"speaking": 25}},
        {"name": "turns", "kind": "paged", "limit": 4096, "kv_bytes_per_position": 60 * 1024, "resets": "turn",
         "positions_per_s": {"speaking": 25}},
        {"name": "pooled", "kind": "paged", "kv_bytes_per_position": 1024, "pool": {"blocks": 10}},
        {"name": "depth", "kind": "per_frame", "kv_bytes_per_position": 1024, "limit": 8},
    ]  # fmt: skip
    case = profile(kv_pool=None, stages=stages)
    each = 8 * 2**20 + 250 * 32 * 1024 + 4096 * 60 * 1024  # ten minutes of talk pass the limit
    each += 922 * 60 * 1024  # 4.6 turns of 8 s at 25 a second
    assert state_outside(case) == each
    plan = MemoryPlan(case, 96 * GIB, WeightBytes(GIB, "files"))
    shrink = plan.lines(1)[-1].size - plan.lines(11)[-1].size
    assert shrink == pytest.approx(10 * each, rel=0.01)


def test_weights_that_do_not_fit_are_said_line_by_line() -> None:
    plan = MemoryPlan(profile(kv_pool=None), 24 * GIB, WeightBytes(33 * GIB, "files"))
    with pytest.raises(UsageError, match=r"weights -33\.00 GiB"):
        plan.budget(1)


def test_weights_of_a_profile() -> None:
    assert profile_weights(profile(shape=SHAPE | {"weight_bytes": "3GiB"})).size == 3 * GIB
    counted = profile_weights(profile(shape=SHAPE | {"parameters": 10**9}))
    assert counted.size == 2 * 10**9
    assert "shape.parameters" in counted.how
