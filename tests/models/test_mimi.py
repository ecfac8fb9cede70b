"""The streaming codec against the whole utterance, as `transformers` computes it."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor
from transformers import MimiModel

from metronome_cli.models.mimi import CodecState, Mimi
from metronome_cli.models.mimi.layouts import IGNORED, kyutai, transformers
from metronome_cli.models.weights.checkpoint import Checkpoint, refuse_unexpected
from metronome_cli.models.weights.source import CheckpointSource, RandomSource
from tests.models import moshi_case as case

CPU = torch.device("cpu")
FRAMES = 16  # 32 positions at the inner rate: three times the context
USED = 4  # levels


@functools.cache
def reference() -> MimiModel:
    return case.mimi()


@functools.cache
def sounds() -> Tensor:
    """[3, samples], each session with its own loudness."""
    noise = torch.randn(3, FRAMES * case.MIMI.frame_samples, generator=torch.Generator().manual_seed(4))
    return noise * torch.tensor([[0.3], [1.0], [2.0]])


@torch.no_grad()
def whole(audio: Tensor) -> tuple[Tensor, Tensor]:
    """Codes [batch, levels, frames] and decoded audio [batch, samples] of the whole utterance at once."""
    codes = reference().encode(audio[:, None], num_quantizers=USED).audio_codes
    return codes, reference().decode(codes).audio_values[:, 0]


def load(root: Path, state: dict[str, Tensor], layouts: list) -> Mimi:
    save_file({name: value.contiguous() for name, value in state.items()}, root / "model.safetensors")
    checkpoint = Checkpoint.open(root)
    codec = Mimi(CheckpointSource(checkpoint, layouts, CPU, torch.float32), case.MIMI, USED)
    refuse_unexpected(checkpoint, IGNORED)
    return codec


@pytest.fixture(scope="module")
def codec(tmp_path_factory: pytest.TempPathFactory) -> Mimi:
    return load(tmp_path_factory.mktemp("mimi"), reference().state_dict(), transformers())


def opened(codec: Mimi, *slots: int) -> CodecState:
    state = codec.new_state()
    for slot in slots:
        state.open(slot)
    return state


def pieces(audio: Tensor) -> tuple[Tensor, ...]:
    return audio.split(case.MIMI.frame_samples, dim=-1)


@torch.no_grad()
def encoded(codec: Mimi, state: CodecState, slots: list[int], audio: Tensor) -> Tensor:
    return torch.stack([codec.encode(state, slots, piece) for piece in pieces(audio)], dim=-1)


@torch.no_grad()
def decoded(codec: Mimi, state: CodecState, slots: list[int], codes: Tensor) -> Tensor:
    return torch.cat([codec.decode(state, slots, column) for column in codes.unbind(-1)], dim=-1)


def error(a: Tensor, b: Tensor) -> float:
    return ((a - b).norm() / b.norm()).item()


def test_streaming_encode_equals_the_whole_utterance_far_past_the_context(codec: Mimi) -> None:
    codes, _ = whole(sounds())
    assert len(codes.unique()) > case.CODES // 2, "the codec must not be asleep"
    assert torch.equal(encoded(codec, opened(codec, 0, 1, 2), [0, 1, 2], sounds()), codes)


def test_streaming_decode_equals_the_whole_utterance_far_past_the_context(codec: Mimi) -> None:
    codes, audio = whole(sounds())
    assert error(decoded(codec, opened(codec, 0, 1, 2), [0, 1, 2], codes), audio) < 1e-5


def test_latents_not_only_codes_equal_the_whole_utterance(codec: Mimi) -> None:
    state = opened(codec, 0, 1, 2)
    with torch.no_grad():
        latents = reference().encoder(sounds()[:, None], use_streaming=False).latents
        steps = [codec.encoder.step(state.encoder, [0, 1, 2], piece) for piece in pieces(sounds())]
    assert error(torch.stack(steps, dim=-1), latents) < 1e-5


@pytest.mark.parametrize("long", [1, 1 << 30])
def test_sessions_of_different_ages_in_one_batch_each_equal_themselves_alone(
    codec: Mimi, long: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slot 7 starts five frames after slot 2, slot 0 only in between, and the batch is out of order."""
    monkeypatch.setattr("metronome_cli.models.mimi.transformer._LONG", long)
    codes, audio = whole(sounds())
    state = opened(codec, 2)
    said: dict[int, list[Tensor]] = {0: [], 2: [], 7: []}
    sound: dict[int, list[Tensor]] = {0: [], 2: [], 7: []}
    start = {2: 0, 7: 5, 0: 8}
    rows = {2: 0, 7: 1, 0: 2}
    for frame in range(FRAMES):
        for slot, first in start.items():
            if first == frame and slot != 2:
                state.open(slot)
        slots = [slot for slot in (7, 2, 0) if start[slot] <= frame and not (slot == 2 and frame in (7, 10))]
        at = [len(said[slot]) for slot in slots]
        batch = torch.stack([pieces(sounds())[t][rows[s]] for s, t in zip(slots, at, strict=True)])
        with torch.no_grad():
            new = codec.encode(state, slots, batch)
            heard = codec.decode(state, slots, new)
        for slot, column, samples in zip(slots, new, heard, strict=True):
            said[slot].append(column)
            sound[slot].append(samples)
    for slot, row in rows.items():
        frames = len(said[slot])
        assert torch.equal(torch.stack(said[slot], dim=-1), codes[row, :, :frames])
        assert error(torch.cat(sound[slot]), audio[row, : frames * case.MIMI.frame_samples]) < 1e-5


