"""Turns of a call: from the end of the user's speech to the first sound of the answer, and what went wrong.

s_j and e_j are the planned send times of the first and last speech sample of user turn j; they come from the script
and never move. `reply` = first sound in [e_j, min(s_j+1, e_j + 10 s)] minus e_j, plus the playback delay. An answer
that begins in [s_j + 0.2 s, e_j) talks over its user; if it still sounds 1 s after e_j it is an answer with reply 0.
A turn without a reply is unanswered; it is unheard as well if the server never said that speech stopped. An answer
that ends failed, incomplete or not at all is broken. A barge-in at b while sound plays yields at the earlier of a stop
signal and the end of the sound; none within 2 s is `unyielding`. A yield within 1 s of a backchannel is `startled`.
Without sound at b there is no chance to yield, which is no failure. The windows of 2 s and 1 s are those of tau-voice.

Left out: turns whose time to answer has not passed at a planned end. Known error: the load generator's own lateness.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

ANSWER_WITHIN_S = 10.0
TALKED_OVER_AFTER_S = 0.2  # a turn's first 0.2 s may meet the tail of the answer before
STILL_SOUNDS_S = 1.0
YIELD_WITHIN_S = 2.0
STARTLED_WITHIN_S = 1.0

Interruption = Literal["barge_in", "backchannel"]


@dataclass(slots=True)
class Turn:
    """One turn of the user, and what followed; times on the trial clock. None: it did not happen."""

    number: int
    starts_s: float
    ends_s: float
    next_starts_s: float  # infinite for the last
    reply_at_s: float | None = None
    endpoint_at_s: float | None = None  # the server said that speech stopped
    endpoints: int = 0
    talked_over: bool = False
    sounding_s: float | None = None  # end of the sound of an answer that began before the turn ended

    @property
    def answer_by_s(self) -> float:
        """The last instant at which an answer still counts."""
        return min(self.next_starts_s, self.ends_s + ANSWER_WITHIN_S)

    @property
    def reply_s(self) -> float | None:
        """From the end of speech to the first sound, without a playback delay; None if unanswered."""
        if self.reply_at_s is not None:
            return self.reply_at_s - self.ends_s
        if self.sounding_s is not None and self.sounding_s >= self.ends_s + STILL_SOUNDS_S:
            return 0.0
        return None

    @property
    def endpoint_s(self) -> float | None:
        """From the end of speech until the server said that it had stopped."""
        return None if self.endpoint_at_s is None else self.endpoint_at_s - self.ends_s

    @property
    def think_s(self) -> float | None:
        """From the server's endpoint to the first sound."""
        if self.reply_at_s is None or self.endpoint_at_s is None:
            return None
        return self.reply_at_s - self.endpoint_at_s


@dataclass(slots=True)
class Overlap:
    """Speech of the user over an answer, planned at `at_s`."""

    kind: Interruption
    at_s: float
    sounded: bool  # False: no chance to yield
    yielded_at_s: float | None = None
    spill_s: float = 0.0  # sound that came after the stop signal

    @property
    def yield_s(self) -> float | None:
        """Time until the answer stopped, None if it did not within 2 s."""
        if not self.sounded or self.yielded_at_s is None:
            return None
        took_s = self.yielded_at_s - self.at_s
        return took_s if took_s <= YIELD_WITHIN_S else None

    @property
    def startled(self) -> bool:
        """True if a backchannel stopped the answer."""
        took_s = self.yield_s
        return self.kind == "backchannel" and took_s is not None and took_s <= STARTLED_WITHIN_S


@dataclass(slots=True)
class CallTurns:
    """The turns of one call. Events must come in order of time."""

    turns: list[Turn] = field(default_factory=list)
    overlaps: list[Overlap] = field(default_factory=list)
    begun: int = 0  # answers
    broken: int = 0
    _judged: int = 0  # turns handed out by `finished`
    _overlaps_judged: int = 0

    def asked(self, starts_s: float, ends_s: float) -> Turn:
        """The user starts a turn; the turn before can be answered no longer than until then."""
        if self.turns:
            self.turns[-1].next_starts_s = starts_s
        self.turns.append(Turn(len(self.turns), starts_s, ends_s, float("inf")))
        return self.turns[-1]

    def overlap(self, kind: Interruption, at_s: float, *, sounds: bool) -> None:
        """The user speaks over the answer, or into silence."""
        self.overlaps.append(Overlap(kind, at_s, sounds))

    def answer_began(self, at_s: float, sounds_until_s: float) -> None:
        """The first sound of an answer came, to be played until then at least."""
        self.begun += 1
        turn = self._turn_at(at_s)
        if turn is None:
            return
        if turn.ends_s <= at_s:
            if turn.reply_at_s is None and at_s <= turn.answer_by_s:
                turn.reply_at_s = at_s
        elif at_s >= turn.starts_s + TALKED_OVER_AFTER_S:
            turn.talked_over = True
            turn.sounding_s = sounds_until_s

    def sound_lasts(self, until_s: float) -> None:
        """More sound of the open answer: it is played until then at least."""
        if self.turns and self.turns[-1].sounding_s is not None:
            self.turns[-1].sounding_s = max(self.turns[-1].sounding_s, until_s)

    def answer_broke(self) -> None:
        """An answer ended failed, incomplete, or not at all."""
        self.broken += 1

    def endpoint(self, at_s: float) -> None:
        """The server said that the user stopped speaking."""
        turn = self._turn_at(at_s)
        if turn is not None:
            turn.endpoints += 1
            if at_s >= turn.ends_s and turn.endpoint_at_s is None:
                turn.endpoint_at_s = at_s

    def stopped(self, at_s: float) -> None:
        """The answer stopped: by a signal, or because its sound was played out."""
        for overlap in reversed(self.overlaps):
            if overlap.sounded and overlap.yielded_at_s is None and at_s >= overlap.at_s:
                overlap.yielded_at_s = at_s
            break

    def finished(self, now_s: float) -> list[Turn]:
        """Turns whose outcome is settled and was not handed out before, oldest first."""
        settled = []
        while self._judged < len(self.turns):
            turn = self.turns[self._judged]
            if turn.reply_s is None and now_s <= turn.answer_by_s:
                break
            if turn.reply_s is not None and now_s < turn.ends_s:
                break
            self._judged += 1
            settled.append(turn)
        return settled

    def forget_unsettled(self) -> None:
        """The call ended as planned; open turns and overlaps are left out."""
        self._judged, self._overlaps_judged = len(self.turns), len(self.overlaps)

    def finished_overlaps(self, now_s: float) -> list[Overlap]:
        """Overlaps whose time to yield has passed and that were not handed out before."""
        settled = []
        while self._overlaps_judged < len(self.overlaps):
            overlap = self.overlaps[self._overlaps_judged]
            if now_s < overlap.at_s + YIELD_WITHIN_S:
                break
            self._overlaps_judged += 1
            settled.append(overlap)
        return settled

    def _turn_at(self, at_s: float) -> Turn | None:
        """The latest turn that had begun."""
        return next((turn for turn in reversed(self.turns) if turn.starts_s <= at_s), None)
