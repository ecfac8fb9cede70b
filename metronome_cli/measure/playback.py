"""What the listener of a call hears: gaps, starved time, and the smallest playback delay without a gap.

A call is a series of stretches; a stretch is sound that is to be played without a break: one answer, or the whole
connection of a full-duplex protocol. Chunk i arrives at a_i (message complete, not yet decoded) and holds m_i seconds.
With c_i the media before it and o_i = a_i - c_i, a player that starts B seconds after the first chunk obeys

    P = o_0 + B;   per chunk: gap = max(0, o_i - P);   P = min(max(P, o_i), o_i + B + H)

H bounds how far a player may lag. It is infinite for answers, all of which is played, and one period for full-duplex
protocols, whose players skip what is older. While a stretch still owes sound, "now" stands for a chunk, so a stream
that stops for good has a gap. The smallest delay without a gap is one running value: need = max(need, o_i - A),
A = min(A, o_i + H), from A = o_0. There is no gap if and only if B >= need.

Left out: sound that the user interrupted, the time after the last chunk of a complete answer, decoding. Known error:
the lateness of the load generator's own event loop, which delays a_i.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

CONCEALED_S = 0.020  # one packet: players conceal a gap of up to this length
GAPPY_S = 0.100  # an answer with a longer gap counts as gappy; the threshold of vllm-omni's audio benchmark
ROUNDING_S = 1e-9  # of float seconds; no gap
DELAYS_S = (0.0, 0.02, 0.04, 0.08, 0.12, 0.2, 0.4, 1.0)  # playback delays of the reported curve

Interval = Callable[[float, float], None]  # from, to; seconds on the trial clock


@dataclass(slots=True)
class Player:
    """Playback of a call after `delay_s` in each stretch. `position_s` is P of the open stretch."""

    delay_s: float
    position_s: float = 0.0
    gaps: int = 0  # longer than CONCEALED_S
    longest_s: float = 0.0
    starved_s: float = 0.0
    skipped_s: float = 0.0
    stretch_longest_s: float = 0.0

    def begin(self, offset_s: float) -> None:
        """Start a stretch whose first chunk arrived at `offset_s`."""
        self.position_s, self.stretch_longest_s = offset_s + self.delay_s, 0.0

    def hear(self, offset_s: float, headroom_s: float) -> float:
        """Take a chunk with o_i = `offset_s`; return the gap before it in seconds, 0 for none."""
        gap_s = self.starve(offset_s)
        latest_s = offset_s + self.delay_s + headroom_s
        if self.position_s > latest_s:
            self.skipped_s += self.position_s - latest_s
            self.position_s = latest_s
        return gap_s

    def starve(self, offset_s: float) -> float:
        """Wait until `offset_s` on the stretch's time if the player is there before; return the gap in seconds."""
        gap_s = offset_s - self.position_s
        if gap_s <= ROUNDING_S:
            return 0.0
        self.position_s = offset_s
        self.gaps += gap_s > CONCEALED_S
        self.longest_s = max(self.longest_s, gap_s)
        self.stretch_longest_s = max(self.stretch_longest_s, gap_s)
        self.starved_s += gap_s
        return gap_s


