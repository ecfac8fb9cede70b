"""Whatever a configuration holds, it is read or refused in one line; nothing else is raised."""

from __future__ import annotations

import copy
import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from metronome_cli.core.errors import UsageError
from metronome_cli.forecast.checkpoint_config.read_config import read_checkpoint_config, read_config

SEEDS: list[dict[str, Any]] = [
    {"model_type": "llama", "num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 2,
     "hidden_size": 64, "intermediate_size": 128, "vocab_size": 100, "max_position_embeddings": 512,
     "rope_theta": 1e4, "sliding_window": 64, "torch_dtype": "bfloat16"},
    {"text_config": {"num_hidden_layers": 3, "num_attention_heads": 4, "head_dim": 8, "hidden_size": 32,
                     "layer_types": ["full_attention", "linear_attention", "sliding_attention"], "sliding_window": 8,
                     "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 8,
                     "linear_value_head_dim": 8, "linear_conv_kernel_dim": 4, "num_experts": 8,
                     "moe_intermediate_size": 16, "rope_parameters": {"full_attention": {"rope_theta": 1e6}}},
     "quantization_config": {"kv_cache_scheme": {"num_bits": 8}}},
    {"dim": 64, "num_heads": 4, "num_layers": 2, "context": 100, "max_period": 10000.0, "hidden_scale": 4.125,
     "n_q": 4, "card": 16, "text_card": 50},
    {"num_hidden_layers": 2, "num_attention_heads": 4, "hidden_size": 32, "kv_lora_rank": 16, "qk_rope_head_dim": 8,
     "qk_nope_head_dim": 8, "v_head_dim": 8, "q_lora_rank": None, "intermediate_size": 64, "vocab_size": 10,
     "block_configs": [{"attention": {"no_op": True}, "ffn": {"ffn_mult": 1.0}},
                       {"attention": {"n_heads_in_group": 2}, "ffn": {"no_op": True}}]},
    {"n_layers": 2, "n_heads": 4, "dim": 32, "hidden_dim": 64, "vocab_size": 10, "sliding_window": [None, 8],
     "multimodal": {"whisper_model_args": {"encoder_args": {"dim": 16, "n_layers": 2, "n_heads": 2, "causal": True,
                                                            "sliding_window": 4}}}},
]  # fmt: skip
HOSTILE = st.sampled_from(
    [None, -1, 0, 1, 3, 10**9, 10**12, 10**299, -(10**299), 1.5, -0.5, 1e300, True, False, "", "x", "evil", "M*-E",
     [], [None], [[]], [-1], [1, 2], ["x"], ["full_attention"], {}, {"a": 1}, {"num_bits": 4}, "\x1b[2J", "x" * 5000]
)  # fmt: skip
EXTRA = (
    "layer_types", "layers_block_type", "block_types", "hybrid_override_pattern", "full_attn_idxs", "attn_type_list",
    "linear_attn_config", "attn_layer_period", "full_attention_interval", "hybrid_layer_pattern", "no_rope_layers",
    "attention_chunk_size", "sliding_window_pattern", "attention_types", "max_window_layers", "use_sliding_window",
    "num_kv_shared_layers", "use_cla", "cla_share_factor", "kimia_mimo_layers", "index_topk", "index_head_dim",
    "per_layer_config", "multi_query", "num_key_value_heads", "v_head_dim", "global_head_dim", "mamba_d_state",
    "mamba_expand", "conv_L_cache", "lru_width", "is_encoder_decoder", "max_source_positions", "kv_cache_dtype",
    "dtype", "model_type", "rope_scaling", "rope_ratio", "mlp_layer_types", "moe_layer_freq", "n_shared_experts",
    "cross_attention_layers", "hidden_size_per_layer_input", "tie_word_embeddings", "quantization_config",
)  # fmt: skip


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_any_value_under_any_key_is_read_or_refused(data: st.DataObject) -> None:
    config = copy.deepcopy(data.draw(st.sampled_from(SEEDS)))
    for _ in range(data.draw(st.integers(1, 3))):
        part = data.draw(st.sampled_from(_parts(config)))
        key = data.draw(st.sampled_from([*part, *EXTRA]))
        part[key] = copy.deepcopy(data.draw(HOSTILE))
    _reads_or_refuses(config)


