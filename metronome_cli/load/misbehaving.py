"""Shares of the sessions that do not behave: they load the server, and the others are judged.

mute    starts, answers pings, sends nothing
dead    neither reads nor writes, and leaves the socket open
reset   breaks the connection in mid-answer, with a TCP reset
stall   sends audio and reads nothing
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from metronome_cli.core.errors import UsageError
from metronome_cli.core.quantities import parse_fraction, shown

Behaviour = Literal["mute", "dead", "reset", "stall"]
_GOLDEN = 0.6180339887498949  # multiples of it spread evenly over 0..1, however many there are


@dataclass(frozen=True, slots=True)
class MisbehavingSessions:
    """Which sessions misbehave, and how."""

    shares: Sequence[tuple[Behaviour, float]] = ()

    @classmethod
    def parse(cls, text: str) -> MisbehavingSessions:
        """Raises UsageError for an unknown kind, a share that is none, or more than half of all sessions."""
        shares: list[tuple[Behaviour, float]] = []
        for part in text.split(","):
            name, colon, share = part.strip().partition(":")
            known = [kind for kind in get_args(Behaviour) if kind == name]
            if not known or not colon:
                raise UsageError(
                    f"{shown(part)} is no share of sessions that misbehave",
                    hint=f"such as mute:5%; known: {', '.join(get_args(Behaviour))}",
                )
            shares.append((known[0], parse_fraction(share)))
        if not 0 < sum(share for _, share in shares) <= 0.5:
            raise UsageError(
                f"{shown(text)}: above 0 and at most half of all sessions", hint="the others are judged"
            )
        return cls(tuple(shares))

    def behaviour(self, index: int) -> Behaviour | None:
        """Of session `index`; None: it behaves."""
        place, reached = (0.5 + index * _GOLDEN) % 1.0, 0.0
        for kind, share in self.shares:
            reached += share
            if place < reached:
                return kind
        return None
