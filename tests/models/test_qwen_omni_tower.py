"""Audio towers against `transformers` on tiny random configurations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from metronome_cli.models.qwen_omni.tower import (
    AudioTower3,
    AudioTower25,
    Family,
    TowerShape,
    make_tower,
    tokens_of,
)
from metronome_cli.models.weights.checkpoint import Checkpoint, fill, on_meta, prefixed, refuse_unexpected

SHAPE = TowerShape(mels=16, layers=2, width=32, heads=4, mlp=64, out=48, conv=8)
FAMILIES: tuple[Family, Family] = ("qwen2.5", "qwen3")


def reference(family: Family) -> Any:
    sizes = {
        "num_mel_bins": SHAPE.mels,
        "encoder_layers": SHAPE.layers,
        "encoder_attention_heads": SHAPE.heads,
        "encoder_ffn_dim": SHAPE.mlp,
        "d_model": SHAPE.width,
        "output_dim": SHAPE.out,
        "initializer_range": 0.2,
    }
    if family == "qwen2.5":
        from transformers.models.qwen2_5_omni import modeling_qwen2_5_omni as lib
        from transformers.models.qwen2_5_omni.configuration_qwen2_5_omni import Qwen2_5OmniAudioEncoderConfig

        return lib.Qwen2_5OmniAudioEncoder(Qwen2_5OmniAudioEncoderConfig(**sizes)).eval()
    from transformers.models.qwen3_omni_moe import modeling_qwen3_omni_moe as lib3
    from transformers.models.qwen3_omni_moe.configuration_qwen3_omni_moe import Qwen3OmniMoeAudioEncoderConfig

    config = Qwen3OmniMoeAudioEncoderConfig(**sizes, downsample_hidden_size=SHAPE.conv)
    return lib3.Qwen3OmniMoeAudioEncoder(config).eval()


def ours(reference: Any, family: Family, folder: Path) -> AudioTower25 | AudioTower3:
    save_file(dict(reference.state_dict()), folder / "model.safetensors")
    with on_meta():
        tower = make_tower(family, SHAPE)
    checkpoint = Checkpoint.open(folder)
    fill(tower, checkpoint, prefixed(""), torch.device("cpu"), torch.float32)
    refuse_unexpected(checkpoint)
    return tower.eval()


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("frames", [3, 64, 100, 150, 199, 200, 201, 400, 950])
@torch.no_grad()
def test_a_tower_equals_the_reference_at_every_length(family: Family, frames: int, tmp_path: Path) -> None:
    torch.manual_seed(frames)
    theirs = reference(family)
    mel = torch.randn(SHAPE.mels, frames)
    expected = theirs(input_features=mel, feature_lens=torch.tensor([frames])).last_hidden_state
    got = ours(theirs, family, tmp_path)(mel[None])[0]
    assert got.shape == (tokens_of(family, frames), SHAPE.out)
    torch.testing.assert_close(got, expected, atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize(("family", "block", "exact"), [
    ("qwen2.5", 200, True), ("qwen2.5", 100, False), ("qwen3", 800, True), ("qwen3", 200, False),
])  # fmt: skip
@torch.no_grad()
def test_streaming_is_exact_only_in_whole_windows(
    family: Family, block: int, exact: bool, tmp_path: Path
) -> None:
    torch.manual_seed(7)
    theirs = reference(family)
    tower = ours(theirs, family, tmp_path)
    mel = torch.randn(1, SHAPE.mels, 1600)
    whole = theirs(input_features=mel[0], feature_lens=torch.tensor([1600])).last_hidden_state
    streamed = torch.cat([tower(part)[0] for part in mel.split(block, dim=2)])
    error = (streamed - whole).abs().max().item()
    assert (error < 2e-5) == exact


@pytest.mark.parametrize("family", FAMILIES)
@torch.no_grad()
def test_a_batch_equals_each_alone(family: Family, tmp_path: Path) -> None:
    torch.manual_seed(3)
    tower = ours(reference(family), family, tmp_path)
    mel = torch.randn(3, SHAPE.mels, 200)
    torch.testing.assert_close(tower(mel), torch.cat([tower(row[None]) for row in mel]), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(("family", "frames", "tokens"), [
    ("qwen2.5", 100, 25), ("qwen2.5", 200, 50), ("qwen2.5", 101, 25), ("qwen2.5", 199, 50), ("qwen2.5", 3, 1),
    ("qwen2.5", 2, 0), ("qwen3", 100, 13), ("qwen3", 200, 26), ("qwen3", 101, 14), ("qwen3", 150, 20),
    ("qwen3", 250, 33),
])  # fmt: skip
def test_tokens_of_published_lengths(family: Family, frames: int, tokens: int) -> None:
    assert tokens_of(family, frames) == tokens
