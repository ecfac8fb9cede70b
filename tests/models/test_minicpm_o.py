"""MiniCPM-o unit by unit against its parts in `transformers`, and against itself alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from metronome_cli.core.errors import UsageError
from metronome_cli.core.types import Audio
from metronome_cli.engine.frame_engine import FrameEngine
from metronome_cli.models.minicpm_o.duplex import UnitIds
from metronome_cli.models.minicpm_o.model import MiniCpmO, load
from tests.models import mini
from tests.models.frames import engine, speech, step
from tests.models.mini import Version

SECOND = 16_000
IDS = UnitIds().within(mini.VOCAB)


def heard_by_the_parts(reference: mini.Parts, machine: FrameEngine, audio: Sequence[Audio]) -> torch.Tensor:
    """Embeddings of all seconds in one pass of the parts: Whisper's layers, projection, average."""
    model: Any = machine.model
    mels = []
    if reference.version == "4.5":
        from metronome_cli.models.minicpm_o.mel import UnitMelStream

        stream = UnitMelStream()
        cut = [model._mel45.units([stream], [second])[0] for second in audio]
        whole = torch.cat([cut[0], *(unit[:, 4:] for unit in cut[1:])], dim=1)  # the seconds share two frames
        x = F.gelu(reference.apm.conv2(F.gelu(reference.apm.conv1(whole[None])))).transpose(1, 2)[
            :, : 50 * len(cut)
        ]
    else:
        mels = list(model._mel26.units(audio))
        x = torch.cat(
            [
                F.gelu(reference.apm.conv2(F.gelu(reference.apm.conv1(mel[None])))).transpose(1, 2)
                for mel in mels
            ],
            1,
        )
    x = x + reference.apm.embed_positions.weight[: x.shape[1]]
    second = torch.arange(x.shape[1]) // 50
    mask = torch.where(second[None, :] <= second[:, None], 0.0, float("-inf"))[None, None]
    for layer in reference.apm.layers:
        x = layer(x, mask)
    projection: Any = reference.projection
    x = projection.linear2(F.relu(projection.linear1(reference.apm.layer_norm(x))))
    pool = 5 if reference.version == "4.5" else 2
    pooled: torch.Tensor = F.avg_pool1d(x.transpose(1, 2), pool, pool).transpose(1, 2)[0]
    return pooled.view(len(audio), -1, pooled.shape[1])


@pytest.mark.parametrize("version", mini.VERSIONS)
@torch.no_grad()
def test_a_streamed_session_says_what_the_parts_say_in_one_pass(version: Version, tmp_path: Path) -> None:
    reference = mini.parts(version)
    profile = mini.profile(version, options={"decide": "plan"})
    loaded = load(profile, weights=reference.save(tmp_path), device="cpu", seed=0)
    machine, audio = engine(loaded, profile), speech(SECOND, 4, seed=1)
    slot = machine.open()
    wanted = [6, 1, 1, 6] if version == "4.5" else [0, 0, 4, 4]
    said = [list(step(machine, [slot], [a], [n])[0].tokens) for a, n in zip(audio, wanted, strict=True)]
    heard = heard_by_the_parts(reference, machine, audio)
    if version == "2.6":  # the encoder began anew when the answer did
        heard[2:] = heard_by_the_parts(reference, machine, audio[2:])

    embed = reference.llm.get_input_embeddings()
    rows, answers = [], []
    for sound, tokens in zip(heard, said, strict=True):
        opening = [IDS.unit] if version == "4.5" else [IDS.audio_start]
        rows += [embed(torch.tensor(opening)), sound]
        rows += [embed(torch.tensor([IDS.audio_end]))] if version == "2.6" else []
        answers.append(sum(len(row) for row in rows) - 1)
        rows.append(
            embed(torch.tensor([*tokens, IDS.unit_end] if version == "4.5" else tokens, dtype=torch.long))
        )
    logits = reference.llm(inputs_embeds=torch.cat(rows)[None]).logits[0]
    for at, tokens, n in zip(answers, said, wanted, strict=True):
        assert len(tokens) == n
        picked = logits[at : at + n].argmax(-1).tolist()
        if version == "4.5":  # the plan puts the first and the last token
            assert tokens == ([IDS.listen] if n == 1 else [IDS.speak, *picked[1:-1], IDS.chunk_eos])
        else:
            assert tokens == picked


