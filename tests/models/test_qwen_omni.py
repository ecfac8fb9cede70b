"""Qwen-Omni frame by frame against `transformers`' thinker in one pass, and against itself alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from metronome_cli.core.errors import UsageError
from metronome_cli.models.qwen_omni.model import OmniFrame, QwenOmni, load
from metronome_cli.models.qwen_omni.shape import QwenOmniShape
from metronome_cli.models.qwen_omni.tower import Family
from tests.models import omni
from tests.models.frames import engine, speech, step

FRAME = 32_000


def sequence(model: QwenOmni, said: Sequence[Sequence[int]], audio: int) -> tuple[list[int], list[int]]:
    """Token numbers of the whole session, audio as placeholders, and where each frame's answer begins."""
    begin, end = (token % omni.VOCAB for token in (model_markers(model)))
    ids: list[int] = []
    answers = []
    for tokens in said:
        ids += [begin, *[omni.VOCAB - 1] * audio, end]
        answers.append(len(ids) - 1)
        ids += tokens
    return ids, answers


def model_markers(model: QwenOmni) -> tuple[int, int]:
    return (151647, 151648) if model.describe()["family"] == "qwen2.5" else (151669, 151670)


@pytest.mark.parametrize("names", ["authors", "transformers"])
@pytest.mark.parametrize("family", omni.FAMILIES)
@torch.no_grad()
def test_a_streamed_session_says_what_the_reference_says_in_one_pass(
    family: Family, names: str, tmp_path: Path
) -> None:
    reference = omni.model(family)
    profile = omni.profile(family)
    loaded = load(profile, weights=omni.save(reference, tmp_path, names), device="cpu", seed=0)
    machine, audio = engine(loaded, profile), speech(FRAME, 3, seed=1)
    model: Any = machine.model
    slot = machine.open()
    said, heard = [], []
    for samples in audio:
        state = model._heard[slot]
        before = (None if state.carry is None else state.carry.copy(), state.loudest)
        heard.append(model.encode([slot], [samples])[0])
        state.carry, state.loudest = before
        said.append(list(step(machine, [slot], [samples], [4])[0].tokens))
    audio_tokens = len(heard[0])
    ids, answers = sequence(model, said, audio_tokens)
    embeds = reference.thinker.get_input_embeddings()(torch.tensor([ids]))
    embeds[0, torch.tensor(ids) == omni.VOCAB - 1] = torch.cat(heard)
    positions = torch.arange(len(ids)).expand(3, 1, -1)
    logits = reference.thinker(inputs_embeds=embeds, position_ids=positions).logits[0]
    for at, tokens in zip(answers, said, strict=True):
        assert logits[at : at + 4].argmax(-1).tolist() == tokens


@pytest.mark.parametrize("family", omni.FAMILIES)
def test_rotary_positions_of_audio_and_text_are_plain(family: Family) -> None:
    thinker = omni.model(family).thinker
    config = thinker.config
    config.vision_start_token_id = 151652  # read by the reference, not among its own defaults
    audio = 50 if family == "qwen2.5" else 26
    start, end = (
        config.audio_start_token_id,
        getattr(config, "audio_end_token_id", config.audio_start_token_id + 1),
    )
    chunk = [start, *[config.audio_token_id] * audio, end]
    ids = torch.tensor([[5, 6, *chunk, 7, 8, 9, *chunk, 10]])
    positions, _ = thinker.model.get_rope_index(
        ids, attention_mask=torch.ones_like(ids), audio_seqlens=torch.tensor([200, 200])
    )
    assert torch.equal(positions, torch.arange(ids.shape[1]).expand(3, 1, -1).to(positions.dtype))


