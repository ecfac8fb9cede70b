"""The reader against transformers' own classes: parameters, and the cache that one forward pass allocates.

Models stand on the meta device: shapes are real, nothing is computed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import transformers
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from metronome_cli.forecast.checkpoint_config.read_config import read_config

POSITIONS = 8
FAMILIES = {  # model type: class, and what to change of the class's own sizes
    "llama": "LlamaForCausalLM", "mistral": "MistralForCausalLM", "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM", "qwen3_moe": "Qwen3MoeForCausalLM", "gemma2": "Gemma2ForCausalLM",
    "gemma3_text": "Gemma3ForCausalLM", "gemma4_text": "Gemma4ForCausalLM", "phi": "PhiForCausalLM",
    "phi3": "Phi3ForCausalLM", "gpt2": "GPT2LMHeadModel", "gpt_neox": "GPTNeoXForCausalLM",
    "bloom": "BloomForCausalLM", "falcon": "FalconForCausalLM", "opt": "OPTForCausalLM", "gptj": "GPTJForCausalLM",
    "gpt_oss": "GptOssForCausalLM", "mixtral": "MixtralForCausalLM", "olmo2": "Olmo2ForCausalLM",
    "starcoder2": "Starcoder2ForCausalLM", "cohere2": "Cohere2ForCausalLM", "deepseek_v3": "DeepseekV3ForCausalLM",
    "qwen3_next": "Qwen3NextForCausalLM", "qwen3_5_text": "Qwen3_5ForCausalLM", "lfm2": "Lfm2ForCausalLM",
    "jamba": "JambaForCausalLM", "mamba2": "Mamba2ForCausalLM", "falcon_h1": "FalconH1ForCausalLM",
    "glm": "GlmForCausalLM", "granite": "GraniteForCausalLM",
}  # fmt: skip
STATEFUL = ("conv_states", "recurrent_states")


@pytest.mark.parametrize("kind", sorted(FAMILIES))
def test_parameters_and_cache_are_those_of_the_class(kind: str, bfloat16: None) -> None:
    config = _shallow(kind)
    decoder = read_config({**json.loads(json.dumps(config.to_dict())), "dtype": "bfloat16"})
    with torch.device("meta"):
        model = getattr(transformers, FAMILIES[kind])(config).eval()
    counted = sum(weight.numel() for weight in {id(p): p for p in model.parameters()}.values())
    assert decoder.parameters == pytest.approx(counted, rel=0.03)
    assert sum(group.bytes_at(POSITIONS) for group in decoder.groups) == _cache_bytes(model)


def _shallow(kind: str) -> Any:
    """The class's own sizes with few layers, so that embeddings do not hide the layers' weights."""
    config = CONFIG_MAPPING[kind]()
    layers = min(8, config.num_hidden_layers)
    changed: dict[str, Any] = {"num_hidden_layers": layers, "vocab_size": 4096, "pad_token_id": None}
    if isinstance(getattr(config, "layer_types", None), list) and "layer_types" in config.to_dict():
        changed["layer_types"] = config.layer_types[:layers]
    return CONFIG_MAPPING[kind](**changed)


def _cache_bytes(model: Any) -> int:
    ids = torch.zeros((1, POSITIONS), dtype=torch.long, device="meta")
    with torch.no_grad():
        out = model(input_ids=ids, use_cache=True)
    cache = getattr(out, "past_key_values", None)
    cache = out.cache_params if cache is None else cache
    return sum(t.numel() * t.element_size() for layer in cache.layers for t in _tensors(layer))


def _tensors(layer: Any) -> Iterator[torch.Tensor]:
    held = [getattr(layer, name, None) for name in ("keys", "values", "indexer_keys")]
    for name in STATEFUL:
        held += list((getattr(layer, name, None) or {}).values())
    yield from (tensor for tensor in held if isinstance(tensor, torch.Tensor))


@pytest.fixture
def bfloat16() -> Iterator[None]:
    """Models are made in bfloat16, as checkpoints are published."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    yield
    torch.set_default_dtype(before)
