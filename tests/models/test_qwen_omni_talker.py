"""The talkers' codes against `transformers`' talkers, and their caches through turns."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from metronome_cli.config.cache_policy import CachePolicySpec
from metronome_cli.core.types import FrameInput
from metronome_cli.engine.build_decoder import build_decoder
from metronome_cli.engine.frame_engine import FrameEngine
from metronome_cli.models.qwen_omni import model
from metronome_cli.models.qwen_omni.tower import Family
from metronome_cli.models.qwen_omni.weights import QwenOmniWeights, load_weights
from metronome_cli.models.sampling import Sampler
from metronome_cli.models.talker.talker_stage import TalkerHead, TalkerInput, TalkerStage
from metronome_cli.models.talker.turn_cache import TurnCache
from tests.models import omni

CPU = torch.device("cpu")
CODES = 12  # a frame


def weights(family: Family, tmp_path: Path | None = None, reference: Any = None) -> QwenOmniWeights:
    profile = omni.profile(family, options={"talker": True})
    folder = None if reference is None or tmp_path is None else omni.save(reference, tmp_path)
    return load_weights(profile, folder, CPU, seed=5)


def voice(read: QwenOmniWeights) -> TalkerHead:
    assert read.talker is not None
    return model._voice(read, read.talker, Sampler(0.0, 0))


def talker(
    read: QwenOmniWeights, *, blocks: int = 64, limit: int | None = None, each_turn: bool = True
) -> TalkerStage:
    assert read.talker is not None
    stack = build_decoder(
        read.talker.decoder, blocks=blocks, policy=CachePolicySpec("unbounded"), block_tokens=8
    )
    return TalkerStage(voice(read), TurnCache(stack, limit, each_turn=each_turn), CODES)


def heard(read: QwenOmniWeights, tokens: Sequence[int], seed: int) -> TalkerInput:
    torch.manual_seed(seed)
    return TalkerInput(torch.randn(omni.HIDDEN), tokens, list(torch.randn(len(tokens), omni.HIDDEN)))


@torch.no_grad()
def test_codes_of_qwen25_equal_the_reference(tmp_path: Path) -> None:
    reference = omni.model("qwen2.5")
    read = weights("qwen2.5", tmp_path, reference)
    ours, said = talker(read), heard(read, [3, 9, 27], seed=1)
    ours.open(0)
    codes = [
        ours.speak([0], [said])[0],
        ours.speak([0], [TalkerInput(said.before)])[0],
    ]  # the text is used up in frame 1
    got = torch.cat(codes)[:, 0].tolist()

    theirs, embed = reference.talker, reference.thinker.get_input_embeddings()
    ids: Any = voice(read)._ids  # type: ignore[attr-defined]
    codec = theirs.get_input_embeddings()
    text = embed(torch.tensor([3, 9, 27])) + torch.stack(list(said.states))
    pad = embed(torch.tensor([ids.pad]))
    opening = torch.stack([
        said.before,
        embed(torch.tensor(ids.bos)) + codec(torch.tensor(ids.codec_pad)),
        text[0] + codec(torch.tensor(ids.codec_bos)),
    ])  # fmt: skip
    reply = torch.cat([text[1:], pad.expand(2 * CODES, -1)])
    expected: list[int] = []
    inputs = opening[None]
    for i in range(2 * CODES):
        whole = theirs(inputs_embeds=inputs, position_ids=torch.arange(inputs.shape[1]).expand(3, 1, -1))
        expected.append(int(whole.logits[0, -1, : ids.codec_pad].argmax()))
        step = codec(torch.tensor([expected[-1]])) + reply[i]
        inputs = torch.cat([inputs, step[None]], dim=1)
    assert got == expected


@torch.no_grad()
def test_codes_of_qwen3_equal_the_reference(tmp_path: Path) -> None:
    reference = omni.model("qwen3")
    read = weights("qwen3", tmp_path, reference)
    ours, said = talker(read), heard(read, [3, 9, 27], seed=1)
    ours.open(0)
    got = torch.cat([ours.speak([0], [said])[0], ours.speak([0], [TalkerInput(said.before)])[0]])

    theirs, embed = reference.talker, reference.thinker.get_input_embeddings()
    ids: Any = voice(read)._ids  # type: ignore[attr-defined]
    codec = theirs.get_input_embeddings()

    def text(tokens: Sequence[int]) -> torch.Tensor:
        projected: torch.Tensor = theirs.text_projection(embed(torch.tensor(tokens)))
        return projected

    opening = torch.cat([text(ids.role), text([ids.pad] * 4), text([ids.bos]), text([3])])
    opening[3:] += codec(torch.tensor(ids.header))
    reply = torch.cat([text([9, 27]), text([ids.pad]).expand(2 * CODES, -1)])
    inputs, expected = opening[None], []
    for i in range(2 * CODES):
        positions = torch.arange(inputs.shape[1]).expand(4, 1, -1)
        hidden = theirs.model(inputs_embeds=inputs, position_ids=positions).last_hidden_state[:, -1:]
        codes = [int(theirs.codec_head(hidden)[0, -1, : ids.sounds].argmax())]
        row = torch.cat([hidden, codec(torch.tensor([[codes[0]]]))], dim=1)
        for group, table in enumerate(theirs.code_predictor.get_input_embeddings()):
            state = theirs.code_predictor.model(inputs_embeds=row).last_hidden_state[:, -1]
            codes.append(int(theirs.code_predictor.lm_head[group](state)[0].argmax()))
            row = torch.cat([row, table(torch.tensor([[codes[-1]]]))], dim=1)
        expected.append(codes)
        spoken = row[:, 1:].sum(1) + reply[i]
        inputs = torch.cat([inputs, spoken[None]], dim=1)
    assert got.tolist() == expected


@pytest.mark.parametrize("family", omni.FAMILIES)
@torch.no_grad()
def test_turns_of_different_ages_in_one_batch_equal_each_alone(family: Family) -> None:
    read = weights(family)
    frames = {slot: [heard(read, [7 * slot + k, 5], seed=10 * slot + k) for k in range(3)] for slot in (0, 1)}

    def run(slots: Sequence[int]) -> dict[int, list[Any]]:
        ours, said = talker(read), {slot: [] for slot in slots}
        for slot in slots:
            ours.open(slot)
        for tick in range(4):
            due = {slot: frames[slot][tick - slot] for slot in slots if slot <= tick < slot + 3}
            for slot, codes in ours.speak(list(due), list(due.values())).items():
                said[slot].append(codes.tolist())
        return said

    assert run([0, 1]) == {**run([0]), **run([1])}


@pytest.mark.parametrize("each_turn", [True, False])
@torch.no_grad()
def test_a_turns_end_drops_its_cache_where_the_stage_does_so(each_turn: bool) -> None:
    read = weights("qwen2.5")
    ours = talker(read, each_turn=each_turn)
    ours.open(0)
    first = ours.speak([0], [heard(read, [4], seed=2)])[0]
    used = ours.pool().used_blocks
    assert used == -(-(3 + CODES - 1) // 8)
    ours.end_turn(0)
    assert ours.pool().used_blocks == (0 if each_turn else used)
    second = ours.speak([0], [heard(read, [4], seed=2)])[0]
    assert torch.equal(first, second) == each_turn
    ours.close(0)
    assert ours.pool().used_blocks == 0


@torch.no_grad()
def test_without_a_block_a_session_is_silent_and_waits() -> None:
    read = weights("qwen2.5")
    ours = talker(read, blocks=3)
    for slot in (0, 1):
        ours.open(slot)
    spoken = ours.speak([0, 1], [heard(read, [4], seed=2), heard(read, [6], seed=3)])
    assert set(spoken) == {0}
    assert (ours.pool().running, ours.pool().waiting) == (1, 1)


@torch.no_grad()
def test_past_its_limit_a_session_begins_anew_and_is_counted() -> None:
    read = weights("qwen2.5")
    ours = talker(read, limit=30)
    ours.open(0)
    for k in range(4):
        assert ours.speak([0], [heard(read, [4], seed=k)])[0].shape == (CODES, 1)
    assert ours.restarts == 1
    assert ours.pool().used_blocks <= 4


def test_a_session_without_room_for_its_speech_delivers_nothing_and_the_pool_says_so() -> None:
    stage = {
        "name": "talker", "kind": "paged", "kv_bytes_per_position": 256, "resets": "turn",
        "pool": {"blocks": 7}, "positions_per_s": {"speaking": 50.0},
    }  # fmt: skip
    profile = omni.profile("qwen2.5", options={"talker": True}, stages=[stage])
    loaded = model.load(profile, weights=None, device="cpu", seed=1)
    stack = build_decoder(loaded.decoder, blocks=64, policy=profile.policy_spec)
    machine = FrameEngine(loaded.fresh(), stack, 4)
    slots = [machine.open(), machine.open()]
    sound = np.zeros(32_000, np.float32)
    result = machine.step([FrameInput(slot, sound, 5) for slot in slots])
    assert [outcome.delivered for outcome in result.outcomes] == [5, 0]  # 102 positions each, room for 112
    assert result.other_pools["talker"].waiting == 1
    machine.close(slots[0])
    assert machine.step([FrameInput(slots[1], sound, 5)]).outcomes[0].delivered == 5
