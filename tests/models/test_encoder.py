"""The audio encoder: streaming equals the whole recording, in any batch."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from metronome_cli.models.audio.causal_encoder import REACH, CausalEncoder, CausalEncoderShape
from metronome_cli.models.weights.source import RandomSource

SHAPE = CausalEncoderShape(hidden=24, stride=4, width=16, blocks=2, mels=20)


def encoder(seed: int = 0) -> CausalEncoder:
    return CausalEncoder(16_000, SHAPE, RandomSource(seed, torch.device("cpu"), torch.float32))


def noise(batch: int, positions: int, seed: int = 1) -> Tensor:
    return 0.1 * torch.randn(batch, positions * 640, generator=torch.Generator().manual_seed(seed))


def stream(model: CausalEncoder, audio: Tensor, sizes: list[int]) -> Tensor:
    state, parts, at = torch.zeros(len(audio), model.state_width), [], 0
    for size in sizes:
        out, state = model.step(state, audio[:, at * 640 : (at + size) * 640])
        parts.append(out)
        at += size
    return torch.cat(parts, dim=1)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(1, 6), min_size=2, max_size=12))
def test_streaming_equals_whole(sizes: list[int]) -> None:
    model, audio = encoder(), noise(2, sum(sizes))
    assert torch.allclose(stream(model, audio, sizes), stream(model, audio, [sum(sizes)]), atol=1e-5)


def test_sessions_of_different_ages_share_a_batch() -> None:
    model = encoder()
    old, young = noise(1, 40, seed=2), noise(1, 4, seed=3)
    _, aged = model.step(torch.zeros(1, model.state_width), old[:, : 36 * 640])
    state = torch.cat((aged, torch.zeros(1, model.state_width)))
    together, _ = model.step(state, torch.cat((old[:, 36 * 640 :], young)))
    assert torch.allclose(together[:1], stream(model, old, [40])[:, 36:], atol=1e-5)
    assert torch.allclose(together[1:], stream(model, young, [4]), atol=1e-5)


def test_it_is_causal_and_its_reach_is_what_it_says() -> None:
    """A changed sample alters its own position and later ones, and none beyond both convolutions' reach."""
    model, audio = encoder(), noise(1, 40)
    before = stream(model, audio, [40])
    audio[0, 10 * 640] += 0.5
    changed = (stream(model, audio, [40]) - before).abs().amax(dim=2)[0] > 1e-6
    touched = changed.nonzero().flatten().tolist()
    assert touched[0] == 10
    assert touched[-1] <= 10 + 1 + 2 * (REACH - 1)
    assert len(touched) > REACH


def test_embeddings_are_of_unit_size_and_depend_on_what_is_heard() -> None:
    model = encoder()
    out = stream(model, noise(3, 50), [50])
    assert 0.5 < float(out.square().mean().sqrt()) < 2.0
    assert float((out[0] - out[1]).square().mean().sqrt()) > 0.05


def test_weights_come_from_the_seed() -> None:
    audio = noise(1, 3)
    assert torch.equal(stream(encoder(4), audio, [3]), stream(encoder(4), audio, [3]))
    assert not torch.equal(stream(encoder(4), audio, [3]), stream(encoder(5), audio, [3]))
