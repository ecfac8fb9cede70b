"""The engine computes what stock transformers computes: every architecture, both ways through the layers."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers.models.qwen2_5_omni.configuration_qwen2_5_omni import Qwen2_5OmniTextConfig
from transformers.models.qwen2_5_omni.modeling_qwen2_5_omni import Qwen2_5OmniThinkerTextModel
from transformers.models.qwen3_omni_moe.configuration_qwen3_omni_moe import Qwen3OmniMoeTextConfig
from transformers.models.qwen3_omni_moe.modeling_qwen3_omni_moe import Qwen3OmniMoeThinkerTextModel

from metronome_cli.config.cache_policy import CachePolicySpec
from metronome_cli.engine.build_decoder import build_decoder
from metronome_cli.engine.paged_decoder import PagedDecoder

from .decoders import ARCHITECTURES, COMMON, assert_same, decoder, feed, scaled, stock_hidden, stream

UNBOUNDED = CachePolicySpec("unbounded")
WAYS = ("fast", "general")


def _stack(architecture: str, way: str, **options: object) -> tuple[PagedDecoder, object]:
    model = decoder(architecture)
    arguments = {"blocks": 40, "block_tokens": 4, "policy": UNBOUNDED, "poison": True, **options}
    return build_decoder(model, way=way, **arguments), model  # type: ignore[arg-type]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_batch_of_mixed_ages_over_several_frames_equals_stock(architecture: str, way: str) -> None:
    stack, model = _stack(architecture, way)
    sessions = {slot: stream(tokens, slot) for slot, tokens in ((0, 33), (1, 22), (2, 12))}
    ages = {0: 14, 1: 3, 2: 0}  # lived before the batch begins, fed alone
    expected = {slot: stock_hidden(model, embeds) for slot, embeds in sessions.items()}
    for slot, age in ages.items():
        stack.open(slot)
        if age:
            feed(stack, [slot], [sessions[slot][:age]])
    at = dict(ages)
    for frame in ((3, 1, 2), (1, 1, 1), (5, 7, 4), (1, 2, 1), (1, 1, 1)):
        chunks = [sessions[slot][at[slot] : at[slot] + n] for slot, n in zip(sessions, frame, strict=True)]
        hidden = feed(stack, list(sessions), chunks)
        for slot, n in zip(sessions, frame, strict=True):
            at[slot] += n
            assert_same(hidden[slot], expected[slot][at[slot] - 1])


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_fast_way_is_taken_for_the_family(architecture: str) -> None:
    stack, _ = _stack(architecture, "auto")
    assert stack.describe()["path"] == "fast"


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("policy", ["window(9, 3)", "window(6, 0)", "ring(7)", "recycle(8)"])
def test_both_ways_agree_under_every_policy(architecture: str, policy: str) -> None:
    embeds = stream(60, 5)
    outputs = []
    for way in WAYS:
        stack, _ = _stack(architecture, way, policy=CachePolicySpec.parse(policy), chunk=3)
        stack.open(0)
        outputs.append([feed(stack, [0], [embeds[at : at + 3]]) for at in range(0, 60, 3)])
    assert_same(torch.cat(outputs[0]), torch.cat(outputs[1]))


@pytest.mark.parametrize("way", WAYS)
def test_a_models_own_sliding_window_is_kept(way: str) -> None:
    model = decoder("mistral", sliding_window=6)
    stack = build_decoder(model, blocks=20, block_tokens=4, policy=UNBOUNDED, way=way)  # type: ignore[arg-type]
    embeds = stream(20, 1)
    stack.open(0)
    hidden = torch.cat([feed(stack, [0], [embeds[at : at + 2]]) for at in range(0, 20, 2)])
    assert_same(hidden, stock_hidden(model, embeds)[1::2])


@pytest.mark.parametrize("rope", ["llama3", "yarn", "linear"])
def test_scaled_rotary_tables_are_taken_as_they_are(rope: str) -> None:
    parameters = {
        "rope_type": rope,
        "rope_theta": 10000.0,
        "factor": 4.0,
        "original_max_position_embeddings": 64,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
    }
    if rope != "llama3":
        parameters = {k: v for k, v in parameters.items() if "freq" not in k}
    if rope == "linear":
        parameters.pop("original_max_position_embeddings")
    model = decoder("llama", rope_parameters=parameters)
    stack = build_decoder(model, blocks=40, block_tokens=4, policy=UNBOUNDED)
    assert stack.describe()["path"] == "fast"
    embeds = stream(80, 2)
    stack.open(0)
    hidden = torch.cat([feed(stack, [0], [embeds[at : at + 5]]) for at in range(0, 80, 5)])
    assert_same(hidden, stock_hidden(model, embeds)[4::5])


def test_a_rotary_table_that_depends_on_length_goes_the_general_way() -> None:
    model = decoder("llama", rope_parameters={"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 2.0})
    assert build_decoder(model, blocks=4, policy=UNBOUNDED).describe()["path"] == "general"
    with pytest.raises(ValueError, match="fast way does not know"):
        build_decoder(model, blocks=4, policy=UNBOUNDED, way="fast")


def test_other_users_of_the_modules_configuration_still_run() -> None:
    """The registered attention outside a step is sdpa, mask included."""
    model = decoder("llama")
    embeds = stream(9, 3)
    expected = stock_hidden(model, embeds)
    build_decoder(model, blocks=4, policy=UNBOUNDED, way="general")
    with torch.no_grad():
        hidden = model(inputs_embeds=embeds[None], use_cache=False).last_hidden_state[0]
    assert_same(hidden, expected)


def _thinker(kind: str) -> Any:
    """The text decoder of an omni model: three rows of positions, and for Qwen3 a mixture of experts."""
    rope: dict[str, Any] = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [1, 1, 2]}
    if kind == "qwen2.5-omni":
        plain = {key: value for key, value in COMMON.items() if key != "head_dim"}
        config = Qwen2_5OmniTextConfig(**plain, intermediate_size=64, rope_parameters=rope)
        return scaled(Qwen2_5OmniThinkerTextModel(config))
    experts: dict[str, Any] = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
    rope["mrope_interleaved"] = True
    return scaled(
        Qwen3OmniMoeThinkerTextModel(Qwen3OmniMoeTextConfig(**COMMON, **experts, rope_parameters=rope))
    )


@pytest.mark.parametrize("kind", ["qwen2.5-omni", "qwen3-omni"])
def test_omni_thinkers_go_the_general_way_and_equal_stock(kind: str) -> None:
    model, embeds = _thinker(kind), stream(20, 1)
    positions = torch.arange(20).expand(3, 1, 20)
    expected = stock_hidden(model, embeds, position_ids=positions)
    stack = build_decoder(model, blocks=30, block_tokens=4, policy=UNBOUNDED)
    assert stack.describe()["path"] == "general"
    stack.open(0)
    stack.open(1, 7)
    for at in range(0, 20, 4):
        hidden = feed(stack, [0, 1], [embeds[at : at + 4], embeds[:2]])
        assert_same(hidden[0], expected[at + 3])


@pytest.mark.parametrize("way", WAYS)
def test_half_precision_stays_near_full_precision(way: str) -> None:
    model, embeds = decoder("qwen3"), stream(24, 1)
    expected = stock_hidden(model, embeds)
    stack = build_decoder(model.to(torch.bfloat16), blocks=30, block_tokens=4, policy=UNBOUNDED, way=way)  # type: ignore[arg-type]
    stack.open(0)
    hidden = [feed(stack, [0], [embeds[at : at + 2].bfloat16()]) for at in range(0, 24, 2)]
    torch.testing.assert_close(torch.cat(hidden).float(), expected[1::2], rtol=0.05, atol=0.1)
