"""Small decoders of every architecture, and what stock `transformers` computes with them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import (
    LlamaConfig,
    LlamaModel,
    MistralConfig,
    MistralModel,
    Qwen2Config,
    Qwen2Model,
    Qwen3Config,
    Qwen3Model,
)
from transformers.models.moshi.configuration_moshi import MoshiConfig
from transformers.models.moshi.modeling_moshi import MoshiModel

HIDDEN = 48
COMMON: dict[str, Any] = {
    "vocab_size": 64,
    "hidden_size": HIDDEN,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 4096,
}
ARCHITECTURES = ("llama", "mistral", "qwen2", "qwen3", "moshi")


def decoder(architecture: str, seed: int = 0, **changes: Any) -> Any:
    """A decoder whose weights are large enough that attention is far from uniform."""
    gated = {**COMMON, "intermediate_size": 80, **changes}
    made: Any
    if architecture == "llama":
        made = LlamaModel(LlamaConfig(**gated))
    elif architecture == "mistral":
        made = MistralModel(MistralConfig(**{"sliding_window": None, **gated}))
    elif architecture == "qwen2":
        made = Qwen2Model(Qwen2Config(**gated))
    elif architecture == "qwen3":
        made = Qwen3Model(Qwen3Config(**gated))
    else:
        made = MoshiModel(MoshiConfig(**{**COMMON, "ffn_dim": 160, **changes}))
    return scaled(made, seed)


def scaled(made: Any, seed: int = 0) -> Any:
    """The module with seeded weights of a useful size."""
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in made.named_parameters():
        if parameter.dim() == 1 and "bias" not in name:  # norms
            parameter.data = 1 + 0.1 * torch.randn(parameter.shape, generator=generator)
        else:
            fan_in = parameter.shape[-1] if parameter.dim() > 1 else 4
            parameter.data = torch.randn(parameter.shape, generator=generator) * (2 / fan_in) ** 0.5
    return made.eval()


@torch.no_grad()
def stock_hidden(model: Any, embeds: Tensor, **arguments: Any) -> Tensor:
    """embeds: [tokens, hidden] of one whole session -> [tokens, hidden], full context, no cache."""
    previous = model.config._attn_implementation
    model.set_attn_implementation("eager")
    hidden: Tensor = model(inputs_embeds=embeds[None], use_cache=False, **arguments).last_hidden_state[0]
    model.set_attn_implementation(previous)
    return hidden


def stream(tokens: int, seed: int) -> Tensor:
    """[tokens, hidden] unit-variance inputs of one session."""
    return torch.randn(tokens, HIDDEN, generator=torch.Generator().manual_seed(seed))


def assert_same(actual: Tensor, expected: Tensor) -> None:
    """Equal within float32 rounding, sums taken in another order."""
    torch.testing.assert_close(actual, expected, rtol=2e-4, atol=2e-5)


def feed(stack: Any, slots: Sequence[int], chunks: Sequence[Tensor]) -> Tensor:
    """Append one chunk [n, hidden] to each slot in one batch, with room reserved -> [batch, hidden]."""
    counts = [len(chunk) for chunk in chunks]
    embeds = torch.nn.utils.rnn.pad_sequence(list(chunks), batch_first=True)
    for slot, count in zip(slots, counts, strict=True):
        assert stack.reserve(slot, count)
    hidden: Tensor = stack.forward(slots, embeds, counts)
    return hidden
