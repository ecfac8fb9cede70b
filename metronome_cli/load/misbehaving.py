"""Shares of sessions that misbehave. They load the server; only the others are judged.

mute    starts, answers pings, sends nothing
dead    neither reads nor writes, and leaves the socket open
reset   resets the TCP connection during an answer
stall   sends audio and reads nothing
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from metronome_cli.core.errors import UsageError
from metronome_cli.core.quantities import parse_fraction, shown

Behaviour = Literal["mute", "dead", "reset", "stall"]
_GOLDEN = 0.6180339887498949  # golden ratio; its multiples modulo 1 are evenly spread for any count


@dataclass(frozen=True, slots=True)
class MisbehavingSessions:
    """Which sessions misbehave, and how."""

    shares: Sequence[tuple[Behaviour, float]] = ()

    @classmethod
    def parse(cls, text: str) -> MisbehavingSessions:
        """Parse `kind:share,...`. Raises UsageError for an unknown kind, a bad share, or more than half of all
        sessions."""
        shares: list[tuple[Behaviour, float]] = []
        for part in text.split(","):
            name, colon, share = part.strip().partition(":")
            known = [kind for kind in get_args(Behaviour) if kind == name]
            if not known or not colon:
                raise UsageError(
                    f"{shown(part)} is not a share of misbehaving sessions",
                    hint=f"such as mute:5%; known: {', '.join(get_args(Behaviour))}",
                )
            shares.append((known[0], parse_fraction(share)))
        if not 0 < sum(share for _, share in shares) <= 0.5:
            raise UsageError(
                f"{shown(text)}: above 0 and at most half of all sessions", hint="the others are judged"
            )
        return cls(tuple(shares))

    def behaviour(self, index: int) -> Behaviour | None:
        """Return how session `index` misbehaves; None if it behaves."""
        place, reached = (0.5 + index * _GOLDEN) % 1.0, 0.0
        for kind, share in self.shares:
            reached += share
            if place < reached:
                return kind
        return None