@pytest.mark.parametrize("talker", [False, True])
@pytest.mark.parametrize("family", omni.FAMILIES)
def test_sessions_of_different_ages_in_one_batch_equal_each_alone(family: Family, talker: bool) -> None:
    profile = omni.profile(family, options={"talker": talker})
    loaded = load(profile, weights=None, device="cpu", seed=3)
    audio = [speech(FRAME, 4, seed=s) for s in range(3)]
    starts = [0, 1, 3]

    def run(rows: Sequence[int]) -> dict[int, list[list[int]]]:
        machine, slots, said = engine(loaded, profile), {}, {row: [] for row in rows}
        for tick in range(6):
            due = [row for row in rows if starts[row] <= tick < starts[row] + 4]
            slots |= {row: machine.open() for row in due if row not in slots}
            frames = [audio[row][tick - starts[row]] for row in due]
            outcomes = step(machine, [slots[row] for row in due], frames, [5] * len(due))
            for row, outcome in zip(due, outcomes, strict=True):
                said[row].append(list(outcome.tokens))
        return said

    together = run([0, 1, 2])
    assert together == {**run([0]), **run([1]), **run([2])}
    assert together[0] != together[1]


@pytest.mark.parametrize("family", omni.FAMILIES)
def test_positions_are_those_that_were_announced(family: Family) -> None:
    for talker in (False, True):
        profile = omni.profile(family, options={"talker": talker})
        machine = engine(load(profile, weights=None, device="cpu", seed=3), profile)
        slot = machine.open()
        for samples, out in zip(speech(FRAME, 4, seed=5), (5, 0, 1, 5), strict=True):
            before, announced = machine.stack.length(slot), machine.model.positions(slot, out)
            step(machine, [slot], [samples], [out])
            assert machine.stack.length(slot) - before == announced


def test_every_frames_audio_matters() -> None:
    profile = omni.profile("qwen2.5")
    model = QwenOmni.from_profile(profile, "random", "cpu", seed=1)
    model.open(0)
    model.open(1)
    loud, quiet = speech(FRAME, 2, seed=6)
    first, second = model.encode([0, 1], [loud, quiet])
    assert (first - second).abs().mean() > 0.05 * first.abs().mean()


@pytest.mark.parametrize(("family", "into"), [("qwen2.5", 50), ("qwen2.5", 52), ("qwen3", 26), ("qwen3", 28)])
def test_markers_are_the_profiles_choice(family: Family, into: int) -> None:
    changes = {"tokens": {"prefill": into, "decode": {"listening": 0, "speaking": 5}}}
    profile = omni.profile(family, **changes)
    plan = OmniFrame.of(profile, QwenOmniShape.of(profile))
    assert (plan.into, plan.markers) == (into, into in (52, 28))


def test_a_frame_that_the_tower_does_not_make_is_refused() -> None:
    profile = omni.profile("qwen2.5", tokens={"prefill": 40, "decode": {"listening": 0, "speaking": 5}})
    with pytest.raises(UsageError, match=r"tokens\.prefill is 40; a frame of 2 s gives 50 audio tokens"):
        OmniFrame.of(profile, QwenOmniShape.of(profile))


def test_unknown_options_name_the_nearest() -> None:
    with pytest.raises(UsageError, match="unknown key 'tower_layer'") as caught:
        QwenOmniShape.of(omni.profile("qwen3", options={"tower_layer": 2}))
    assert caught.value.hint == "did you mean tower_layers?"


def test_a_checkpoint_of_another_family_names_its_first_tensors(tmp_path: Path) -> None:
    folder = omni.save(omni.model("qwen2.5"), tmp_path)
    with pytest.raises(UsageError, match=r"missing tensor thinker\.audio_tower\.conv2d1\.weight.*unexpected"):
        load(omni.profile("qwen3"), weights=folder, device="cpu", seed=0)


def test_what_streaming_changes_is_said() -> None:
    for family, exact in (("qwen2.5", True), ("qwen3", False)):
        model = QwenOmni.from_profile(omni.profile(family), "random", "cpu", seed=1)  # type: ignore[arg-type]
        assert model.describe()["streaming"].startswith("exact") == exact