def test_opening_a_slot_again_forgets_it_and_leaves_the_slot_beside_it(codec: Mimi) -> None:
    codes, _ = whole(sounds())
    state = opened(codec, 0, 1)
    half = sounds()[:2, : FRAMES // 2 * case.MIMI.frame_samples]
    first = encoded(codec, state, [0, 1], half)
    state.open(0)
    again = encoded(codec, state, [0], half[:1])
    rest = encoded(codec, state, [1], sounds()[1:2, half.shape[1] :])
    assert torch.equal(again[0], first[0])
    assert torch.equal(torch.cat([first[1], rest[0]], dim=-1), codes[1])


def test_a_ring_of_the_bare_context_would_not_be_exact(codec: Mimi) -> None:
    """Two positions are written before the first is asked for: without room for both a key is lost."""
    codes, audio = whole(sounds())
    transformer = codec.decoder.transformer
    ring = transformer.ring
    try:
        transformer.ring = case.MIMI.context
        short = decoded(codec, opened(codec, 0, 1, 2), [0, 1, 2], codes)
    finally:
        transformer.ring = ring
    early = case.MIMI.context // 2 * case.MIMI.frame_samples
    assert error(short[:, :early], audio[:, :early]) < 1e-5
    assert error(short, audio) > 1e-3


@pytest.mark.parametrize("naming", ["flat", "nested", "kyutai", "kyutai renamed"])
def test_a_checkpoint_loads_under_every_naming(naming: str, codec: Mimi, tmp_path: Path) -> None:
    nested = reference().state_dict()
    if naming == "flat":
        reference().save_pretrained(tmp_path)
        checkpoint = Checkpoint.open(tmp_path)
        assert "encoder.layers.0.conv.weight" in checkpoint.files
        got = Mimi(CheckpointSource(checkpoint, transformers(), CPU, torch.float32), case.MIMI, USED)
    else:
        state = nested if naming == "nested" else case.kyutai_mimi(nested)
        if naming == "kyutai renamed":
            state = {
                name.replace("in_proj_weight", "in_projs.0.weight").replace(
                    "out_proj.", "out_projs.0."
                ): value
                for name, value in state.items()
            }
        got = load(tmp_path, state, kyutai(case.MIMI) if "kyutai" in naming else transformers())
    codes, _ = whole(sounds())
    assert torch.equal(encoded(got, opened(got, 0, 1, 2), [0, 1, 2], sounds()), codes)
    ours, theirs = (decoded(c, opened(c, 0, 1, 2), [0, 1, 2], codes) for c in (got, codec))
    assert error(ours, theirs) < 1e-6


def test_random_weights_of_the_published_shape_speak_and_hold_the_published_state() -> None:
    from metronome_cli.models.mimi import MimiShape

    small = MimiShape(filters=8, hidden=64, layers=2, mlp=128)
    codec = Mimi(RandomSource(1, CPU, torch.float32), small, 8)
    codes = encoded(codec, opened(codec, 0), [0], sounds()[:1])
    audio = decoded(codec, opened(codec, 0), [0], codes)
    assert len(codes.unique()) > 20
    assert 0.01 < audio.std() < 10
    published = MimiShape()
    per_half = 250 * published.kv_bytes_per_position / 2**20
    assert per_half == pytest.approx(7.8, abs=0.02)  # MiB a transformer


def test_a_codec_that_only_listens_has_no_decoder() -> None:
    codec = Mimi(RandomSource(1, CPU, torch.float32), case.MIMI, 2, speaks=False)
    state = opened(codec, 0)
    assert codec.encode(state, [0], pieces(sounds())[0][:1]).shape == (1, 2)
    with pytest.raises(ValueError, match="listen only"):
        codec.decode(state, [0], torch.zeros(1, 2, dtype=torch.int64))
