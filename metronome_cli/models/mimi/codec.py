"""The whole codec, one frame of many sessions at a time; what they remember is in `CodecState`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from metronome_cli.engine.transfer import to_device
from metronome_cli.models.mimi import seanet
from metronome_cli.models.mimi.conv import ChannelUpsample, Conv
from metronome_cli.models.mimi.quantizer import Quantizer
from metronome_cli.models.mimi.shape import MimiShape
from metronome_cli.models.mimi.state import CodecRows, RowLayout
from metronome_cli.models.mimi.transformer import CodecTransformer
from metronome_cli.models.weights.source import WeightSource


class Mimi:
    """Encoder and decoder of one set of weights, always float32, as shipped.

    `levels` of the codebooks are used. A model that only listens leaves the decoder out.
    """

    def __init__(self, weights: WeightSource, shape: MimiShape, levels: int, *, speaks: bool = True) -> None:
        self.shape = shape
        self.levels = levels
        self.encoder = MimiEncoder(weights, shape)
        self.quantizer = Quantizer(weights, shape, levels)
        self.decoder = MimiDecoder(weights, shape) if speaks else None

    def new_state(self) -> CodecState:
        """Room for sessions' memory; no slot is open in it."""
        return CodecState(self.encoder.new_state(), self.decoder.new_state() if self.decoder else None)

    def encode(self, state: CodecState, slots: Sequence[int], audio: Tensor) -> Tensor:
        """audio: [batch, frame_samples], the next frame of each slot -> codes [batch, levels]."""
        return self.quantizer.encode(self.encoder.step(state.encoder, slots, audio))

    def decode(self, state: CodecState, slots: Sequence[int], codes: Tensor) -> Tensor:
        """codes: [batch, levels], the next frame of each slot -> audio [batch, frame_samples].

        Raises ValueError where the codec was built to listen only.
        """
        if self.decoder is None or state.decoder is None:
            raise ValueError("this codec was built to listen only")
        return self.decoder.step(state.decoder, slots, self.quantizer.decode(codes))


@dataclass(frozen=True, slots=True)
class CodecState:
    """Both halves' memory of every slot. They advance on their own: the decoder may lag, or stand still."""

    encoder: HalfState
    decoder: HalfState | None

    def open(self, slot: int) -> None:
        """Forget whatever the slot held; the others keep theirs."""
        self.encoder.open(slot)
        if self.decoder:
            self.decoder.open(slot)

    @property
    def bytes_per_slot(self) -> int:
        """Bytes that one session holds, the same from its first frame on."""
        return self.encoder.bytes_per_slot + (self.decoder.bytes_per_slot if self.decoder else 0)


class HalfState:
    """One half's memory of every slot: convolution contexts, transformer rings, positions seen."""

    def __init__(self, width: int, rings: list[CodecRows], device: torch.device) -> None:
        self.rings = rings
        self.rows = CodecRows((width,), device, torch.float32)
        self.lengths = CodecRows((), device, torch.int64)

    def open(self, slot: int) -> None:
        """Forget whatever the slot held."""
        for table in (*self.rings, self.rows, self.lengths):
            table.open(slot)

    @property
    def bytes_per_slot(self) -> int:
        return sum(table.bytes_per_slot for table in (*self.rings, self.rows, self.lengths))

    def enter(self, slots: Sequence[int]) -> Batch:
        """The rows of these slots, copied together for one step."""
        index = to_device(slots, self.rows.data.device)
        return Batch(index, self.rows.data[index], self.lengths.data[index])

    def leave(self, batch: Batch, positions: int) -> None:
        """Put the rows back; each slot is `positions` older."""
        self.rows.data[batch.index] = batch.rows
        self.lengths.data[batch.index] = batch.lengths + positions


class Batch:
    """Rows of the slots in one step. rows: [batch, width]; lengths and fresh: [batch]."""

    __slots__ = ("fresh", "index", "lengths", "rows")

    def __init__(self, index: Tensor, rows: Tensor, lengths: Tensor) -> None:
        self.index = index
        self.rows = rows
        self.lengths = lengths
        self.fresh = lengths == 0


class MimiEncoder:
    """Samples to latents."""

    def __init__(self, weights: WeightSource, shape: MimiShape) -> None:
        self.layout = RowLayout()
        self.convolutions = seanet.encoder(weights, self.layout, shape)
        self.transformer = CodecTransformer(weights, "encoder_transformer", shape)
        widths = (shape.hidden, shape.hidden)
        self.down = Conv(
            weights, self.layout, "downsample", widths, 2 * shape.stride,
            stride=shape.stride, bias=False, replicate=True,
        )  # fmt: skip
        self._device = weights.device

    def new_state(self) -> HalfState:
        return HalfState(self.layout.width, self.transformer.new_rings(), self._device)

    def step(self, state: HalfState, slots: Sequence[int], audio: Tensor) -> Tensor:
        """audio: [batch, frame_samples] -> latents [batch, hidden]."""
        batch = state.enter(slots)
        x = seanet.run(self.convolutions, audio[..., None], batch.rows, batch.fresh)
        x = self.transformer(x, slots, batch.lengths, state.rings)
        latents = self.down(x, batch.rows, batch.fresh)
        state.leave(batch, x.shape[1])
        return latents[:, 0]


class MimiDecoder:
    """Latents to samples."""

    def __init__(self, weights: WeightSource, shape: MimiShape) -> None:
        self.layout = RowLayout()
        self.up = ChannelUpsample(weights, self.layout, "upsample", shape.hidden, shape.stride)
        self.transformer = CodecTransformer(weights, "decoder_transformer", shape)
        self.convolutions = seanet.decoder(weights, self.layout, shape)
        self._device = weights.device

    def new_state(self) -> HalfState:
        return HalfState(self.layout.width, self.transformer.new_rings(), self._device)

    def step(self, state: HalfState, slots: Sequence[int], latents: Tensor) -> Tensor:
        """latents: [batch, hidden] -> audio [batch, frame_samples]."""
        batch = state.enter(slots)
        x = self.up(latents[:, None], batch.rows, batch.fresh)
        x = self.transformer(x, slots, batch.lengths, state.rings)
        audio = seanet.run(self.convolutions, x, batch.rows, batch.fresh)
        state.leave(batch, self.up.stride)
        return audio[..., 0]