@pytest.mark.parametrize(
    ("version", "talker"), [("2.6", False), ("2.6", True), ("4.5", False), ("4.5", True)]
)
def test_sessions_of_different_ages_in_one_batch_equal_each_alone(version: Version, talker: bool) -> None:
    profile = mini.profile(version, options={"talker": talker})
    loaded = load(profile, weights=None, device="cpu", seed=3)
    audio = [speech(SECOND, 4, seed=s) for s in range(3)]
    plan = [(5, 1, 4, 4), (1, 6, 6, 1), (2, 2, 1, 3)]
    starts = [0, 1, 3]

    def run(rows: Sequence[int]) -> dict[int, list[list[int]]]:
        machine, slots, said = engine(loaded, profile), {}, {row: [] for row in rows}
        for tick in range(7):
            due = [row for row in rows if starts[row] <= tick < starts[row] + 4]
            slots |= {row: machine.open() for row in due if row not in slots}
            at = [tick - starts[row] for row in due]
            outcomes = step(
                machine,
                [slots[row] for row in due],
                [audio[row][k] for row, k in zip(due, at, strict=True)],
                [plan[row][k] for row, k in zip(due, at, strict=True)],
            )
            for row, outcome in zip(due, outcomes, strict=True):
                said[row].append(list(outcome.tokens))
        return said

    assert run([0, 1, 2]) == {**run([0]), **run([1]), **run([2])}


@pytest.mark.parametrize("talker", [False, True])
@pytest.mark.parametrize("version", mini.VERSIONS)
def test_positions_are_those_that_were_announced(version: Version, talker: bool) -> None:
    profile = mini.profile(version, options={"talker": talker})
    machine = engine(load(profile, weights=None, device="cpu", seed=3), profile)
    slot = machine.open()
    for samples, out in zip(speech(SECOND, 4, seed=5), (5, 1, 1, 6), strict=True):
        before, announced = machine.stack.length(slot), machine.model.positions(slot, out)
        step(machine, [slot], [samples], [out])
        assert machine.stack.length(slot) - before == announced


def test_units_of_version_45_cost_what_the_profile_says() -> None:
    profile = mini.profile("4.5")
    machine = engine(load(profile, weights=None, device="cpu", seed=3), profile)
    slot = machine.open()
    lengths = []
    for samples, out in zip(speech(SECOND, 5, seed=5), (1, 1, 6, 6, 1), strict=True):
        step(machine, [slot], [samples], [out])
        lengths.append(machine.stack.length(slot) + len(machine.model._sessions[slot].unfed))  # type: ignore[attr-defined]
    assert np.diff([0, *lengths]).tolist() == [13, 13, 18, 18, 13]
    assert profile.tokens.per_frame(speaking=False) == 13


def test_where_the_model_decides_room_for_the_longest_unit_is_announced() -> None:
    profile = mini.profile("4.5", options={"decide": "model"})
    machine = engine(load(profile, weights=None, device="cpu", seed=3), profile)
    slot = machine.open()
    for samples in speech(SECOND, 6, seed=5):
        announced, before = machine.model.positions(slot, 1), machine.stack.length(slot)
        tokens = step(machine, [slot], [samples], [1])[0].tokens
        assert machine.stack.length(slot) - before <= announced
        assert tokens[-1] in IDS.ends
        assert 1 <= len(tokens) <= 20


def test_a_session_opened_at_an_age_has_its_place_in_the_sawtooth() -> None:
    profile = mini.profile("4.5")
    loaded = load(profile, weights=None, device="cpu", seed=3)
    machine = engine(loaded, profile)
    per_unit = profile.mean_tokens_per_frame
    slots = [machine.open(round(age * per_unit)) for age in (0, 5, 28, 30)]
    step(machine, slots, [a[0] for a in (speech(SECOND, 1, s) for s in range(4))], [1] * 4)
    model: Any = machine.model
    assert [model._sessions[slot].cache.length for slot in slots] == [50, 300, 1450, 100]
    held = [model._sessions[slot].cache.nbytes for slot in slots]
    for slot in slots:
        machine.close(slot)
    assert model.describe()["encoder_bytes_peak"] == sum(held) > 0


