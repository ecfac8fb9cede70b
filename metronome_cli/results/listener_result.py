"""What the listeners of one trial heard: playback, turns, answers while listening, context, and speed."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from metronome_cli.core.errors import Verdict
from metronome_cli.results.cycles_result import Measured
from metronome_cli.results.part import Natural, ReportPart


class Times(ReportPart):
    """A time of turns or answers, in milliseconds; null if there was none."""

    n: Natural = 0
    """How many there were."""
    p50: float | None = None
    """Median."""
    p95: float | None = None
    """95th percentile."""
    p99: float | None = None
    """99th percentile."""
    max: float | None = None
    """The longest."""


class OverCalls(ReportPart):
    """A value of each call: its spread over the calls."""

    p50: float | None = None
    """Median of the calls."""
    p90: float | None = None
    """90th percentile of the calls."""
    max: float | None = None
    """The highest."""


class PlaybackAt(ReportPart):
    """The calls as a listener with one playback delay heard them."""

    delay_ms: float
    """The playback delay."""
    gap_free_calls: Natural
    """Calls without a gap of more than 20 ms."""
    calls: Natural
    """Calls that brought sound."""
    gaps_per_min: float | None = None
    """Gaps of more than 20 ms per minute of sound."""
    starved_share: float | None = None
    """Time without sound that was owed / (that time + time played)."""


class DelayVerdict(ReportPart):
    """The verdict of the trial under another playback delay."""

    delay_ms: float
    """The playback delay."""
    verdict: Verdict
    """Of all objectives together."""


class Playback(ReportPart):
    """What a listener heard of the sound of each call."""

    delay_ms: float
    """The playback delay: how long a player waits after the first sound of an answer, or of the call."""
    gap_ms: Times = Times()
    """Longest gap of each stretch of sound: an answer, or a call whose sound never stops."""
    gaps: Natural = 0
    """Gaps of more than 20 ms."""
    starved_share: float | None = None
    """Time without sound that was owed / (that time + time played)."""
    skipped_s: float = 0.0
    """Sound that players left out to keep their delay, or because the user interrupted."""
    need_ms: OverCalls = OverCalls()
    """Smallest playback delay without a gap, of each call."""
    curve: list[PlaybackAt] = Field(default_factory=list)
    """The same calls at other playback delays."""
    at_delays: list[DelayVerdict] = Field(default_factory=list)
    """Verdicts at the further delays of `--playback-delay`."""


class Turns(ReportPart):
    """Turns of the users, and what the model answered."""

    asked: Natural = 0
    """Turns whose outcome is known."""
    answered: Natural = 0
    """Turns with an answer within 10 s and before the next turn."""
    unheard: Natural = 0
    """Turns without an answer of which the server never said that they ended."""
    answers: Natural = 0
    """Answers that ended."""
    broken: Natural = 0
    """Answers that failed, were incomplete, or broke off."""
    talked_over: Natural = 0
    """Turns within which an answer began."""
    by: Literal["sound", "text"] = "sound"
    """What counts as the begin of an answer."""
    reply_ms: Times = Times()
    """From the end of the user's speech to the first sound, the playback delay included."""
    endpoint_ms: Times = Times()
    """From the end of the user's speech until the server said that it had ended."""
    think_ms: Times = Times()
    """From that until the first sound."""
    yield_ms: Times = Times()
    """From a barge-in to the end of the answer's sound."""
    barge_ins: Natural = 0
    """Times that the user spoke over an answer to stop it."""
    unyielding: Natural = 0
    """Of those, answers that went on for 2 s and more."""
    backchannels: Natural = 0
    """Short words of the user that ask for nothing."""
    startled: Natural = 0
    """Of those, answers that stopped within 1 s."""
    no_chance: Natural = 0
    """Barge-ins and backchannels at which nothing sounded."""


class Beats(ReportPart):
    """Answers to units of input, also while the model listens."""

    listen: Natural = 0
    """Answers that said that the model listens."""
    speak: Natural = 0
    """Answers with sound."""
    longest_silence_s: float | None = None
    """Longest time between two answers of one session; null: fewer than two."""


class Context(ReportPart):
    """The KV cache of single sessions, as their server reports its length."""

    used_max: Natural
    """Longest cache, in positions."""
    limit: Natural | None = None
    """Positions that fit; null: not known."""
    growth_per_s: float | None = None
    """Positions per second, of the session that is full first."""
    full_in_s: float | None = None
    """Seconds until that session is full; null: never, or the limit is not known."""


class Canary(ReportPart):
    """One session that was alone on the server before, turn by turn."""

    pairs: Natural
    """Turns answered alone and under load."""
    reply_added_ms: Measured = Measured()
    """Median of what load added to the replies, with its interval."""
    repeat_added_ms: Measured = Measured()
    """The same of a second pass alone: what is not load."""


class Misbehaved(ReportPart):
    """Sessions that misbehaved on purpose, of one kind."""

    behaviour: Literal["mute", "dead", "reset", "stall"]
    """What they did."""
    count: Natural
    """How many there were."""
    ended_by_server: Natural
    """How many of them the server ended."""
    held_s: OverCalls = OverCalls()
    """How long it held those that it ended, in seconds; null: it ended none."""


class Rtf(ReportPart):
    """Real-time factor: the time in which an answer came / the length of what came before its last chunk."""

    n: Natural = 0
    """Answers of more than one chunk that ended."""
    p50: float | None = None
    """Median."""
    p99: float | None = None
    """99th percentile."""
    max: float | None = None
    """The slowest answer."""
    rtfx_p50: float | None = None
    """1 / median: seconds of sound per second."""