def _parts(value: Any) -> list[dict[str, Any]]:
    if isinstance(value, list):
        return [part for item in value for part in _parts(item)]
    if not isinstance(value, dict):
        return []
    return [value, *(part for item in value.values() for part in _parts(item))]


def _reads_or_refuses(config: dict[str, Any]) -> None:
    refused: UsageError | None = None
    try:
        assert read_config(config).groups
    except UsageError as error:
        refused = error
    if refused is not None:
        assert "\n" not in refused.message
        assert len(refused.message) < 600


@pytest.mark.parametrize(
    "text",
    [
        b"", b"[]", b"5", b"{", b"\xff\xfe", b'{"a":' * 10_000 + b"1" + b"}" * 10_000, b"GGUF\x03\x00", b"PK\x03\x04",
        b'{"num_hidden_layers": ' + b"9" * 400 + b"}", b"[model]\nlayers = 3\n", b"layers: 3\n", b"<html>",
        b'{"hidden_size": NaN}', b'{"a": 1, "a": 2}', b"version https://git-lfs.github.com/spec/v1\n", b"{}",
    ],
)  # fmt: skip
def test_a_file_that_is_no_configuration_is_refused_in_one_line(tmp_path: Path, text: bytes) -> None:
    file = tmp_path / "config.json"
    file.write_bytes(text)
    with pytest.raises(UsageError) as caught:
        read_checkpoint_config(file)
    assert str(file) in caught.value.message
    assert "\n" not in caught.value.message


def test_pipes_directories_and_missing_files_are_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "config.json")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "config.json").mkdir()
    for path in (tmp_path, tmp_path / "config.json", tmp_path / "folder", tmp_path / "gone.json"):
        with pytest.raises(UsageError):
            read_checkpoint_config(path)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"layer_types": ["full_attention", "unheard_of", "full_attention", "full_attention"]}, "unheard_of"),
        ({"num_attention_heads": -8}, "num_attention_heads"),
        ({"hidden_size": [64]}, "hidden_size"),
        ({"torch_dtype": "evil"}, "torch_dtype"),
        ({"kv_cache_dtype": "nvfp4"}, "kv_cache_dtype"),
        ({"model_type": "gemma99"}, "sliding_window"),
        ({"mamba_d_state": 16}, "mamba_d_state"),
        ({"num_kv_shared_layers": 9}, "num_kv_shared_layers"),
        ({"layer_types": ["full_attention"]}, "layer_types"),
    ],
)
def test_what_is_impossible_or_unknown_is_named(change: dict[str, Any], named: str) -> None:
    with pytest.raises(UsageError, match=named):
        read_config({**SEEDS[0], **change})


@pytest.mark.parametrize("key", ["pretrained_llm", "text_model_id", "llm_model_name", "language_model_path"])
def test_a_decoder_that_is_named_elsewhere_is_told(key: str) -> None:
    encoder = {"num_hidden_layers": 32, "num_attention_heads": 20, "hidden_size": 1280}
    config = {"model_type": "x", key: "org/Model-1.7B", "audio_config": encoder}
    with pytest.raises(UsageError, match=f"{key} names org/Model-1.7B"):
        read_config(config)


def test_a_decoder_is_found_under_any_key() -> None:
    decoder = {key: value for key, value in SEEDS[0].items() if key != "model_type"}
    encoder = {"num_hidden_layers": 32, "num_attention_heads": 20, "hidden_size": 1280}
    for path in ("llm_config", "language_model", "my_backbone", "model"):
        nested = {"audio_tower_config": encoder, "wrapper": {path: decoder}}
        assert read_config(json.loads(json.dumps(nested))).layers == 4
