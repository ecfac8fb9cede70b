"""What the listeners of one trial heard: playback, turns, answers, and the caches that their servers report.

One place takes the events of all calls (core/call_events.py), each call played by a listener of its own
(measure/playback.py, measure/turns.py). From which instant: messages count when they are complete, turns as planned.
Left out: calls before their connection, warm-up before `restart`, a stretch that a planned end cuts off. Evidence of
`underrun` is one listener in one period, starved if it lacked sound for more than 20 ms of it; listeners of one period
form a cluster (measure/block_share.py). Known error: the lateness of the load generator's own event loop.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from metronome_cli.core.call_events import CallEvent, CallEventKind
from metronome_cli.measure.block_share import BlockShare, block_length_s
from metronome_cli.measure.heartbeat import Beats, CacheLength
from metronome_cli.measure.playback import CONCEALED_S, GAPPY_S, CallPlayback
from metronome_cli.measure.turns import CallTurns, Turn
from metronome_cli.measure.values import LimitedValues

SHARES = ("underrun", "gappy", "unanswered", "broken", "talked_over", "unyielding", "startled")
TIMES = ("reply", "yield", "endpoint", "think", "rtf")
Kind = CallEventKind


@dataclass(frozen=True, slots=True)
class ListenerSetup:
    """How listeners play what comes. `steady`: each period of input brings sound, played as one stretch per call.

    `limits`: for each time, such as `reply`, the limits that objectives set (ms; `rtf` times 1000).
    """

    period_s: float
    steady: bool = True
    delay_s: float = 0.0
    context_limit: int | None = None
    limits: Mapping[str, Sequence[float]] = field(default_factory=dict)


@dataclass(slots=True)
class Call:
    """One call as its listener hears it."""

    playback: CallPlayback
    cache: CacheLength
    turns: CallTurns = field(default_factory=CallTurns)
    starved_in: dict[int, float] = field(default_factory=dict)  # by period, seconds
    listened_to: int = -1  # last period that was counted
    answering: bool = False
    answer_sounds: bool = False  # the open answer has brought sound
    first_s: float = 0.0  # of the open answer: first chunk
    last_s: float = 0.0
    media_s: float = 0.0  # of the open answer
    last_chunk_s: float = 0.0


@dataclass(slots=True)
class _Period:
    listeners: int = 0
    starved: int = 0


class Listener:
    """Takes every call event of a trial. Times in seconds on the trial clock."""

    def __init__(self, setup: ListenerSetup) -> None:
        self.setup = setup
        self.calls: dict[int, Call] = {}
        self._take: dict[CallEventKind, Callable[[Call, CallEvent], None]] = {
            Kind.SOUND: self._sound,
            Kind.TEXT: self._text,
            Kind.LISTENS: self._listens,
            Kind.ANSWER_BEGAN: self._answer_began,
            Kind.ANSWER_DONE: self._answer_ended,
            Kind.ANSWER_CANCELLED: self._answer_cancelled,
            Kind.ANSWER_BROKEN: self._answer_broke,
            Kind.USER_HEARD: lambda call, event: self._stop_signal(call, event.at_s),
            Kind.USER_ENDED: lambda call, event: call.turns.endpoint(event.at_s),
            Kind.CACHE: lambda call, event: call.cache.report(event.at_s, int(event.value)),
            Kind.TURN: self._turn,
            Kind.BARGE_IN: lambda call, event: self._overlap(call, event, "barge_in"),
            Kind.BACKCHANNEL: lambda call, event: self._overlap(call, event, "backchannel"),
            Kind.GONE: lambda call, event: self._over(call, event.at_s, owing=True),
            Kind.ENDED: lambda call, event: self._over(call, event.at_s, owing=False),
        }
        self._reset()

    def _reset(self) -> None:
        setup = self.setup
        block_s = block_length_s(setup.period_s)
        self.shares = {name: BlockShare(block_s) for name in SHARES}
        self.times = {name: LimitedValues(setup.limits.get(name, ()), block_s) for name in TIMES}
        self.beats = Beats()
        self.asked = self.unheard = self.barge_ins = self.backchannels = self.no_chance = 0
        self.spill_s = 0.0
        self._periods: dict[int, _Period] = {}
        self._first_period = -1

    def restart(self, now_s: float) -> None:
        """Begin to count anew, as after warm-up; calls go on."""
        self._reset()
        self._first_period = math.floor(now_s / self.setup.period_s)
        for call in self.calls.values():
            call.playback.restart()

    def take(self, event: CallEvent) -> None:
        """Count one event. Events of one call come in order of time."""
        call = self.calls.get(event.session)
        if call is None:
            call = self.calls[event.session] = self._new_call()
        take = self._take.get(event.kind)
        if take is not None:
            take(call, event)

    def look(self, now_s: float) -> None:
        """Account for what did not come until now."""
        for call in self.calls.values():
            if self.setup.steady or call.answering:
                call.playback.look(now_s)
            self._settle(call, now_s)
        self._close_periods(math.floor(now_s / self.setup.period_s))

    def close(self, now_s: float) -> None:
        """The trial is over; open stretches end without owing anything more."""
        for call in self.calls.values():
            self._over(call, now_s, owing=False)
            self._settle(call, now_s)
        self._close_periods(None)

    @property
    def heard(self) -> bool:
        """True if any call brought sound."""
        return any(call.playback.need_s is not None for call in self.calls.values())

    @property
    def longest_gap_s(self) -> float | None:
        """Longest gap of all calls; None before any sound."""
        return max(
            (c.playback.player.longest_s for c in self.calls.values() if c.playback.media_s), default=None
        )

    # -- playback --------------------------------------------------------------------------------------------------

    def _new_call(self) -> Call:
        setup = self.setup
        headroom_s = setup.period_s if setup.steady else math.inf
        call = Call(CallPlayback(setup.delay_s, headroom_s), CacheLength(setup.context_limit))
        call.playback.listened = lambda from_s, to_s: self._listened(call, from_s, to_s)
        call.playback.starved = lambda from_s, to_s: self._starved(call, from_s, to_s)
        return call

    def _listened(self, call: Call, from_s: float, to_s: float) -> None:
        first = max(call.listened_to + 1, self._first_period, self._period(from_s))
        last = self._period(to_s - 1e-9)
        for period in range(first, last + 1):
            self._periods.setdefault(period, _Period()).listeners += 1
        call.listened_to = max(call.listened_to, last)

    def _starved(self, call: Call, from_s: float, to_s: float) -> None:
        period_s = self.setup.period_s
        for period in range(max(self._first_period, self._period(from_s)), self._period(to_s - 1e-9) + 1):
            part_s = min(to_s, (period + 1) * period_s) - max(from_s, period * period_s)
            before_s = call.starved_in.get(period, 0.0)
            call.starved_in[period] = before_s + part_s
            if before_s <= CONCEALED_S < before_s + part_s:
                self._periods.setdefault(period, _Period()).starved += 1
        for period in [old for old in call.starved_in if old < self._period(to_s)]:
            del call.starved_in[period]

    def _period(self, at_s: float) -> int:
        return math.floor(at_s / self.setup.period_s)

    def _close_periods(self, before: int | None) -> None:
        for period in sorted(self._periods):
            if before is not None and period >= before:
                break
            counts = self._periods.pop(period)
            starved = min(counts.starved, counts.listeners)
            self.shares["underrun"].add(period * self.setup.period_s, starved, counts.listeners)

    # -- events ----------------------------------------------------------------------------------------------------

    def _sound(self, call: Call, event: CallEvent) -> None:
        at_s, seconds = event.at_s, event.value
        if seconds <= 0:
            return
        self.beats.beat(event.session, at_s, speaking=True)
        call.playback.sound(at_s, seconds)
        if self.setup.steady:
            return
        until_s = call.playback.sounds_until_s
        if not call.answer_sounds:
            call.answering = call.answer_sounds = True
            call.first_s, call.media_s = at_s, 0.0
            call.turns.answer_began(at_s, until_s)
        call.turns.sound_lasts(until_s)
        call.last_s, call.last_chunk_s = at_s, seconds
        call.media_s += seconds

    def _text(self, call: Call, event: CallEvent) -> None:
        """First text of an answer stands for first sound where sound never stops."""
        if self.setup.steady and not call.answer_sounds and call.turns.turns:
            call.answer_sounds = True
            call.turns.answer_began(event.at_s, event.at_s)

    def _listens(self, call: Call, event: CallEvent) -> None:
        self.beats.beat(event.session, event.at_s, speaking=False)
        if call.answering:
            self._answer_ended(call, event)

    def _answer_began(self, call: Call, event: CallEvent) -> None:
        if call.answering:
            self._end_answer(call, event.at_s, owing=False)
        call.answering, call.answer_sounds = True, False

    def _answer_ended(self, call: Call, event: CallEvent) -> None:
        self._note_speed(call)
        self._end_answer(call, event.at_s, owing=False)
        self.shares["broken"].add(event.at_s, 0)

    def _answer_cancelled(self, call: Call, event: CallEvent) -> None:
        self._stop_signal(call, event.at_s)
        call.playback.interrupt(event.at_s)
        self._end_answer(call, event.at_s, owing=False)
        self.shares["broken"].add(event.at_s, 0)

    def _answer_broke(self, call: Call, event: CallEvent) -> None:
        self._end_answer(call, event.at_s, owing=True)
        call.turns.answer_broke()
        self.shares["broken"].add(event.at_s, 1)

    def _end_answer(self, call: Call, at_s: float, *, owing: bool) -> None:
        if call.playback.open and not self.setup.steady:
            call.playback.end(at_s, owing=owing and call.playback.sounds_until_s < at_s)
            self.shares["gappy"].add(at_s, int(call.playback.longest_gaps_s[-1] > GAPPY_S))
        call.answering = call.answer_sounds = False

    def _note_speed(self, call: Call) -> None:
        before_s = call.media_s - call.last_chunk_s
        if call.answer_sounds and before_s > 0:
            self.times["rtf"].add(call.last_s, 1000 * (call.last_s - call.first_s) / before_s)

    def _turn(self, call: Call, event: CallEvent) -> None:
        call.turns.asked(event.at_s, event.value)
        if self.setup.steady:
            call.answer_sounds = False

    def _overlap(self, call: Call, event: CallEvent, kind: str) -> None:
        sounds = call.playback.sounds_until_s > event.at_s
        call.turns.overlap("barge_in" if kind == "barge_in" else "backchannel", event.at_s, sounds=sounds)

    def _stop_signal(self, call: Call, at_s: float) -> None:
        call.turns.stopped(at_s)

    def _over(self, call: Call, at_s: float, *, owing: bool) -> None:
        if owing and call.answering:
            self.shares["broken"].add(at_s, 1)
        if self.setup.steady:
            call.playback.end(at_s, owing=owing)
        else:
            self._end_answer(call, at_s, owing=owing)

    # -- outcomes --------------------------------------------------------------------------------------------------

    def _settle(self, call: Call, now_s: float) -> None:
        """Count the turns and overlaps whose outcome is known now."""
        for turn in call.turns.finished(now_s):
            self._count_turn(turn)
        until_s = call.playback.sounds_until_s
        if until_s <= now_s:
            call.turns.stopped(until_s)  # played out
        for overlap in call.turns.finished_overlaps(now_s):
            self.barge_ins += overlap.kind == "barge_in"
            self.backchannels += overlap.kind == "backchannel"
            self.no_chance += not overlap.sounded
            if not overlap.sounded:
                continue
            if overlap.kind == "backchannel":
                self.shares["startled"].add(overlap.at_s, int(overlap.startled))
            else:
                took_s = overlap.yield_s
                self.shares["unyielding"].add(overlap.at_s, int(took_s is None))
                self.times["yield"].add(overlap.at_s, None if took_s is None else took_s * 1e3)

    def _count_turn(self, turn: Turn) -> None:
        reply_s = turn.reply_s
        self.asked += 1
        self.unheard += reply_s is None and not turn.endpoints
        self.shares["unanswered"].add(turn.ends_s, int(reply_s is None))
        self.shares["talked_over"].add(turn.ends_s, int(turn.talked_over))
        delay_s = self.setup.delay_s
        self.times["reply"].add(turn.ends_s, None if reply_s is None else (reply_s + delay_s) * 1e3)
        for name, value_s in (("endpoint", turn.endpoint_s), ("think", turn.think_s)):
            if value_s is not None:
                self.times[name].add(turn.ends_s, value_s * 1e3)
