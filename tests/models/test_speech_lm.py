"""The built-in model: its positions, its feedback, its ears; on a stand-in decoder and on the real pool."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from metronome_cli.config.cache_policy import CachePolicySpec
from metronome_cli.config.profile import Profile
from metronome_cli.core.errors import UsageError
from metronome_cli.core.types import Audio
from metronome_cli.engine.block_pool import BlockPool
from metronome_cli.engine.decoder_weights import DecoderWeights
from metronome_cli.engine.interface import CachedDecoder
from metronome_cli.engine.native_layers import NativeLayers
from metronome_cli.engine.paged_decoder import PagedDecoder
from metronome_cli.models.fake_decoder import FakeDecoder
from metronome_cli.models.speech_lm import SpeechLm
from tests.audio.sounds import voice


def profile(**changes: Any) -> Profile:
    """The default profile's frame on a smaller decoder."""
    fields: dict[str, Any] = {
        "name": "small",
        "title": "small",
        "adapter": "speech-lm",
        "frame": {"period": "80ms", "sample_rate": 16_000},
        "tokens": {"prefill": 2, "decode": {"listening": 1, "speaking": 2}},
        "shape": {
            "layers": 2, "heads": 4, "kv_heads": 2, "head_dim": 8, "hidden_size": 32, "intermediate_size": 64,
            "vocab_size": 101,
            "dtype": "float32", "context_length": 4096,
        },
        "kv_pool": {"blocks": 200},
        "policy": "unbounded",
        "adapter_options": {"encoder_width": 16},
    }  # fmt: skip
    return Profile.model_validate(fields | changes)


def model(**changes: Any) -> SpeechLm:
    return SpeechLm.from_profile(profile(**changes), "cpu", seed=0)


def speech(pitch_hz: float, frames: int, samples: int = 1280) -> list[Audio]:
    sound = voice(frames * samples / 16_000, pitch_hz=pitch_hz).astype(np.float32)
    return [sound[k * samples : (k + 1) * samples] for k in range(frames)]


def untimed(stage: str) -> AbstractContextManager[None]:
    return nullcontext()


def talk(
    lm: SpeechLm, stack: CachedDecoder, slot: int, audio: Sequence[Audio], out: int = 2
) -> list[list[int]]:
    return [list(lm.frame(stack, [slot], [frame], [out], untimed)[0].tokens) for frame in audio]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.booleans()), min_size=1, max_size=12))
def test_the_cache_grows_by_the_positions_announced(frames: list[tuple[int, int, bool]]) -> None:
    """Two sessions, any numbers of tokens out, the second not in every batch."""
    lm, stack = model(), FakeDecoder(32)
    lm.open(4)
    lm.open(9)
    silence = np.zeros(1280, np.float32)
    for first, second, together in frames:
        slots, out = ([9, 4], [second, first]) if together else ([4], [first])
        before = {slot: stack.length(slot) for slot in slots}
        announced = {slot: lm.positions(slot, n) for slot, n in zip(slots, out, strict=True)}
        outputs = lm.frame(stack, slots, [silence] * len(slots), out, untimed)
        assert [len(o.tokens) for o in outputs] == out
        assert {slot: stack.length(slot) - before[slot] for slot in slots} == announced


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 12), st.integers(1, 3))
def test_a_frame_adds_in_plus_out_and_the_first_one_less(frames: int, out: int) -> None:
    lm, stack = model(), FakeDecoder(32)
    lm.open(0)
    talk(lm, stack, 0, [np.zeros(1280, np.float32)] * frames, out)
    assert stack.length(0) == frames * (2 + out) - 1


def test_every_token_is_fed_back_once_and_in_order() -> None:
    lm, stack = model(), Listening(32)
    lm.open(0)
    said = talk(lm, stack, 0, speech(120, 3))
    table = lm.vocabulary.embedding
    fed = [int((table - row).abs().sum(dim=1).argmin()) for row in stack.fed if is_token(table, row)]
    assert fed == [token for tokens in said for token in tokens][:-1]


def test_sessions_on_different_speech_get_different_embeddings_and_tokens() -> None:
    lm = model()
    for slot in (0, 1, 2):
        lm.open(slot)
    low, high = speech(110, 4), speech(190, 4)
    for k in range(4):
        heard = lm.encode([0, 1, 2], [low[k], high[k], low[k]])
    assert float((heard[0] - heard[1]).square().mean().sqrt()) > 0.05
    assert torch.equal(heard[0], heard[2])
    stacks = FakeDecoder(32), FakeDecoder(32)
    fresh = model(), model()
    for lm in fresh:
        lm.open(0)
    assert talk(fresh[0], stacks[0], 0, speech(110, 6)) != talk(fresh[1], stacks[1], 0, speech(190, 6))


def test_a_batch_of_all_ages_equals_each_alone() -> None:
    """Three sessions that start at different frames, one of which leaves: each says what it says alone."""
    audio = {slot: speech(100 + 20 * slot, 8) for slot in (1, 2, 3)}
    starts, ends = {1: 0, 2: 3, 3: 4}, {1: 8, 2: 6, 3: 8}
    lm, stack = model(), FakeDecoder(32)
    together: dict[int, list[list[int]]] = {1: [], 2: [], 3: []}
    for k in range(8):
        for slot in (s for s in starts if starts[s] == k):
            lm.open(slot)
        slots = [slot for slot in (2, 1, 3) if starts[slot] <= k < ends[slot]]
        frames = [audio[slot][k - starts[slot]] for slot in slots]
        for slot, out in zip(slots, lm.frame(stack, slots, frames, [2] * len(slots), untimed), strict=True):
            together[slot].append(list(out.tokens))
        for slot in (s for s in ends if ends[s] == k + 1):
            lm.close(slot)
    for slot in starts:
        alone = model()
        alone.open(slot)
        assert together[slot] == talk(alone, FakeDecoder(32), slot, audio[slot][: ends[slot] - starts[slot]])


