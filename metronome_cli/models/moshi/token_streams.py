"""The token streams of each session, and their delays.

A frame's input row has one token a stream: text, the model's codes, the user's. Streams lag by their delays,
so what a frame writes and what it reads lie apart:

    step t of a session           position
    user's code of stream k       written at t + delay_k
    the row that is fed           read at t; a stream's initial token where t <= delay_k
    text and codes just said      written at t + 1
    what comes out                first codes of position t, later ones (delay 1) of t + 1: one frame, aligned

A ring of max_delay + 2 positions holds all of that. So the user's first frame is never read, the first step
sees initial tokens alone, and no audio comes out of the first max_delay steps.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from metronome_cli.engine.transfer import to_device
from metronome_cli.models.mimi.state import CodecRows


class TokenStreams:
    """Rings of every slot: [slots, streams, max_delay + 2], and the steps that each slot has taken."""

    def __init__(
        self, delays: Sequence[int], initial: Sequence[int], spoken: int, device: torch.device
    ) -> None:
        self._delays = torch.tensor(delays, device=device)
        self._initial = torch.tensor(initial, device=device)
        self._said = 1 + spoken  # streams that the model itself writes: text first
        self._max_delay = max(delays)
        self._size = self._max_delay + 2
        self._rings = CodecRows((len(delays), self._size), device, torch.int64)
        self._steps = CodecRows((), device, torch.int64)

    @property
    def bytes_per_slot(self) -> int:
        return self._rings.bytes_per_slot + self._steps.bytes_per_slot

    def open(self, slot: int) -> None:
        """A session that has not begun."""
        self._rings.open(slot)
        self._steps.open(slot)

    def begin(self, slots: Sequence[int], heard: Tensor) -> StreamStep:
        """Take in the user's codes of this frame, heard: [batch, heard codebooks]."""
        index = to_device(slots, heard.device)
        step = StreamStep(index, self._rings.data[index], self._steps.data[index])
        said, at = self._said, step.steps[:, None]
        ring = step.rings
        ring[:, said:].scatter_(2, ((at + self._delays[said:]) % self._size)[..., None], heard[..., None])
        row = ring.gather(2, (at % self._size)[..., None].expand(-1, ring.shape[1], 1)).squeeze(2)
        step.row = torch.where(at <= self._delays, self._initial, row)
        return step

    def finish(self, step: StreamStep, said: Tensor) -> Tensor:
        """Store what the model said, said: [batch, 1 + spoken], text first. Returns the frame that comes out,
        aligned, [batch, 1 + spoken]; meaningless where `step.speaks` is False.
        """
        mine = self._said
        after = step.steps[:, None] + 1
        ring = step.rings
        where = (after % self._size)[..., None].expand(-1, mine, 1)
        ring[:, :mine].scatter_(2, where, said[..., None])
        aligned = (after - self._max_delay + self._delays[:mine]) % self._size
        out = ring[:, :mine].gather(2, aligned[..., None]).squeeze(2)
        self._rings.data[step.index] = ring
        self._steps.data[step.index] = step.steps + 1
        step.speaks = step.steps + 1 > self._max_delay
        return out


class StreamStep:
    """One step of some slots. row: [batch, streams] to feed; speaks: [batch] whether a frame comes out."""

    __slots__ = ("index", "rings", "row", "speaks", "steps")

    def __init__(self, index: Tensor, rings: Tensor, steps: Tensor) -> None:
        self.index = index
        self.rings = rings
        self.steps = steps
        self.row: Tensor
        self.speaks: Tensor