def test_an_answer_in_version_26_drops_the_encoders_cache() -> None:
    profile = mini.profile("2.6")
    machine = engine(load(profile, weights=None, device="cpu", seed=3), profile)
    slot, lengths = machine.open(), []
    for samples, out in zip(speech(SECOND, 5, seed=5), (0, 0, 4, 4, 0), strict=True):
        step(machine, [slot], [samples], [out])
        lengths.append(machine.model._sessions[slot].cache.length)  # type: ignore[attr-defined]
    assert lengths == [50, 100, 50, 100, 150]


def test_the_turns_end_drops_the_talkers_cache() -> None:
    profile = mini.profile("4.5", options={"talker": True})
    machine = engine(load(profile, weights=None, device="cpu", seed=3), profile)
    model: Any = machine.model
    slot, used = machine.open(), []
    for samples, out in zip(speech(SECOND, 5, seed=5), (1, 6, 6, 1, 2), strict=True):
        step(machine, [slot], [samples], [out])
        used.append(model.pools()["talker"].used_blocks)
    # a unit with 4 words feeds 4 + 1 + 25 positions, one without words 26; the last code waits
    assert used == [0, -(-29 // 16), -(-59 // 16), 0, -(-25 // 16)]


def test_published_sizes_cost_what_is_published() -> None:
    shape = {"layers": 36, "heads": 32, "kv_heads": 8, "head_dim": 128, "hidden_size": 4096,
             "intermediate_size": 12_288,
             "vocab_size": 151_748, "dtype": "bfloat16", "context_length": 40_960}  # fmt: skip
    profile = mini.profile("4.5", shape=shape, adapter_options={"version": "4.5", "talker": True})
    from metronome_cli.models.minicpm_o.shape import MiniCpmShape

    made = MiniCpmShape.of(profile)
    assert profile.shape.kv_bytes_per_token == 144 * 1024
    assert made.talker is not None
    assert made.talker.kv_bytes_per_token == 60 * 1024
    assert 2 * made.encoder.layers * made.encoder.width * 2 == 96 * 1024


def test_a_checkpoint_of_the_other_version_is_refused(tmp_path: Path) -> None:
    folder = mini.parts("2.6").save(tmp_path)
    with pytest.raises(UsageError, match=r"config\.json is not of MiniCPM-o 4\.5"):
        load(mini.profile("4.5"), weights=folder, device="cpu", seed=0)


def test_a_missing_part_is_named(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    reference = mini.parts("4.5")
    reference.save(tmp_path)
    state = {k: v for k, v in reference.state().items() if k != "llm.model.layers.1.self_attn.q_norm.weight"}
    save_file({k: v.contiguous().clone() for k, v in state.items()}, tmp_path / "model.safetensors")
    with pytest.raises(UsageError, match=r"missing tensor llm\.model\.layers\.1\.self_attn\.q_norm\.weight"):
        load(mini.profile("4.5"), weights=tmp_path, device="cpu", seed=0)


@pytest.mark.parametrize(("changes", "message"), [
    ({"tokens": {"prefill": 10, "decode": {"listening": 1, "speaking": 6}}}, "tokens.prefill is 10"),
    ({"tokens": {"prefill": 12, "decode": {"listening": 1, "speaking": 21}}}, "answered with 1 to 20 tokens"),
    ({"frame": {"period": "2s", "sample_rate": 16_000}}, "units of 1s"),
    ({"options": {"encoder_layer": 2}}, "unknown key 'encoder_layer'"),
    ({"options": {"decide": "coin"}}, "decide is 'coin'"),
])  # fmt: skip
def test_a_profile_that_is_no_unit_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        MiniCpmO.from_profile(mini.profile("4.5", **changes), "random", "cpu", seed=0)
