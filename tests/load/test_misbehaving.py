"""Sessions that misbehave: as many as asked for, the same ones each time."""

from __future__ import annotations

import pytest

from metronome_cli.core.errors import UsageError
from metronome_cli.load.misbehaving import MisbehavingSessions


@pytest.mark.parametrize("sessions", [20, 100, 500])
def test_shares_hold_for_any_number_of_sessions(sessions: int) -> None:
    misbehaving = MisbehavingSessions.parse("mute:10%, dead:5%,reset:20%,stall:5%")
    kinds = [misbehaving.behaviour(index) for index in range(sessions)]
    for kind, share in misbehaving.shares:
        assert kinds.count(kind) == pytest.approx(share * sessions, abs=2)
    assert kinds == [misbehaving.behaviour(index) for index in range(sessions)]


def test_without_shares_every_session_behaves() -> None:
    assert {MisbehavingSessions().behaviour(index) for index in range(50)} == {None}


@pytest.mark.parametrize("text", ["", "mute", "loud:5%", "mute:0%", "mute:60%", "mute:x"])
def test_what_is_no_share_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        MisbehavingSessions.parse(text)