@dataclass(slots=True)
class CallPlayback:
    """Playback of one call at `delay_s` and at each delay of the curve.

    `headroom_s` is H. `starved` is called with each interval without sound at `delay_s`, `listened` with each
    whole stretch or part of one, both in order and without overlap.
    """

    delay_s: float = 0.0
    headroom_s: float = math.inf
    starved: Interval = lambda from_s, to_s: None
    listened: Interval = lambda from_s, to_s: None
    need_s: float | None = None  # of the whole call; None before the first sound
    media_s: float = 0.0  # of the whole call
    answers: int = 0
    gappy: int = 0
    longest_gaps_s: list[float] = field(default_factory=list)  # of each stretch, at `delay_s`
    players: list[Player] = field(init=False)
    _undelayed: Player = field(init=False)
    open: bool = False
    sounds_until_s: float = -math.inf  # when all sound that has come is played out
    _heard_s: float = 0.0  # media of the open stretch
    _anchor_s: float = 0.0  # A
    _told_s: float = 0.0  # how far the open stretch was reported

    def __post_init__(self) -> None:
        others = [delay for delay in DELAYS_S if delay != self.delay_s]
        self.players = [Player(delay) for delay in (self.delay_s, *others)]
        self._undelayed = min(self.players, key=lambda player: player.delay_s)

    @property
    def player(self) -> Player:
        """Return the player with the delay `delay_s`."""
        return self.players[0]

    def sound(self, at_s: float, seconds: float) -> None:
        """A chunk of `seconds` > 0 arrived; the first one opens a stretch."""
        if not self.open:
            self._begin(at_s)
        else:
            self._continue(at_s)
        self._heard_s += seconds
        self.media_s += seconds
        self.sounds_until_s = self.player.position_s + self._heard_s

    def _begin(self, at_s: float) -> None:
        self.open, self._heard_s, self._anchor_s = True, 0.0, at_s
        self.need_s = self.need_s or 0.0
        self._told_s = at_s + self.delay_s
        for player in self.players:
            player.begin(at_s)

    def _continue(self, at_s: float) -> None:
        offset_s = at_s - self._heard_s
        self.need_s = max(self.need_s or 0.0, offset_s - self._anchor_s)
        self._anchor_s = min(self._anchor_s, offset_s + self.headroom_s)
        if offset_s <= self._undelayed.position_s <= offset_s + self.headroom_s:
            return  # in time for the player without a delay, so for each
        self._tell(at_s)
        for player in self.players:
            player.hear(offset_s, self.headroom_s)

    def _tell(self, now_s: float) -> None:
        """Report what was played and what was missed up to `now_s`, at `delay_s`."""
        dry_s = self.player.position_s + self._heard_s  # when the sound that has come is played out
        if now_s > self._told_s:
            if now_s - dry_s > 0:
                self.starved(max(dry_s, self._told_s), now_s)
            self.listened(self._told_s, now_s)
            self._told_s = now_s

    def look(self, now_s: float) -> float:
        """Account for the time up to now in a stretch that still owes sound; return the gap so far, 0 for none."""
        if not self.open:
            return 0.0
        self._tell(now_s)
        return max(0.0, now_s - self._heard_s - self.player.position_s)

    def end(self, now_s: float, *, owing: bool = False) -> None:
        """End the stretch. `owing`: it ended before all sound had come, which starves the listener until now."""
        if not self.open:
            return
        self.open = False
        offset_s = now_s - self._heard_s
        if owing:
            self._tell(now_s)
            self.need_s = max(self.need_s or 0.0, offset_s - self._anchor_s)
            for player in self.players:
                player.starve(offset_s)
        else:
            played_out_s = self.player.position_s + self._heard_s
            if played_out_s > self._told_s:
                self.listened(self._told_s, played_out_s)
        self.answers += 1
        self.gappy += self.player.stretch_longest_s > GAPPY_S
        self.longest_gaps_s.append(self.player.stretch_longest_s)

    def interrupt(self, now_s: float) -> float:
        """End the stretch because the user spoke; return the seconds of sound that were not played."""
        left_s = max(0.0, self.sounds_until_s - now_s)
        if self.open:
            self._heard_s -= left_s
            self.media_s -= left_s
            self.end(now_s, owing=left_s == 0.0)
        self.sounds_until_s = min(self.sounds_until_s, now_s)
        return left_s

    def enough(self, delay_s: float) -> bool:
        """True if a playback delay of `delay_s` leaves no gap that counts."""
        return self.need_s is not None and self.need_s <= delay_s + CONCEALED_S

    def underrun(self) -> float | None:
        """Starved time / (starved + played time) at `delay_s`; None before any sound."""
        player = self.player
        total_s = player.starved_s + self.media_s - player.skipped_s
        return player.starved_s / total_s if self.media_s and total_s > 0 else None

    def restart(self) -> None:
        """Begin to count anew in the middle of a call; the players keep their positions."""
        self.media_s, self.answers, self.gappy = 0.0, 0, 0
        self.need_s = 0.0 if self.open else None
        self.longest_gaps_s.clear()
        for player in self.players:
            player.gaps, player.longest_s, player.starved_s, player.skipped_s = 0, 0.0, 0.0, 0.0
