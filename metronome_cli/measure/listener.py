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
from metronome_cli.measure.paired import Bounded, differences, median_interval
from metronome_cli.measure.playback import GAPPY_S, CallPlayback
from metronome_cli.measure.starved_periods import StarvedPeriods
from metronome_cli.measure.turns import CallTurns, Turn
from metronome_cli.measure.values import LimitedValues

CANARY = 0  # the session that is also measured alone; its input is the same in every trial
SHARES = ("gappy", "unanswered", "broken", "talked_over", "unyielding", "startled")
TIMES = ("reply", "yield", "endpoint", "think", "rtf")
Kind = CallEventKind


@dataclass(frozen=True, slots=True)
class ListenerSetup:
    """How listeners play what comes. `steady`: each period of input brings sound, played as one stretch per call.

    `headroom_s`: how far a player may lag; None: one period if steady, else without end. `other_delays_s`: further
    playback delays to keep evidence for. `limits`: for each time, such as `reply`, the limits that objectives set, in
    ms; those of `rtf` times 1000. `alone_ms`: replies of the canary alone on the server, by turn.
    """

    period_s: float
    steady: bool = True
    delay_s: float = 0.0
    other_delays_s: tuple[float, ...] = ()
    headroom_s: float | None = None
    context_limit: int | None = None
    limits: Mapping[str, Sequence[float]] = field(default_factory=dict)
    alone_ms: Mapping[int, float] | None = None


@dataclass(slots=True)
class Call:
    """One call as its listener hears it; `others`: at further playback delays."""

    playback: CallPlayback
    others: list[CallPlayback]
    cache: CacheLength
    turns: CallTurns = field(default_factory=CallTurns)
    answering: bool = False
    answer_sounds: bool = False  # the open answer has brought sound
    first_s: float = 0.0  # of the open answer: its first chunk
    last_s: float = 0.0
    media_s: float = 0.0  # of the open answer
    last_chunk_s: float = 0.0

    @property
    def players(self) -> list[CallPlayback]:
        """At each playback delay."""
        return [self.playback, *self.others]


class Listener:
    """Takes every call event of a trial. Times in seconds on the trial clock."""

    def __init__(self, setup: ListenerSetup) -> None:
        self.setup = setup
        self.calls: dict[int, Call] = {}
        self._looked_s = 0.0
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
        self.delays = {
            delay_s: StarvedPeriods(setup.period_s) for delay_s in (setup.delay_s, *setup.other_delays_s)
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

    def restart(self) -> None:
        """Restart the counts, as after warm-up; calls continue."""
        self._reset()
        now_s = self._looked_s
        for periods in self.delays.values():
            periods.restart(now_s)
        for call in self.calls.values():
            for player in call.players:
                player.restart()

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
        self._looked_s = now_s
        for call in self.calls.values():
            if self.setup.steady or call.answering:
                for player in call.players:
                    player.look(now_s)
            self._settle(call, now_s)
        for periods in self.delays.values():
            periods.close_before(now_s)

    def close(self, now_s: float) -> None:
        """The trial is over; open stretches end without owing anything more."""
        for call in self.calls.values():
            self._over(call, now_s, owing=False)
            self._settle(call, now_s)
        for periods in self.delays.values():
            periods.close_before(math.inf)

    def longest_gap_at_s(self, delay_s: float) -> float | None:
        """Longest gap of all calls at one of the delays; None before any sound."""
        place = list(self.delays).index(delay_s)
        heard = [call.players[place] for call in self.calls.values() if call.playback.need_s is not None]
        return max((one.player.longest_s for one in heard), default=None)

    @property
    def heard(self) -> bool:
        """True if any call brought sound."""
        return any(call.playback.need_s is not None for call in self.calls.values())

    @property
    def longest_gap_s(self) -> float | None:
        """At the first delay."""
        return self.longest_gap_at_s(self.setup.delay_s)

    def replies_ms(self, session: int) -> dict[int, float]:
        """Replies of one session, by the number of its turn; turns without one are left out."""
        call = self.calls.get(session)
        turns = [] if call is None else call.turns.turns
        return {turn.number: 1e3 * turn.reply_s for turn in turns if turn.reply_s is not None}

    def added(self, confidence: float = 0.99) -> Bounded | None:
        """What load adds to the replies of the canary, ms; None if it was not heard alone."""
        if self.setup.alone_ms is None:
            return None
        return median_interval(differences(self.setup.alone_ms, self.replies_ms(CANARY)), confidence)

    # -- playback --------------------------------------------------------------------------------------------------

    def share(self, metric: str, delay_s: float | None = None) -> BlockShare:
        """The evidence of `underrun`, at a playback delay, or of one of `SHARES`."""
        if metric == "underrun":
            return self.delays[self.setup.delay_s if delay_s is None else delay_s].share
        return self.shares[metric]

    def _new_call(self) -> Call:
        return Call(
            self._player(self.setup.delay_s),
            [self._player(delay_s) for delay_s in self.setup.other_delays_s],
            CacheLength(self.setup.context_limit),
        )

    def _player(self, delay_s: float) -> CallPlayback:
        setup, periods = self.setup, self.delays[delay_s].call()
        headroom_s = setup.headroom_s
        if headroom_s is None:
            headroom_s = setup.period_s if setup.steady else math.inf
        return CallPlayback(delay_s, headroom_s, periods.starved, periods.listened)

    # -- events ----------------------------------------------------------------------------------------------------

    def _sound(self, call: Call, event: CallEvent) -> None:
        at_s, seconds = event.at_s, event.value
        if seconds <= 0:
            return
        self.beats.beat(event.session, at_s, speaking=True)
        for player in call.players:
            player.sound(at_s, seconds)
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
        turns = call.turns.turns
        if self.setup.steady and not call.answer_sounds and turns and event.at_s >= turns[-1].ends_s:
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
        for player in call.players:
            player.interrupt(event.at_s)
        self._end_answer(call, event.at_s, owing=False)
        self.shares["broken"].add(event.at_s, 0)

    def _answer_broke(self, call: Call, event: CallEvent) -> None:
        self._end_answer(call, event.at_s, owing=True)
        call.turns.answer_broke()
        self.shares["broken"].add(event.at_s, 1)

    def _end_answer(self, call: Call, at_s: float, *, owing: bool) -> None:
        if call.playback.open and not self.setup.steady:
            for player in call.players:
                player.end(at_s, owing=owing and player.sounds_until_s < at_s)
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
            for player in call.players:
                player.end(at_s, owing=owing)
        else:
            self._end_answer(call, at_s, owing=owing)
        if not owing:
            self._settle(call, at_s)
            call.turns.forget_unsettled()

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