def test_a_reopened_slot_remembers_nothing() -> None:
    lm, stacks = model(), (FakeDecoder(32), FakeDecoder(32))
    lm.open(0)
    first = talk(lm, stacks[0], 0, speech(120, 3))
    lm.close(0)
    lm.open(0)
    assert lm.positions(0, 2) == 3
    assert talk(lm, stacks[1], 0, speech(120, 3)) == first


def paged(blocks: int = 64) -> PagedDecoder:
    weights = DecoderWeights.random(profile().shape, seed=0)
    pool = BlockPool(layers=2, kv_heads=2, head_dim=8, blocks=blocks, block_tokens=16)
    return PagedDecoder(NativeLayers(weights, pool), pool, CachePolicySpec.parse("unbounded"), chunk=3)


def test_on_the_real_pool_a_batch_equals_each_alone() -> None:
    lm, stack = model(), paged()
    audio = {slot: speech(100 + 30 * slot, 12) for slot in (0, 1, 2)}
    said: dict[int, list[list[int]]] = {slot: [] for slot in audio}
    for slot in audio:
        stack.open(slot)
        lm.open(slot)
    for k in range(12):
        for slot in audio:
            assert stack.reserve(slot, lm.positions(slot, 2))
        outputs = lm.frame(stack, list(audio), [audio[slot][k] for slot in audio], [2, 2, 2], untimed)
        for slot, output in zip(audio, outputs, strict=True):
            said[slot].append(list(output.tokens))
    assert [stack.length(slot) for slot in audio] == [12 * 4 - 1] * 3
    for slot, frames in audio.items():
        alone, own = model(), paged()
        own.open(slot)
        alone.open(slot)
        assert own.reserve(slot, 12 * 4)
        assert talk(alone, own, slot, frames) == said[slot]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"tokens": {"prefill": 3, "decode": {"listening": 1, "speaking": 2}}}, "divisor of 8"),
        ({"tokens": {"prefill": 2.5, "decode": {"listening": 1, "speaking": 2}}}, "tokens.prefill is 2.5"),
        ({"tokens": {"prefill": 2, "decode": {"listening": 1, "speaking": 2}, "fused": True}}, "fused"),
        ({"frame": {"period": "80ms", "sample_rate": 11_025}}, "11025 Hz"),
        ({"adapter_options": {"encoder_widht": 16}}, "encoder_widht"),
        ({"adapter_options": {"encoder_blocks": 0}}, "encoder_blocks is 0"),
        ({"adapter_options": {"temperature": "hot"}}, "temperature is 'hot'"),
    ],
)
def test_a_profile_that_does_not_fit_is_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        model(**changes)


def test_a_misspelt_option_gets_a_hint() -> None:
    with pytest.raises(UsageError) as caught:
        model(adapter_options={"encoder_widht": 16})
    assert caught.value.hint == "did you mean encoder_width?"


def test_it_says_that_its_weights_are_random() -> None:
    said = model().describe()
    assert said["weights"] == "random"
    assert said["state_bytes"] == 4 * (240 + 4 * 80 + 2 * 7 * 16)


@pytest.mark.parametrize(
    ("rate", "period", "into"), [(8000, "40ms", 1), (24_000, "80ms", 8), (16_000, "1s", 25)]
)
def test_other_frames_fit_too(rate: int, period: str, into: int) -> None:
    lm = model(
        frame={"period": period, "sample_rate": rate},
        tokens={"prefill": into, "decode": {"listening": 1, "speaking": 2}},
    )
    lm.open(0)
    samples = profile(frame={"period": period, "sample_rate": rate}).frame.samples
    assert lm.encode([0], [np.zeros(samples, np.float32)]).shape == (1, into, 32)


def test_a_decoder_in_half_precision_is_fed_in_its_own_type() -> None:
    lm, stack = model(), Listening(32, torch.bfloat16)
    lm.open(0)
    assert all(len(tokens) == 2 for tokens in talk(lm, stack, 0, speech(120, 3)))
    assert {row.dtype for row in stack.fed} == {torch.bfloat16}


def test_temperature_makes_sessions_differ_on_equal_speech() -> None:
    lm, stack = model(adapter_options={"temperature": 1.0}), FakeDecoder(32)
    said = []
    for slot in (0, 1):
        lm.open(slot)
        said.append(talk(lm, stack, slot, speech(120, 5)))
    assert said[0] != said[1]


class Listening(FakeDecoder):
    """Keeps every row that it was fed."""

    def __init__(self, hidden_size: int, dtype: torch.dtype = torch.float32) -> None:
        super().__init__(hidden_size, dtype)
        self.fed: list[torch.Tensor] = []

    def forward(self, slots: Sequence[int], embeds: torch.Tensor, counts: Sequence[int]) -> torch.Tensor:
        self.fed += [row.clone() for rows, count in zip(embeds, counts, strict=True) for row in rows[:count]]
        return super().forward(slots, embeds, counts)


def is_token(table: torch.Tensor, row: torch.Tensor) -> bool:
    return bool((table == row).all(dim=1).any())
