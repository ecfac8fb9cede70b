"""The temporal decoder on the pool and the depth transformer, against `transformers`' Moshi."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor
from transformers import (
    DynamicCache,
    KyutaiSpeechToTextConfig,
    KyutaiSpeechToTextForConditionalGeneration,
    MoshiForConditionalGeneration,
)

from metronome_cli.config.cache_policy import CachePolicySpec
from metronome_cli.config.profile import Profile
from metronome_cli.core.errors import UsageError
from metronome_cli.engine.build_decoder import build_decoder
from metronome_cli.engine.paged_decoder import PagedDecoder
from metronome_cli.models.moshi.weights import MoshiWeights, load_network
from tests.models import moshi_case as case

STEPS = 30
NAMINGS = ("transformers", "kyutai", "sharded")


@functools.cache
def reference() -> MoshiForConditionalGeneration:
    return case.moshi()


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("moshi")
    reference().save_pretrained(root)
    return root


@pytest.fixture(scope="module")
def network(checkpoint: Path) -> MoshiWeights:
    return load_network(case.profile(), checkpoint, "cpu", seed=0)


def rows(batch: int, steps: int = STEPS, seed: int = 1) -> Tensor:
    """Token rows [batch, steps, streams], initial tokens among them."""
    generator = torch.Generator().manual_seed(seed)
    streams = 1 + 2 * case.BOOKS
    top = torch.tensor([case.TEXT + 1] + [case.CODES + 1] * (streams - 1))
    return (torch.rand(batch, steps, streams, generator=generator) * top).long()


@torch.no_grad()
def expected_hidden(tokens: Tensor) -> Tensor:
    """[batch, steps, hidden] by `transformers`, the whole sequence at once."""
    model = reference()
    embeds = model.decoder.model.embed_tokens(tokens[..., 0])
    for book in range(2 * case.BOOKS):
        embeds = embeds + model.embed_tokens[book](tokens[..., 1 + book])
    return model.decoder.model(inputs_embeds=embeds).last_hidden_state


def stack_for(network: MoshiWeights, policy: str, batch: int) -> PagedDecoder:
    stack = build_decoder(network.decoder, blocks=80, policy=CachePolicySpec.parse(policy), block_tokens=8)
    for slot in range(batch):
        stack.open(slot)
    return stack


@torch.inference_mode()
def stepped_hidden(network: MoshiWeights, stack: PagedDecoder, tokens: Tensor) -> Tensor:
    slots = list(range(tokens.shape[0]))
    out = []
    for row in tokens.unbind(1):
        for slot in slots:
            assert stack.reserve(slot, 1)
        out.append(stack.forward(slots, network.embedding(row)[:, None], [1] * len(slots)))
    return torch.stack(out, dim=1)


@pytest.mark.parametrize("policy", ["ring(64)", "window(64, 0)", "window(64, 4)", "unbounded"])
def test_the_temporal_decoder_frame_by_frame_equals_the_whole_sequence(
    network: MoshiWeights, policy: str
) -> None:
    tokens = rows(3)
    got = stepped_hidden(network, stack_for(network, policy, 3), tokens)
    torch.testing.assert_close(got, expected_hidden(tokens), rtol=0, atol=2e-5)


def test_text_logits_equal_the_reference(network: MoshiWeights) -> None:
    hidden = expected_hidden(rows(2))[:, -1]
    with torch.no_grad():
        expected = reference().decoder.lm_head(hidden)
    torch.testing.assert_close(network.text_head(hidden), expected, rtol=0, atol=2e-5)


def test_a_ring_shorter_than_the_talk_equals_the_reference_with_that_sliding_window(
    network: MoshiWeights,
) -> None:
    """ring(W) attends the newest W positions at every layer, as the published model does with 3000."""
    window, tokens = 8, rows(2)
    got = stepped_hidden(network, stack_for(network, f"ring({window})", 2), tokens)
    layers = reference().decoder.model
    with torch.no_grad():
        embeds = layers.embed_tokens(tokens[..., 0])
        for book in range(2 * case.BOOKS):
            embeds = embeds + reference().embed_tokens[book](tokens[..., 1 + book])
        at = torch.arange(STEPS)
        seen = (at[None, :] <= at[:, None]) & (at[None, :] > at[:, None] - window)
        mask = torch.where(seen, 0.0, torch.finfo(torch.float32).min)[None, None]
        x = embeds
        for layer in layers.layers:
            x = layer(x, attention_mask=mask, position_ids=at[None])
        expected = layers.norm(x)
    torch.testing.assert_close(got, expected, rtol=0, atol=2e-5)


@torch.no_grad()
def expected_depth(hidden: Tensor, text: Tensor, codes: Tensor) -> Tensor:
    """Logits [batch, steps, codes] when the codes are given."""
    cache, logits, token = DynamicCache(), [], text
    for step in range(case.BOOKS):
        out = reference().depth_decoder(
            input_ids=token[:, None], last_hidden_state=hidden[:, None], cache=cache
        )
        logits.append(out.logits[:, 0])
        cache, token = out.cache, codes[:, step]
    return torch.stack(logits, dim=1)


@torch.inference_mode()
def depth_logits(network: MoshiWeights, hidden: Tensor, text: Tensor, codes: Tensor) -> Tensor:
    assert network.depth is not None
    logits: list[Tensor] = []

    def forced(step: int, row: Tensor) -> Tensor:
        logits.append(row.clone())
        return codes[:, step]

    assert torch.equal(network.depth.run(hidden, text, forced), codes)
    return torch.stack(logits, dim=1)


def depth_inputs(batch: int) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(2)
    hidden = torch.randn(batch, case.HIDDEN, generator=generator)
    text = torch.randint(case.TEXT, (batch,), generator=generator)
    return hidden, text, torch.randint(case.CODES, (batch, case.BOOKS), generator=generator)


def test_depth_steps_equal_the_reference(network: MoshiWeights) -> None:
    hidden, text, codes = depth_inputs(5)
    expected = expected_depth(hidden, text, codes)
    torch.testing.assert_close(depth_logits(network, hidden, text, codes), expected, rtol=0, atol=2e-5)
    assert expected.std() > 0.3


def test_depth_frames_do_not_remember_each_other(network: MoshiWeights) -> None:
    hidden, text, codes = depth_inputs(5)
    first = depth_logits(network, hidden, text, codes)
    depth_logits(network, hidden.flip(0), text.flip(0), codes.flip(0))
    assert torch.equal(depth_logits(network, hidden, text, codes), first)


@pytest.mark.parametrize("naming", NAMINGS)
def test_every_naming_gives_the_same_model(naming: str, tmp_path: Path, network: MoshiWeights) -> None:
    if naming == "kyutai":
        case.save_kyutai(reference(), tmp_path)
    else:
        reference().save_pretrained(tmp_path, max_shard_size="40KB" if naming == "sharded" else "1GB")
        assert (len(list(tmp_path.glob("*.safetensors"))) > 1) == (naming == "sharded")
    other = load_network(case.profile(), tmp_path, "cpu", seed=9)
    tokens = rows(2, 6)
    ours, theirs = (stepped_hidden(n, stack_for(n, "ring(64)", 2), tokens) for n in (other, network))
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-6)
    inputs = depth_inputs(2)
    torch.testing.assert_close(
        depth_logits(other, *inputs), depth_logits(network, *inputs), rtol=0, atol=1e-6
    )
    assert (other.parameters, other.weight_bytes) == (network.parameters, network.weight_bytes)
    assert other.source == str(tmp_path)


def test_a_file_with_sixteen_depth_steps_serves_the_first_that_are_run(
    tmp_path: Path, network: MoshiWeights
) -> None:
    """PersonaPlex: the further steps' codes are the user's, always given, so nothing reads their weights."""
    case.save_kyutai(reference(), tmp_path)
    state = case.kyutai_moshi(reference())
    for name in list(state):
        value = state[name]
        if "depformer.layers" in name and "_proj" in name:
            state[name] = torch.cat([value, torch.full_like(value, 7.0)])
    for step in range(case.BOOKS, 2 * case.BOOKS):
        for name in ("depformer_in.{}.weight", "linears.{}.weight", "depformer_emb.{}.weight"):
            first = name.format(step - 1) if name.startswith("depformer_emb") else name.format(step)
            state[first] = state[name.format(0)] + 1
        for layer in range(2):
            for part in ("linear_in", "linear_out"):
                gating = f"depformer.layers.{layer}.gating.{{}}.{part}.weight"
                state[gating.format(step)] = state[gating.format(0)] + 1
    save_file(state, tmp_path / "model.safetensors")
    other = load_network(case.profile(), tmp_path, "cpu", seed=0)
    inputs = depth_inputs(2)
    torch.testing.assert_close(
        depth_logits(other, *inputs), depth_logits(network, *inputs), rtol=0, atol=1e-6
    )


def test_a_directory_that_does_not_fit_names_what_is_missing_and_what_is_not_known(tmp_path: Path) -> None:
    case.save_kyutai(reference(), tmp_path)
    state = case.kyutai_moshi(reference())
    state["transformer.layers.1.gating.linear_on.weight"] = state.pop(
        "transformer.layers.1.gating.linear_in.weight"
    )
    save_file(state, tmp_path / "model.safetensors")
    with pytest.raises(UsageError) as refusal:
        load_network(case.profile(), tmp_path, "cpu", seed=0)
    assert "missing tensor transformer.layers.1.gating.linear_in.weight" in refusal.value.message
    assert "unexpected" in refusal.value.message


def test_a_tensor_that_nothing_asks_for_is_refused(tmp_path: Path) -> None:
    case.save_kyutai(reference(), tmp_path)
    state = {**case.kyutai_moshi(reference()), "condition_provider.speaker.weight": torch.zeros(2)}
    save_file(state, tmp_path / "model.safetensors")
    with pytest.raises(UsageError, match=r"unexpected tensor condition_provider\.speaker\.weight"):
        load_network(case.profile(), tmp_path, "cpu", seed=0)


def test_another_size_is_refused_with_both_shapes(checkpoint: Path) -> None:
    with pytest.raises(UsageError, match=r"gives \[4, 56, 32\].* needs \[4, 60, 32\]"):
        load_network(case.profile(depth_mlp=30), checkpoint, "cpu", seed=0)


def listening_profile() -> Profile:
    changes = {"spoken": 0, "acoustic_delay": 0, "text_temperature": 0.0}
    return case.profile(**changes)


def test_speech_to_text_loads_and_equals_the_reference(tmp_path: Path) -> None:
    """One table for all streams, a head with a row for the initial token, no depth, nothing to decode."""
    top = (case.TEXT + 1) + case.BOOKS * (case.CODES + 1)
    config = KyutaiSpeechToTextConfig(
        hidden_size=case.HIDDEN, num_hidden_layers=case.LAYERS, num_attention_heads=case.HEADS,
        ffn_dim=2 * case.MLP, num_codebooks=case.BOOKS, vocab_size=case.TEXT + 1,
        codebook_vocab_size=case.CODES + 1, audio_bos_token_id=case.CODES,
        audio_pad_token_id=top, bos_token_id=case.TEXT, sliding_window=64,
        codec_config={"model_type": "mimi", **case.CODEC},
    )  # fmt: skip
    model = KyutaiSpeechToTextForConditionalGeneration(config).eval()
    case.settle(model)
    model.save_pretrained(tmp_path)
    network = load_network(listening_profile(), tmp_path, "cpu", seed=0)
    assert network.depth is None
    tokens = rows(2, 12)[..., : 1 + case.BOOKS]
    got = stepped_hidden(network, stack_for(network, "ring(64)", 2), tokens)
    with torch.no_grad():
        out = model.model(input_ids=tokens).last_hidden_state
        logits = model.lm_head(out)[:, -1, : case.TEXT]
    torch.testing.assert_close(got, out, rtol=0, atol=2e-5)
    torch.testing.assert_close(network.text_head(got[:, -1]), logits, rtol=0, atol=2e-5)
