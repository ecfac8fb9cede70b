"""Scripted conversations: what each user says and when, fixed before the trial.

A script is a list of lines, repeated for as long as a session lasts:

    say [FILE]              the next utterance of the recordings, or a file
    wait TIME               room noise; the model may answer
    over [FILE] at TIME     an utterance over the answer, TIME after the end of the one before: a barge-in
    mm-hm at TIME           a short word over the answer that asks for nothing

Waits are fixed: a wait "until it has answered" would ask a slow server fewer questions. They stream room noise, since a
session that sends nothing looks like a dead connection. All sessions follow one loop, each from another place of it.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from metronome_cli.core.call_events import CallEvent, CallEventKind
from metronome_cli.core.errors import UsageError
from metronome_cli.core.quantities import parse_duration, shown

WAIT_S = 8.0  # in the built-in script, if no idle session measured how long answers take
MOST_LINES = 10_000
BUILT_IN = "turns"

LineKind = Literal["say", "wait", "over", "mm-hm"]
_OVER = re.compile(r"(over|mm-hm)(?:\s+(?!at\s)(.+?))?\s+at\s+(\S+)")


@dataclass(frozen=True, slots=True)
class ScriptLine:
    """One line. `seconds`: of a wait, or from the end of the utterance before; `file` None: the recordings' next."""

    kind: LineKind
    seconds: float = 0.0
    file: str | None = None


def built_in_script(wait_s: float = WAIT_S) -> tuple[ScriptLine, ...]:
    """Three plain turns, a barge-in, a turn, and a backchannel; waits of `wait_s`."""
    turn = (ScriptLine("say"), ScriptLine("wait", wait_s))
    over_s = min(3.0, wait_s / 2)
    barge_in = (ScriptLine("say"), ScriptLine("over", over_s), ScriptLine("wait", wait_s))
    return (
        *turn * 3,
        *barge_in,
        *turn,
        ScriptLine("say"),
        ScriptLine("mm-hm", over_s),
        ScriptLine("wait", wait_s),
    )


def parse_script(text: str, where: str = "--script") -> tuple[ScriptLine, ...]:
    """A script file. Raises UsageError naming the line."""
    lines = [(n, line.split("#", 1)[0].strip()) for n, line in enumerate(text.splitlines()[:MOST_LINES], 1)]
    script = tuple(_line(line, f"{where}: line {n}") for n, line in lines if line)
    if not any(line.kind == "say" for line in script):
        raise UsageError(f"{where}: it has no line with say", hint="add at least one line with say")
    return script


def _line(line: str, where: str) -> ScriptLine:
    word, _, rest = line.partition(" ")
    if word == "say":
        return ScriptLine("say", file=rest.strip() or None)
    if word == "wait":
        return ScriptLine("wait", _time(rest, where))
    found = _OVER.fullmatch(line)
    if found is None or (found[1] == "mm-hm" and found[2]):
        raise UsageError(
            f"{where}: {shown(line)} is no line of a script",
            hint="say, wait TIME, over at TIME, or mm-hm at TIME",
        )
    return ScriptLine("over" if found[1] == "over" else "mm-hm", _time(found[3], where), found[2])


def _time(text: str, where: str) -> float:
    try:
        seconds = parse_duration(text.strip())
    except UsageError as error:
        raise UsageError(f"{where}: {error.message}", hint=error.hint) from None
    if seconds <= 0:
        raise UsageError(f"{where}: {shown(text)} is no time at all", hint="give more than zero, such as 8s")
    return seconds


@dataclass(frozen=True, slots=True)
class ScriptMark:
    """Speech of the user in the loop: samples `start` to `end`."""

    kind: Literal["say", "over", "mm-hm"]
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Script:
    """Where users speak in a loop of `loop_samples`."""

    marks: Sequence[ScriptMark]
    loop_samples: int
    sample_rate: int

    def events(self, session: int, start: int, started_s: float) -> Iterator[CallEvent]:
        """Planned events of a session whose audio begins at sample `start` of the loop and at `started_s`; endless."""
        ordered = sorted(self.marks, key=lambda mark: (mark.start - start) % self.loop_samples)
        for turn in itertools.count():
            for mark in ordered:
                at = (mark.start - start) % self.loop_samples + turn * self.loop_samples
                at_s = started_s + at / self.sample_rate
                ends_s = at_s + (mark.end - mark.start) / self.sample_rate
                if mark.kind == "mm-hm":
                    yield CallEvent(session, at_s, CallEventKind.BACKCHANNEL)
                    continue
                if mark.kind == "over":
                    yield CallEvent(session, at_s, CallEventKind.BARGE_IN)
                yield CallEvent(session, at_s, CallEventKind.TURN, ends_s)
