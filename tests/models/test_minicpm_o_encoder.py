"""The streaming encoder against one pass of `transformers`' Whisper layers over the whole stretch."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from metronome_cli.models.minicpm_o.encoder import (
    AudioProjection,
    EncoderCache,
    UnitEncoder,
    UnitEncoderShape,
)
from metronome_cli.models.weights.checkpoint import on_meta, randomise

SHAPE = UnitEncoderShape(mels=16, layers=2, width=32, heads=4, mlp=64, pool=5, out=24)
CPU = torch.device("cpu")


def encoder() -> UnitEncoder:
    with on_meta():
        made = UnitEncoder(SHAPE)
    randomise(made, CPU, torch.float32, seed=1)
    return made.eval()


def whisper(ours: UnitEncoder) -> Any:
    """`transformers`' Whisper encoder with the same values."""
    from transformers import WhisperConfig
    from transformers.models.whisper.modeling_whisper import WhisperEncoder

    config = WhisperConfig(
        num_mel_bins=SHAPE.mels,
        encoder_layers=SHAPE.layers,
        encoder_attention_heads=SHAPE.heads,
        encoder_ffn_dim=SHAPE.mlp,
        d_model=SHAPE.width,
    )
    theirs = WhisperEncoder(config).eval()
    theirs.load_state_dict(ours.state_dict())
    return theirs


def whole(theirs: Any, mel: torch.Tensor, block: int) -> torch.Tensor:
    """One pass: a position sees its own block of positions and all blocks before it."""
    x = F.gelu(theirs.conv2(F.gelu(theirs.conv1(mel[None])))).transpose(1, 2)
    x = x + theirs.embed_positions.weight[: x.shape[1]]
    blocks = torch.arange(x.shape[1]) // block
    mask = torch.where(blocks[None, :] <= blocks[:, None], 0.0, float("-inf"))[None, None]
    for layer in theirs.layers:
        x = layer(x, mask)
    return theirs.layer_norm(x)[0]


def cut(mel: torch.Tensor, units: int) -> list[torch.Tensor]:
    """Units with their spare frames: [0, 102), then [100 k - 2, 100 k + 102)."""
    return [mel[:, max(0, 100 * k - 2) : 100 * k + 102] for k in range(units)]


@torch.no_grad()
def test_streamed_units_equal_one_pass_over_the_whole_stretch() -> None:
    ours, units = encoder(), 29
    mel = torch.randn(SHAPE.mels, 100 * units + 2)
    expected = whole(whisper(ours), mel, block=50)[: 50 * units]
    cache = EncoderCache(SHAPE, CPU, torch.float32)
    streamed = torch.cat([ours([unit], [cache])[0] for unit in cut(mel, units)])
    torch.testing.assert_close(streamed, expected, atol=2e-5, rtol=1e-4)


@torch.no_grad()
def test_the_cache_is_dropped_after_29_units_and_the_stream_begins_anew() -> None:
    ours = encoder()
    mel = torch.randn(SHAPE.mels, 104)
    cache, fresh = EncoderCache(SHAPE, CPU, torch.float32), EncoderCache(SHAPE, CPU, torch.float32)
    lengths, sizes = [], []
    for _ in range(30):
        last = ours([mel], [cache])
        lengths.append(cache.length)
        sizes.append(cache.nbytes)
    assert lengths == [50 * k for k in range(1, 30)] + [50]
    assert max(sizes) == 2 * SHAPE.layers * SHAPE.width * 4 * 1450
    assert sizes[-1] < max(sizes)
    torch.testing.assert_close(last, ours([mel], [fresh]))


@torch.no_grad()
def test_sessions_of_different_ages_in_one_batch_equal_each_alone() -> None:
    ours = encoder()
    mel = torch.randn(3, SHAPE.mels, 602)

    def run(starts: list[int], together: bool) -> list[torch.Tensor]:
        caches = [EncoderCache(SHAPE, CPU, torch.float32) for _ in starts]
        out = []
        for step in range(6):
            due = [row for row, start in enumerate(starts) if step >= start]
            units = {row: cut(mel[row], 6)[step - starts[row]] for row in due}
            batches = [due] if together else [[row] for row in due]
            out += [ours([units[r] for r in rows], [caches[r] for r in rows]) for rows in batches]
        return out

    starts = [0, 2, 2]
    torch.testing.assert_close(
        torch.cat(run(starts, True)), torch.cat(run(starts, False)), atol=1e-5, rtol=1e-4
    )


@torch.no_grad()
def test_a_session_is_reset_without_touching_the_one_beside_it() -> None:
    ours = encoder()
    mel = torch.randn(SHAPE.mels, 104)
    kept, reset, fresh = (EncoderCache(SHAPE, CPU, torch.float32) for _ in range(3))
    ours([mel, mel], [kept, reset])
    reset.reset()
    both = ours([mel, mel], [kept, reset])
    assert (kept.length, reset.length, reset.nbytes < kept.nbytes) == (100, 50, False)
    torch.testing.assert_close(both[1:], ours([mel], [fresh]), atol=1e-5, rtol=1e-4)
    assert not torch.allclose(both[0], both[1])


@pytest.mark.parametrize(("frames", "pool", "tokens"), [(102, 5, 10), (104, 5, 10), (100, 2, 25)])
@torch.no_grad()
def test_embeddings_a_unit(frames: int, pool: int, tokens: int) -> None:
    shape = UnitEncoderShape(mels=16, layers=1, width=32, heads=4, mlp=64, pool=pool, out=24)
    with on_meta():
        encoder, projection = UnitEncoder(shape), AudioProjection(shape)
    randomise(encoder, CPU, torch.float32, seed=1)
    randomise(projection, CPU, torch.float32, seed=2)
    x = encoder([torch.randn(16, frames)], [EncoderCache(shape, CPU, torch.float32)])
    assert projection(x).shape == (1, tokens, 24)


def test_bytes_a_position_of_the_published_encoder() -> None:
    cache = EncoderCache(UnitEncoderShape(), torch.device("meta"), torch.bfloat16)
    cache.make_room(1450)
    assert cache.nbytes == 96 * 1024 * 1450
