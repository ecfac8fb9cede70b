"""Real configurations with known answers: `../shared/cases`, if it is there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from metronome_cli.config.cache_groups import constant_bytes_per_session
from metronome_cli.core.errors import UsageError
from metronome_cli.forecast.checkpoint_config.read_config import read_checkpoint_config

CASES = Path(__file__).parents[4] / "shared" / "cases"
ANSWERS = json.loads((CASES / "answers.json").read_text()) if CASES.is_dir() else {}
CONSTANT = {  # bytes once per session, from the same answers
    "gemma-3n-e4b-tf5": 16_777_216, "gemma-4-26b-a4b": 209_715_200, "gpt-oss-20b": 3_145_728,
    "kyutai-stt-2.6b-hf": 147_456_000, "moshi-7b-kyutai": 1_572_864_000, "moshi-hf-tf5": 1_572_864_000,
    "voxtral-realtime-4b-params": 8192 * 106_496 + 196_608_000,
}  # fmt: skip
PARAMETERS = {  # published sizes
    "deepseek-v3": 671e9, "gpt-oss-20b": 20.9e9, "llama-4-scout": 107.8e9, "moshi-hf-tf5": 6.84e9,
    "nemotron-super-49b": 49.9e9, "qwen2.5-omni-7b": 7.6e9, "qwen3-omni-30b-tf5.7": 30.5e9,
    "qwen3-32b-fp8-static": 32.8e9,
}  # fmt: skip
MISSING = {
    "kyutai-stt-2.6b-repo-noshape": ("num_hidden_layers", "num_attention_heads", "--profile kyutai-stt-2.6b"),
    "personaplex-empty": ("empty", "--profile personaplex"),
    "ultravox-v0.5-1b": ("text_model_id", "meta-llama/Llama-3.2-1B-Instruct"),
}

pytestmark = pytest.mark.skipif(not ANSWERS, reason="no case folder beside the checkout")


@pytest.mark.parametrize("name", sorted(name for name in ANSWERS if name not in MISSING))
def test_a_real_configuration_is_read_right(name: str) -> None:
    decoder, _ = read_checkpoint_config(CASES / "configs" / name)
    answer = ANSWERS[name]
    assert decoder.kv_bytes_per_token == answer["kv_bytes_per_token"]
    assert decoder.context == answer["context"]
    assert decoder.rope_theta == answer["rope_theta"]
    if name in CONSTANT:
        assert constant_bytes_per_session(decoder.groups) == CONSTANT[name]
    if name in PARAMETERS:
        assert decoder.parameters == pytest.approx(PARAMETERS[name], rel=0.03)


@pytest.mark.parametrize("name", sorted(MISSING))
def test_a_file_without_sizes_is_refused_with_what_is_missing(name: str) -> None:
    if name not in ANSWERS:
        pytest.skip("not among the cases")
    with pytest.raises(UsageError) as caught:
        read_checkpoint_config(CASES / "configs" / name)
    told = f"{caught.value.message} {caught.value.hint}"
    assert all(word in told for word in MISSING[name])


def test_a_state_has_the_size_of_its_matrices() -> None:
    """Qwen3.5: 30 layers of 32 heads x 128 x 128 in float32, and a convolution of 4 over 8,192 channels."""
    decoder, _ = read_checkpoint_config(CASES / "configs" / "qwen3.5-35b-a3b")
    assert constant_bytes_per_session(decoder.groups) == 30 * (32 * 128 * 128 * 4 + 8192 * 4 * 2)
