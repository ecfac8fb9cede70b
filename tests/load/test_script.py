"""Scripts: what a file may say, and when the users of a loop speak."""

from __future__ import annotations

import pytest

from metronome_cli.core.call_events import CallEventKind as K
from metronome_cli.core.errors import UsageError
from metronome_cli.load.script import Script, ScriptLine, ScriptMark, built_in_script, parse_script


def test_a_script_is_read_line_by_line() -> None:
    text = "say\nwait 3s  # an answer\n\nover at 1.5s\nsay hello.wav\nmm-hm at 500ms\n"
    assert parse_script(text) == (
        ScriptLine("say"),
        ScriptLine("wait", 3.0),
        ScriptLine("over", 1.5),
        ScriptLine("say", file="hello.wav"),
        ScriptLine("mm-hm", 0.5),
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("say\nsing", "line 2"),
        ("say\nwait", "line 2"),
        ("say\nwait 0s", "no time at all"),
        ("say\nmm-hm x.wav at 1s", "line 2"),
        ("wait 3s", "it has no line"),
        ("", "it has no line"),
    ],
)
def test_a_line_that_is_none_is_named(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse_script(text)


def test_each_session_speaks_from_its_own_place_of_the_loop() -> None:
    script = Script([ScriptMark("say", 100, 300), ScriptMark("over", 600, 700)], 1000, 100)
    events = script.events(7, 500, 20.0)
    found = [next(events) for _ in range(4)]
    assert [(e.kind, e.at_s, e.value) for e in found] == [
        (K.BARGE_IN, 21.0, 0.0),
        (K.TURN, 21.0, 22.0),
        (K.TURN, 26.0, 28.0),
        (K.BARGE_IN, 31.0, 0.0),
    ]
    assert {event.session for event in found} == {7}


def test_the_built_in_script_asks_interrupts_and_hums() -> None:
    kinds = [line.kind for line in built_in_script()]
    assert kinds.count("say") == 6
    assert kinds.count("over") == kinds.count("mm-hm") == 1
    assert all(line.seconds > 1.5 for line in built_in_script() if line.kind == "wait")
