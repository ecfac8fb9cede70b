"""Slots, frames, exhaustion modes, limits and faults of the frame engine."""

from __future__ import annotations

import pytest
import torch

from metronome_cli.core.errors import EngineError
from metronome_cli.core.types import SessionRefused
from metronome_cli.engine.frame_engine import FrameEngine

from .toy import BLOCK_TOKENS, INTO, ToyModel, engine, frame

FRAME = INTO + 2  # cache positions of one frame with two tokens out


def _tokens(eng: FrameEngine, slots: list[int], frames: int, seed: int) -> list[list[int]]:
    """What each slot said in `frames` frames; its audio depends on its place in `slots`, not on its number."""
    said: list[list[int]] = [[] for _ in slots]
    for k in range(frames):
        batch = [frame(slot, seed=seed + k) for slot in slots]
        inputs = [
            type(f)(f.slot, frame(place, seed=seed + k).audio, f.tokens_out) for place, f in enumerate(batch)
        ]
        for place, outcome in enumerate(eng.step(inputs).outcomes):
            said[place].extend(outcome.tokens)
    return said


def test_a_session_says_the_same_alone_and_in_a_batch_of_others_of_other_ages() -> None:
    alone, together = engine(blocks=60), engine(blocks=60)
    slot = alone.open()
    expected = _tokens(alone, [slot], 6, seed=3)[0]
    others = [together.open(age) for age in (0, 7, 33)]
    mine = together.open()
    assert _tokens(together, [mine, *others], 6, seed=3)[0] == expected


def test_opening_and_closing_other_sessions_changes_no_output() -> None:
    calm, busy = engine(blocks=60), engine(blocks=60)
    slot = calm.open()
    expected = _tokens(calm, [slot], 8, seed=1)[0]
    slot, said, other = busy.open(), [], None
    for k in range(8):
        if other is not None and k % 3 == 0:
            busy.close(other)
            other = None
        if other is None:
            other = busy.open(11)
        said.extend(_tokens(busy, [slot, other], 1, seed=1 + k)[0])
    assert said == expected


def test_an_outcome_delivers_what_was_asked_and_the_stages_are_timed() -> None:
    eng = engine()
    slots = [eng.open(), eng.open()]
    result = eng.step([frame(slots[0], 1), frame(slots[1], 3)])
    assert [(o.slot, o.expected, o.delivered, o.empty) for o in result.outcomes] == [
        (slots[0], 1, 1, False),
        (slots[1], 3, 3, False),
    ]
    assert set(result.stages_s) == {"prefill", "decode"}
    assert all(seconds > 0 for seconds in result.stages_s.values())
    assert result.pool.used_blocks == 1 + 2
    assert (result.pool.running, result.pool.waiting) == (2, 0)


def test_a_refusal_names_slots_or_memory() -> None:
    eng = engine(slots=1, blocks=2)
    eng.open()
    with pytest.raises(SessionRefused) as refused:
        eng.open()
    assert refused.value.binding == "slots"
    eng = engine(slots=3, blocks=2)
    with pytest.raises(SessionRefused) as refused:
        eng.open(9)  # three blocks
    assert refused.value.binding == "memory"
    assert eng.pool().used_blocks == 0
    slot = eng.open(8)
    with pytest.raises(SessionRefused, match="no block"):
        eng.open()
    eng.close(slot)
    assert eng.open() is not None


