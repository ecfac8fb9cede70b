"""The whole model on the engine: sessions of all ages in one batch, its stages, its memory."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
import torch

from metronome_cli.config.cache_policy import CachePolicySpec
from metronome_cli.config.model_shape import ModelShape
from metronome_cli.config.profile import Profile
from metronome_cli.core.errors import UsageError
from metronome_cli.core.types import FrameInput, FrameOutput
from metronome_cli.engine.build_decoder import build_decoder
from metronome_cli.engine.frame_engine import FrameEngine
from metronome_cli.models.fake_decoder import FakeDecoder
from metronome_cli.models.moshi import MoshiModel, MoshiShape
from metronome_cli.models.moshi.weights import MoshiWeights
from metronome_cli.models.registry import load_adapter
from metronome_cli.models.weights.source import RandomSource
from tests.models import moshi_case as case

FRAMES = 14
TOKENS = 1 + case.BOOKS


@functools.cache
def weights(**options: Any) -> MoshiModel:
    return MoshiModel.from_profile(case.profile(**options), seed=3)


def engine(profile: Profile, slots: int = 4, **options: Any) -> FrameEngine:
    model = weights(**options).fresh()
    stack = build_decoder(
        model.decoder, blocks=64, policy=CachePolicySpec.parse(profile.policy), block_tokens=4
    )
    return FrameEngine(model, stack, slots)


@functools.cache
def voice(session: int) -> np.ndarray:
    """[frames, samples]"""
    draw = np.random.default_rng(session)
    return (draw.standard_normal((FRAMES, 1920)) * 0.3 * (1 + session)).astype(np.float32)


def say(served: FrameEngine, turns: Sequence[tuple[int, int, int]]) -> list[FrameOutput]:
    """One step; each turn is (slot, session, frame of that session)."""
    frames = [FrameInput(slot, voice(session)[frame], TOKENS) for slot, session, frame in turns]
    return list(served.step(frames).outcomes)


def alone(session: int, frames: int, policy: str, slot: int = 0) -> list[FrameOutput]:
    """A session by itself; earlier slots are opened so that it gets the same slot's noise."""
    served = engine(case.profile(policy))
    slots = [served.open() for _ in range(slot + 1)]
    return [say(served, [(slots[slot], session, frame)])[0] for frame in range(frames)]


@pytest.mark.parametrize("policy", ["ring(8)", "window(8, 2)", "unbounded"])
def test_a_batch_of_sessions_of_different_ages_equals_each_alone(policy: str) -> None:
    served = engine(case.profile(policy))
    slots = [served.open(), served.open(), served.open()]
    begins = [0, 3, 7]
    got: list[list[FrameOutput]] = [[], [], []]
    for frame in range(FRAMES):
        turns = [(slots[s], s, frame - begins[s]) for s in (2, 0, 1) if frame >= begins[s]]
        for (_, session, _), outcome in zip(turns, say(served, turns), strict=True):
            got[session].append(outcome)
    for session, outcomes in enumerate(got):
        expected = alone(session, len(outcomes), policy, slot=session)
        assert [o.tokens for o in outcomes] == [o.tokens for o in expected]
        sounds = [(o.audio, e.audio) for o, e in zip(outcomes, expected, strict=True)]
        assert [a is None for a, _ in sounds] == [True] + [False] * (len(sounds) - 1)
        for ours, theirs in sounds[1:]:
            np.testing.assert_allclose(ours, theirs, atol=2e-5)


def test_what_is_said_depends_on_what_is_heard() -> None:
    served = engine(case.profile("unbounded"), **case.GREEDY)
    slots = [served.open(), served.open()]
    said = [say(served, [(slots[0], 0, t), (slots[1], 1, t)]) for t in range(FRAMES)]
    assert said[0][0].tokens == said[0][1].tokens  # nothing is read in the first frame
    assert [a.tokens for a, _ in said] != [b.tokens for _, b in said]


def test_the_same_seed_says_the_same_and_fresh_begins_anew() -> None:
    first, second = (alone(1, 5, "ring(8)") for _ in range(2))
    assert [o.tokens for o in first] == [o.tokens for o in second]
    assert len({tuple(o.tokens) for o in first}) > 1


def test_a_session_opened_at_an_age_holds_its_window_and_speaks_at_once() -> None:
    served = engine(case.profile("ring(8)"))
    slot = served.open(5000)
    outcomes = [say(served, [(slot, 0, frame)])[0] for frame in range(3)]
    assert served.stack.length(slot) == 5003
    assert served.pool().used_blocks == 2
    assert [o.delivered for o in outcomes] == [TOKENS] * 3
    assert outcomes[2].audio is not None
    assert outcomes[2].audio.shape == (1920,)


@pytest.mark.parametrize(("asked", "given"), [(0, 0), (1, 1), (TOKENS, TOKENS), (40, TOKENS)])
def test_as_many_tokens_as_asked_text_first(asked: int, given: int) -> None:
    served = engine(case.profile("ring(8)"))
    outcome = served.step([FrameInput(served.open(), voice(0)[0], asked)]).outcomes[0]
    assert outcome.delivered == given


class Recorder:
    """A timer that notes the stages."""

    def __init__(self) -> None:
        self.entered: list[str] = []

    @contextlib.contextmanager
    def __call__(self, stage: str) -> Iterator[None]:
        self.entered.append(stage)
        yield


