"""The talkers' codes against a Llama of `transformers` in one pass."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from metronome_cli.config.cache_policy import CachePolicySpec
from metronome_cli.engine.build_decoder import build_decoder
from metronome_cli.models.minicpm_o.talker import TalkerHead26, TalkerHead45
from metronome_cli.models.minicpm_o.weights import load_weights, weight_norm
from metronome_cli.models.sampling import Sampler
from metronome_cli.models.talker.talker_stage import TalkerInput, TalkerStage
from metronome_cli.models.talker.turn_cache import TurnCache
from tests.models import mini
from tests.models.mini import Version

FRAMES, CODES, BOS = 3, 6, 77


def talker(version: Version, folder: Path) -> TalkerStage:
    profile = mini.profile(version, options={"talker": True})
    read = load_weights(profile, folder, torch.device("cpu"), seed=0)
    assert read.voice is not None
    assert read.talker is not None
    stack = build_decoder(read.talker, blocks=64, policy=CachePolicySpec("unbounded"))
    voice = (TalkerHead45 if version == "4.5" else TalkerHead26)(read.voice, Sampler(0.0, 0), BOS)
    return TalkerStage(voice, TurnCache(stack, None, each_turn=True), CODES)


def said(frame: int) -> TalkerInput:
    torch.manual_seed(frame)
    tokens = [[5, 150, 9], [], [8]][frame]  # 150 is beyond the talker's table of 120
    return TalkerInput(torch.randn(mini.HIDDEN), tokens, list(torch.randn(len(tokens), mini.HIDDEN)))


def projected(reference: mini.Parts, states: torch.Tensor) -> torch.Tensor:
    tts: Any = reference.tts
    made = tts.projector_semantic if reference.version == "4.5" else tts.projector
    return F.normalize(made.linear2(F.relu(made.linear1(states))), dim=-1)


def lead(reference: mini.Parts, frame: int) -> torch.Tensor | None:
    """The rows that the authors' layout puts before this frame's codes."""
    tts: Any = reference.tts
    heard = said(frame)
    words = tts.emb_text(torch.tensor(heard.tokens, dtype=torch.long) % mini.TEXT)
    bos = tts.emb_text(torch.tensor([BOS]))
    if reference.version == "4.5":
        states = torch.stack(list(heard.states)) if heard.states else torch.zeros(0, mini.HIDDEN)
        return torch.cat([words + projected(reference, states), bos])
    if frame:
        return None
    empty = tts.emb_text(torch.zeros(300 - len(words), dtype=torch.long))
    return torch.cat(
        [tts.emb_text(torch.tensor([0])), projected(reference, heard.before[None]), words, empty, bos]
    )


def in_one_pass(reference: mini.Parts) -> list[list[list[int]]]:
    tts: Any = reference.tts
    inputs, spoken = torch.zeros(0, mini.TALKER_HIDDEN), []
    for frame in range(FRAMES):
        rows = lead(reference, frame)
        inputs = inputs if rows is None else torch.cat([inputs, rows])
        codes: list[list[int]] = []
        for _ in range(CODES):
            state = tts.model(inputs_embeds=inputs[None]).last_hidden_state[0, -1]
            codes.append([int(head(state)[:-1].argmax()) for head in tts.head_code])
            step = sum(table(torch.tensor(code)) for table, code in zip(tts.emb_code, codes[-1], strict=True))
            inputs = torch.cat([inputs, step[None]])
        spoken.append(codes)
    return spoken


@pytest.mark.parametrize("version", mini.VERSIONS)
@torch.no_grad()
def test_codes_equal_a_llama_in_one_pass(version: Version, tmp_path: Path) -> None:
    reference = mini.parts(version)
    ours = talker(version, reference.save(tmp_path))
    ours.open(0)
    got = [ours.speak([0], [said(frame)])[0].tolist() for frame in range(FRAMES)]
    assert got == in_one_pass(reference)


def test_weight_norm_is_that_of_torch() -> None:
    reference: Any = mini.parts("4.5").tts
    head = reference.head_code[0]
    stored = head.parametrizations.weight
    torch.testing.assert_close(weight_norm([stored.original0, stored.original1]), head.weight)