def test_a_ring_pays_when_it_opens() -> None:
    eng = engine(policy="ring(8)", blocks=5)
    eng.open()
    used = eng.pool().used_blocks
    assert used == -(-(8 + INTO - 1) // BLOCK_TOKENS)
    with pytest.raises(SessionRefused) as refused:
        eng.open()
    assert refused.value.binding == "memory"
    for k in range(20):
        eng.step([frame(0, seed=k)])
    assert eng.pool().used_blocks == used


def test_stall_collapses_silently_and_recovers_only_when_a_session_closes() -> None:
    eng = engine("stall", blocks=10)
    slots = [eng.open() for _ in range(3)]
    results = [eng.step([frame(slot, seed=k) for slot in slots]) for k in range(12)]
    last = results[-1]
    assert all(o.waiting and o.empty and o.ended is None for o in last.outcomes)
    assert (last.pool.running, last.pool.waiting) == (0, 3)
    occupancy = [r.pool.occupancy for r in results]
    assert occupancy == sorted(occupancy)  # nothing is ever freed
    assert occupancy[-1] > 0.8
    eng.close(slots[0])
    after = eng.step([frame(slot, seed=20) for slot in slots[1:]])
    assert not any(o.waiting for o in after.outcomes)
    assert after.pool.waiting == 0


def test_a_stalled_session_goes_on_where_it_was() -> None:
    """The frames it waited through were dropped; nothing else changed for it."""
    free, tight = engine(blocks=60), engine("stall", blocks=10)
    slot = free.open()
    expected = [*_tokens(free, [slot], 3, seed=0)[0], *_tokens(free, [slot], 3, seed=50)[0]]
    hog, mine = tight.open(4 * 6), tight.open()
    said = _tokens(tight, [mine], 3, seed=0)[0]
    while not tight.step([frame(mine, seed=99)]).outcomes[0].waiting:
        tight.close(mine)
        tight.close(hog)
        hog, mine = tight.open(4 * 6), tight.open()
        said = _tokens(tight, [mine], 3, seed=0)[0]
    tight.close(hog)
    said.extend(_tokens(tight, [mine], 3, seed=50)[0])
    assert said == expected


def test_refuse_ends_the_one_without_room_and_frees_its_blocks() -> None:
    eng = engine("refuse", blocks=8)
    slots = [eng.open() for _ in range(3)]
    ended: list[int] = []
    for k in range(10):
        live = [slot for slot in slots if slot not in ended]
        result = eng.step([frame(slot, seed=k) for slot in live])
        ended.extend(o.slot for o in result.outcomes if o.ended == "rejected")
        assert not any(o.waiting for o in result.outcomes)
        assert result.pool.running == 3 - len(ended)
        if len(ended) == 3:
            break
    assert sorted(ended) == slots  # one after the other, each when it found no block
    assert eng.pool().used_blocks == 0
    assert eng.model.open_slots == set()  # type: ignore[attr-defined]
    eng.close(slots[2])  # it has left already
    assert len({eng.open() for _ in range(8)}) == 8


def test_preempt_takes_the_youngests_blocks_and_recomputes_it_in_whole() -> None:
    plenty, tight = engine("preempt", blocks=80), engine("preempt", blocks=14)
    expected = [plenty.open(), plenty.open()]
    slots = [tight.open(), tight.open()]
    preemptions = 0
    for k in range(6):
        result = tight.step([frame(slot, seed=k) for slot in slots])
        plenty.step([frame(slot, seed=k) for slot in expected])
        preemptions += result.preemptions
        if preemptions:
            break
    assert preemptions == 1
    young = result.outcomes[1]
    assert young.waiting
    assert young.ended is None
    assert tight.stack.blocks_held(slots[1]) == 0
    seen = tight.stack.length(slots[1])
    tight.close(slots[0])
    back = tight.step([frame(slots[1], seed=k)])
    assert back.recomputed_tokens == seen
    assert "recompute" in back.stages_s
    assert not back.outcomes[0].waiting
    # from here on its output equals that of a session with the same frames that was never preempted
    assert tight.stack.length(slots[1]) == plenty.stack.length(expected[1])
    for seed in range(70, 74):
        mine = tight.step([frame(slots[1], seed=seed)]).outcomes[0]
        other = plenty.step([frame(expected[1], seed=seed)]).outcomes[0]
        assert mine.tokens == other.tokens


def test_preemption_never_takes_from_an_older_session() -> None:
    eng = engine("preempt", blocks=10)
    slots = [eng.open() for _ in range(3)]
    for k in range(30):
        before = [eng.stack.blocks_held(s) for s in slots]
        result = eng.step([frame(slot, seed=k) for slot in slots])
        after = [eng.stack.blocks_held(s) for s in slots]
        gave = [i for i in range(3) if after[i] < before[i]]
        assert all(all(after[j] == 0 for j in range(i + 1, 3)) for i in gave)
        if result.outcomes[0].waiting:
            break
    assert eng.stack.blocks_held(slots[1]) == 0  # the oldest outlasts the others


@pytest.mark.parametrize(
    ("policy", "ends"),
    [
        ("unbounded", True),
        ("recycle(12)", True),
        ("recycle(8)", False),
        ("ring(8)", False),
        ("window(8, 2)", False),
    ],
)
def test_the_context_limit_ends_that_session_alone(policy: str, ends: bool) -> None:
    eng = engine(policy=policy, blocks=60, context=20)
    old, young = eng.open(), eng.open()
    reasons: list[tuple[int, str]] = []
    for k in range(12):
        live = [old, young] if k % 2 == 0 else [old]
        result = eng.step([frame(slot, seed=k) for slot in live if slot in eng._slots])
        reasons.extend((o.slot, o.ended) for o in result.outcomes if o.ended)
        if reasons:
            break
    assert reasons == ([(old, "context_limit")] if ends else [])
    assert not eng.step([frame(young, seed=40)]).outcomes[0].empty
    if ends:
        assert eng.stack.length(young) <= 20


def test_absolute_sinks_end_at_the_context_and_rolling_ones_do_not() -> None:
    for positions, ends in (("rolling", False), ("absolute", True)):
        eng = engine(policy="window(8, 2)", blocks=20, context=20)
        reach = eng.stack.reach
        eng.stack.reach = type(reach)(reach.sinks, reach.window, positions == "rolling")
        eng.open()
        outcomes = [eng.step([frame(0, seed=k)]).outcomes[0] for k in range(4)]
        outcomes += [eng.step([frame(0, seed=9)]).outcomes[0]]
        assert (outcomes[-1].ended == "context_limit") == ends


@pytest.mark.parametrize("bad", [[0, 0], [5]])
def test_a_slot_that_is_not_open_or_given_twice_is_refused(bad: list[int]) -> None:
    eng = engine()
    eng.open()
    with pytest.raises(ValueError, match="open and given once"):
        eng.step([frame(slot) for slot in bad])


def test_a_fault_of_the_model_is_raised_and_every_slot_still_closes() -> None:
    eng = engine(model=ToyModel(fail_at=3))
    slots = [eng.open(), eng.open()]
    for k in range(2):
        eng.step([frame(slot, seed=k) for slot in slots])
    with pytest.raises(EngineError, match="the model broke"):
        eng.step([frame(slot, seed=2) for slot in slots])
    for slot in slots:
        eng.close(slot)
    assert eng.pool().used_blocks == 0


def test_a_state_that_is_not_finite_is_a_fault_not_an_answer() -> None:
    eng = engine()
    slot = eng.open()
    bad = frame(slot)
    bad.audio[0] = float("nan")
    with pytest.raises(EngineError, match="not finite"):
        eng.step([bad])
    eng.close(slot)
    slot = eng.open()
    assert not eng.step([frame(slot)]).outcomes[0].empty  # its blocks were zeroed for the next session
    assert torch.isfinite(eng.stack.pool.data[:, :, :, 0]).all()


def test_an_empty_batch_changes_nothing() -> None:
    eng = engine()
    eng.open(5)
    before = eng.pool()
    result = eng.step([])
    assert result.outcomes == []
    assert result.pool == before
