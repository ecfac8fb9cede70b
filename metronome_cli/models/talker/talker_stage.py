"""A talker: turns the text of a model into codec codes, on a cache of its own, one frame at a time.

In each frame a speaking session first feeds its inputs (text, a marker, the code left from the last frame), then
samples codes one by one and feeds each back, except the last, which is fed in the next frame. A session that is not
speaking is not in the batch. A session without a free block in the stage's pool has no audio in that frame.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from metronome_cli.core.types import PoolState
from metronome_cli.models.talker.turn_cache import TurnCache


@dataclass(slots=True)
class TalkerInput:
    """Text of one session in one frame, as the talker needs it.

    before: its state before the first token, [hidden]. tokens, states: those fed back, [hidden] each.
    """

    before: Tensor
    tokens: Sequence[int] = ()
    states: Sequence[Tensor] = ()


@dataclass(slots=True)
class TalkerTurn:
    """One session's turn. codes: [groups], the last ones picked, not fed yet; text: conditions not used
    yet."""

    codes: Tensor | None = None
    text: deque[Tensor] = field(default_factory=deque)


class TalkerHead(Protocol):
    """A kind of talker: its embeddings and heads."""

    def lead(self, speech: TalkerTurn, heard: TalkerInput) -> Tensor:
        """Rows that begin this frame, [n, hidden]; takes the frame's text in."""

    def follow(self, speeches: Sequence[TalkerTurn], codes: Tensor) -> Tensor:
        """Input after codes [batch, groups]: [batch, hidden]."""

    def pick(self, slots: Sequence[int], hidden: Tensor) -> Tensor:
        """Codes by the state [batch, hidden]: [batch, groups]."""

    def open(self, slot: int) -> None:
        """Open this slot."""

    def close(self, slot: int) -> None:
        """Close this slot."""


class TalkerStage:
    """All sessions' speech. `codes`: codes a frame."""

    def __init__(self, voice: TalkerHead, turns: TurnCache, codes: int) -> None:
        self._voice = voice
        self._turns = turns
        self._codes = codes
        self._speech: dict[int, TalkerTurn] = {}  # of slots in a turn

    @property
    def restarts(self) -> int:
        """Sessions whose cache passed the stage's limit and began anew."""
        return self._turns.restarts

    def open(self, slot: int) -> None:
        self._voice.open(slot)

    def close(self, slot: int) -> None:
        self._voice.close(slot)
        self._speech.pop(slot, None)
        self._turns.leave(slot)

    def end_turn(self, slot: int) -> None:
        """End the turn of this slot, if it is in one."""
        if self._speech.pop(slot, None) is not None:
            self._turns.end_turn(slot)

    def speak(self, slots: Sequence[int], heard: Sequence[TalkerInput]) -> dict[int, Tensor]:
        """A frame's codes of speaking slots, [codes, groups] each; slots that found no room are left out."""
        leads = {}
        for slot, said in zip(slots, heard, strict=True):
            rows = self._lead(slot, said)
            if rows is not None:
                leads[slot] = rows
        return self._run(leads) if leads else {}

    def warm_up(self, slots: int) -> None:
        """See `TurnCache.warm_up`."""
        self._turns.warm_up(slots)

    def pool(self) -> PoolState:
        """The stage's pool now."""
        return self._turns.pool()

    def _lead(self, slot: int, said: TalkerInput) -> Tensor | None:
        """Rows to begin with, room made for them and the codes; None where there is no room."""
        speech = self._speech.setdefault(slot, TalkerTurn())
        rows = self._voice.lead(speech, said)
        if self._turns.passes_limit(slot, len(rows) + self._codes - 1):
            self._turns.restart(slot)
        return rows if self._turns.make_room(slot, len(rows) + self._codes - 1) else None

    def _run(self, leads: dict[int, Tensor]) -> dict[int, Tensor]:
        slots = list(leads)
        speeches = [self._speech[slot] for slot in slots]
        rows = pad_sequence(list(leads.values()), batch_first=True)
        hidden = self._turns.forward(slots, rows, [len(lead) for lead in leads.values()])
        spoken = [self._voice.pick(slots, hidden)]
        for _ in range(self._codes - 1):
            inputs = self._voice.follow(speeches, spoken[-1])
            hidden = self._turns.forward(slots, inputs[:, None], [1] * len(slots))
            spoken.append(self._voice.pick(slots, hidden))
        for speech, codes in zip(speeches, spoken[-1], strict=True):
            speech.codes = codes
        return dict(zip(slots, torch.stack(spoken, dim=1), strict=True))
