"""Checkpoints of the most used decoder families, made tiny by transformers: what runs computes its logits, what
does not is refused by name before a weight is read.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from metronome_cli.config.cache_policy import CachePolicySpec
from metronome_cli.core.errors import UsageError
from metronome_cli.engine.build_decoder import build_decoder
from metronome_cli.models.plain_decoder import profile_for
from metronome_cli.models.weights.model_files import find_model, read_decoder

LENGTH, VOCABULARY, CONTEXT = 10, 64, 64
NO_TOKENS: dict[str, Any] = {"pad_token_id": None, "bos_token_id": None, "eos_token_id": None}
COMMON: dict[str, Any] = {
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "hidden_size": 32, "head_dim": 8,
    "intermediate_size": 48, "vocab_size": VOCABULARY, "max_position_embeddings": CONTEXT,
}  # fmt: skip
OLD: dict[str, Any] = {
    "n_layer": 2,
    "n_head": 4,
    "n_embd": 32,
    "n_positions": CONTEXT,
    "vocab_size": VOCABULARY,
}
SPARSE = {"num_experts": 4, "num_local_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
FAMILIES: dict[str, dict[str, Any]] = {
    "llama": COMMON, "mistral": COMMON | {"sliding_window": None}, "qwen2": COMMON, "qwen3": COMMON,
    "qwen3_moe": COMMON | SPARSE, "mixtral": COMMON | SPARSE | {"sliding_window": None}, "gemma": COMMON,
    "phi": {**COMMON, "head_dim": None}, "phi3": COMMON, "gpt2": OLD, "gpt_neox": COMMON,
    "gptj": OLD | {"rotary_dim": 4},
    "opt": COMMON | {"ffn_dim": 48, "word_embed_proj_dim": 32}, "gpt_bigcode": OLD | {"n_inner": 48},
    "starcoder2": COMMON | {"sliding_window": None}, "stablelm": COMMON, "cohere": COMMON, "olmo2": COMMON,
    "granite": COMMON, "smollm3": COMMON, "glm4": COMMON, "codegen": OLD | {"rotary_dim": 4, "n_ctx": CONTEXT},
}  # fmt: skip
REFUSED: dict[str, dict[str, Any]] = {
    "bloom": {"n_layer": 2, "n_head": 4, "hidden_size": 32, "vocab_size": VOCABULARY},
    "falcon": {"num_hidden_layers": 2, "num_attention_heads": 4, "hidden_size": 32, "vocab_size": VOCABULARY},
    "gemma2": COMMON,
    "bert": {key: value for key, value in COMMON.items() if key != "head_dim"},
    "mamba": {"num_hidden_layers": 2, "hidden_size": 32, "vocab_size": VOCABULARY},
}
TABLE_OF_POSITIONS = ("gpt2", "opt", "gpt_bigcode")


def checkpoint(folder: Path, kind: str, sizes: dict[str, Any]) -> Any:
    """A saved model with seeded weights."""
    known = CONFIG_MAPPING[kind]()
    config = CONFIG_MAPPING[kind](
        **{k: v for k, v in (NO_TOKENS | sizes).items() if hasattr(known, k) or k in OLD}
    )
    torch.manual_seed(3)
    model = AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        for weight in model.parameters():
            if weight.dim() > 1:
                weight.normal_(std=0.3)
    model.save_pretrained(folder)
    return model


@pytest.mark.parametrize("kind", sorted(FAMILIES))
def test_a_family_computes_transformers_own_logits(kind: str, tmp_path: Path) -> None:
    model = checkpoint(tmp_path, kind, FAMILIES[kind])
    decoder, vocabulary = read_decoder(find_model(str(tmp_path)), torch.device("cpu"))
    paged = build_decoder(decoder, blocks=8, policy=CachePolicySpec.parse("unbounded"), block_tokens=4)
    ids = torch.randint(0, VOCABULARY, (1, LENGTH), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        wanted = model(input_ids=ids).logits[0]
    paged.open(0)
    assert paged.reserve(0, LENGTH)
    first = paged.states(0, vocabulary.embed(ids[0, :4].tolist()))  # a prompt, and then token by token
    rest = [paged.states(0, vocabulary.embed(ids[0, at : at + 1].tolist())) for at in range(4, LENGTH)]
    logits = vocabulary.logits(torch.cat([first, *rest]))
    torch.testing.assert_close(logits, wanted, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("kind", TABLE_OF_POSITIONS)
def test_a_table_of_positions_ends_under_a_window_too(kind: str, tmp_path: Path) -> None:
    checkpoint(tmp_path, kind, FAMILIES[kind])
    decoder, _ = read_decoder(find_model(str(tmp_path)), torch.device("cpu"))
    policy = CachePolicySpec.parse("window(16)")
    paged = build_decoder(decoder, blocks=32, policy=policy, block_tokens=4, context=CONTEXT)
    paged.open(0)
    assert not paged.passes_context(0, CONTEXT)
    assert paged.passes_context(0, CONTEXT + 1)
    with pytest.raises(UsageError, match="sinks cannot roll"):
        build_decoder(decoder, blocks=32, policy=CachePolicySpec.parse("window(16, 4)"), block_tokens=4)


@pytest.mark.parametrize("kind", sorted(REFUSED))
def test_a_family_that_does_not_run_is_refused_from_its_configuration(kind: str, tmp_path: Path) -> None:
    CONFIG_MAPPING[kind](**REFUSED[kind]).save_pretrained(tmp_path)  # no weights: nothing to load
    with pytest.raises(UsageError, match=kind):
        profile_for(str(tmp_path))
