"""Delayed token streams: what is fed and what comes out, against the definition over whole sequences."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from metronome_cli.models.moshi.token_streams import TokenStreams

CPU = torch.device("cpu")
SPOKEN, HEARD = 2, 3
DELAYS = (0, 0, 1, 0, 1, 1)
INITIAL = (900, 800, 800, 800, 800, 800)


def streams(delays: tuple[int, ...] = DELAYS) -> TokenStreams:
    return TokenStreams(delays, INITIAL, SPOKEN, CPU)


def token(stream: int, step: int, session: int) -> int:
    """A token that tells where it is from."""
    return 100 * session + 10 * stream + step % 10 + 1000 * step


def run(table: TokenStreams, slots: list[int], steps: dict[int, int]) -> tuple[Tensor, Tensor, list[bool]]:
    """One step of these slots: the rows fed, the frames out, whether they speak."""
    heard = [[token(1 + SPOKEN + k, steps[s], s) for k in range(HEARD)] for s in slots]
    said = [[token(k, steps[s], s) for k in range(1 + SPOKEN)] for s in slots]
    step = table.begin(slots, torch.tensor(heard))
    out = table.finish(step, torch.tensor(said))
    for slot in slots:
        steps[slot] += 1
    return step.row, out, step.speaks.tolist()


def fed(step: int, session: int, delays: tuple[int, ...]) -> list[int]:
    """The row of a step: what was said one step ago or heard `delay` ago, initial tokens where t <= delay."""
    row = []
    for stream, delay in enumerate(delays):
        source = step - 1 if stream <= SPOKEN else step - delay
        row.append(INITIAL[stream] if step <= delay else token(stream, source, session))
    return row


def aligned(step: int, session: int, delays: tuple[int, ...]) -> list[int]:
    """The frame that comes out after a step: every stream said max_delay - delay steps before this one."""
    behind = [max(delays) - delay for delay in delays[: 1 + SPOKEN]]
    return [token(stream, step - lag, session) for stream, lag in enumerate(behind)]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sets(st.sampled_from([0, 1, 4]), min_size=1), min_size=1, max_size=14),
    st.sampled_from([DELAYS, (0, 0, 2, 0, 2, 1), (0,) * 6]),
)
def test_any_interleaving_of_sessions_feeds_and_speaks_by_the_definition(
    turns: list[set[int]], delays: tuple[int, ...]
) -> None:
    table, steps = streams(delays), {0: 0, 1: 0, 4: 0}
    for slot in steps:
        table.open(slot)
    for turn in turns:
        slots = sorted(turn, reverse=len(turn) % 2 == 0)
        before = dict(steps)
        row, out, speaks = run(table, slots, steps)
        for index, slot in enumerate(slots):
            assert row[index].tolist() == fed(before[slot], slot, delays)
            assert speaks[index] == (before[slot] >= max(delays))
            if speaks[index]:
                assert out[index].tolist() == aligned(before[slot], slot, delays)


def test_the_users_first_frame_is_never_read() -> None:
    table, steps = streams(), {0: 0}
    table.open(0)
    rows = [run(table, [0], steps)[0][0].tolist() for _ in range(6)]
    first = {token(1 + SPOKEN + k, 0, 0) for k in range(HEARD)}
    assert not first & {value for row in rows for value in row[:1] + row[1 + SPOKEN : 2 + SPOKEN]}
    assert rows[0] == list(INITIAL)


def test_a_slot_opened_again_begins_with_initial_tokens_and_its_neighbour_goes_on() -> None:
    table, steps = streams(), {0: 0, 1: 0}
    table.open(0)
    table.open(1)
    for _ in range(5):
        run(table, [0, 1], steps)
    table.open(0)
    steps[0] = 0
    row, _, speaks = run(table, [0, 1], steps)
    assert row[0].tolist() == list(INITIAL)
    assert row[1].tolist() == fed(5, 1, DELAYS)
    assert speaks == [False, True]