def test_stages_in_order_and_one_position_a_frame() -> None:
    model, stack, timer = weights().fresh(), FakeDecoder(case.HIDDEN), Recorder()
    model.open(0)
    assert model.positions(0, TOKENS) == 1
    model.frame(stack, [0], [voice(0)[0]], [TOKENS], timer)
    assert timer.entered == list(model.stages) == ["encode", "prefill", "depth", "codec"]
    assert stack.calls == [([0], [1])]


def test_a_listener_has_text_alone_and_no_depth_or_codec_stage() -> None:
    options = {"spoken": 0, "acoustic_delay": 0, **case.GREEDY}
    served = engine(case.profile("ring(8)"), **options)
    slot = served.open()
    result = served.step([FrameInput(slot, voice(0)[0], 1)])
    assert list(result.stages_s) == ["encode", "prefill"]
    assert result.outcomes[0].audio is None
    assert result.outcomes[0].delivered == 1
    said = [say(served, [(slot, 0, frame)])[0].tokens for frame in range(1, FRAMES)]
    assert len({tuple(tokens) for tokens in said}) > 1


def test_it_says_what_it_is_and_what_a_session_holds_outside_the_pool() -> None:
    account = weights().describe()
    assert account["adapter"] == "moshi"
    assert account["weights"] == "random"
    parts = account["stage_state_bytes"]
    assert account["state_bytes"] == parts["codec"] + parts["streams"]
    ring = 2 * 2 * case.MIMI.layers * case.MIMI.hidden * (case.MIMI.context + 1) * 4
    assert ring < parts["codec"] < 2 * ring + 2**17
    assert parts["depth"] == 2 * case.BOOKS * 2 * 32 * 2  # keys and values, steps, layers, width, bfloat16


def test_the_published_sizes_give_the_published_memory() -> None:
    """512 KiB of cache a frame, 6.25 MiB/s, 24 KiB a depth position, 7.8 MiB a codec transformer."""
    shape = ModelShape(
        layers=32,
        heads=32,
        kv_heads=32,
        head_dim=128,
        hidden_size=4096,
        intermediate_size=11264,
        vocab_size=32000,
        context_length=3000,
    )
    profile = case.profile().model_copy(update={"shape": shape, "adapter_options": {}})
    moshi = MoshiShape.from_profile(profile)
    assert shape.kv_bytes_per_token == 512 * 1024
    assert shape.kv_bytes_per_token / 0.08 == 6.25 * 2**20
    assert moshi.depth_kv_bytes == 8 * 24 * 1024
    assert moshi.streams == 17
    assert moshi.delays == (0, 0, 1, 1, 1, 1, 1, 1, 1, 0, 1, 1, 1, 1, 1, 1, 1)
    assert moshi.initial == (32000, *[2048] * 16)


def test_the_registry_loads_it() -> None:
    loaded = load_adapter(case.profile(), weights=None, device="cpu", seed=1)
    assert loaded.chunk == 1
    assert loaded.weights == "random"
    assert loaded.fresh() is not loaded.fresh()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"depth_layer": 2}, "depth_layers"),
        ({"heard": 0}, "heard"),
        ({"audio_vocab": 31}, "mimi_codebook_size"),
        ({"spoken": 7}, "codebooks"),
        ({"mimi_stride": 4}, "frame has 1920 samples"),
    ],
)
def test_options_that_do_not_go_together_are_refused(options: dict[str, int], says: str) -> None:
    with pytest.raises(UsageError) as refusal:
        MoshiShape.from_profile(case.profile(**options))
    assert says in refusal.value.message + (refusal.value.hint or "")


def test_random_weights_do_not_explode_with_depth() -> None:
    profile = case.profile()
    deep = profile.model_copy(update={"shape": profile.shape.model_copy(update={"layers": 24})})
    model = MoshiModel.from_profile(deep, seed=1)
    stack = build_decoder(model.decoder, blocks=8, policy=CachePolicySpec.parse("ring(8)"), block_tokens=8)
    served = FrameEngine(model, stack, 1)
    slot = served.open()
    outcomes = [say(served, [(slot, 0, frame)])[0] for frame in range(6)]
    assert all(np.isfinite(o.audio).all() for o in outcomes[1:] if o.audio is not None)
    assert len({tuple(o.tokens) for o in outcomes}) > 1
    assert torch.isfinite(model.decoder.final_norm).all()


def test_sixteen_bit_weights_say_nearly_the_same() -> None:
    """As on a GPU: layers and cache in bfloat16, the codec in float32."""
    profile, cpu = case.profile("ring(16)"), torch.device("cpu")
    shape = MoshiShape.from_profile(profile)
    hidden, texts = [], []
    for dtype in (torch.float32, torch.bfloat16):
        codec = RandomSource(3, cpu, torch.float32)
        network = MoshiWeights(shape, RandomSource(3, cpu, dtype), codec, "random")
        stack = build_decoder(
            network.decoder, blocks=8, policy=CachePolicySpec.parse(profile.policy), block_tokens=4
        )
        served = FrameEngine(MoshiModel(network, seed=1), stack, 1)
        slot = served.open()
        outcome = [say(served, [(slot, 0, frame)])[0] for frame in range(3)][-1]
        assert outcome.delivered == TOKENS
        assert stack.dtype == dtype
        with torch.inference_mode():
            row = torch.tensor([[5] * shape.streams])
            assert stack.reserve(slot, 1)
            hidden.append(stack.forward([slot], network.embedding(row)[:, None], [1]).float())
            texts.append(network.text_head(hidden[-1].to(dtype)).float())
    assert (hidden[0] - hidden[1]).norm() < 0.25 * hidden[0].norm()  # the codes heard may differ too
    assert torch.isfinite(texts[1]).all()
