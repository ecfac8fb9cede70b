"""The whole codec, one frame of many sessions at a time, state by slot."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from metronome_cli.models.mimi import seanet
from metronome_cli.models.mimi.conv import Conv, TransposedConv
from metronome_cli.models.mimi.quantizer import Quantizer
from metronome_cli.models.mimi.shape import MimiShape
from metronome_cli.models.mimi.state import RowLayout, SlotRows
from metronome_cli.models.mimi.transformer import CodecTransformer
from metronome_cli.models.source import WeightSource


class Mimi:
    """Encoder and decoder of one set of weights, always float32, as shipped.

    `levels` of the codebooks are used. A slot's encoder and decoder advance on their own; a model that only
    listens leaves the decoder out.
    """

    def __init__(self, weights: WeightSource, shape: MimiShape, levels: int, *, speaks: bool = True) -> None:
        self.shape = shape
        self.levels = levels
        self.encoder = Encoder(weights, shape)
        self.quantizer = Quantizer(weights, shape, levels)
        self.decoder = Decoder(weights, shape) if speaks else None

    @property
    def bytes_per_slot(self) -> int:
        """Bytes of state that one session holds, the same from its first frame on."""
        decoder = self.decoder.state.bytes_per_slot if self.decoder else 0
        return self.encoder.state.bytes_per_slot + decoder

    def open(self, slot: int) -> None:
        """Fresh state for this slot; the others keep theirs."""
        self.encoder.state.open(slot)
        if self.decoder:
            self.decoder.state.open(slot)

    def encode(self, slots: Sequence[int], audio: Tensor) -> Tensor:
        """audio: [batch, frame_samples], the next frame of each slot -> codes [batch, levels]."""
        return self.quantizer.encode(self.encoder.step(slots, audio))

    def decode(self, slots: Sequence[int], codes: Tensor) -> Tensor:
        """codes: [batch, levels], the next frame of each slot -> audio [batch, frame_samples]."""
        if self.decoder is None:
            raise ValueError("this codec was built to listen only")
        return self.decoder.step(slots, self.quantizer.decode(codes))


class State:
    """One half's memory of every slot: convolution contexts, transformer rings, positions seen."""

    def __init__(self, layout: RowLayout, transformer: CodecTransformer, weights: WeightSource) -> None:
        self.transformer = transformer
        self.rows = SlotRows((layout.width,), weights.device, weights.dtype)
        self.lengths = SlotRows((), weights.device, torch.int64)

    def open(self, slot: int) -> None:
        """Forget whatever the slot held."""
        self.transformer.open(slot)
        self.rows.open(slot)
        self.lengths.open(slot)

    @property
    def bytes_per_slot(self) -> int:
        """Bytes one session holds, the same from its first frame on."""
        return self.rows.bytes_per_slot + self.lengths.bytes_per_slot + self.transformer.bytes_per_slot

    def enter(self, slots: Sequence[int]) -> Batch:
        """The rows of these slots, copied together for one step."""
        index = torch.tensor(slots, device=self.rows.data.device)
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


class Encoder:
    """Samples to latents."""

    def __init__(self, weights: WeightSource, shape: MimiShape) -> None:
        layout = RowLayout()
        self.convolutions = seanet.encoder(weights, layout, shape)
        self.transformer = CodecTransformer(weights, "encoder_transformer", shape)
        widths = (shape.hidden, shape.hidden)
        self.down = Conv(
            weights, layout, "downsample", widths, 2 * shape.stride,
            stride=shape.stride, bias=False, replicate=True,
        )  # fmt: skip
        self.state = State(layout, self.transformer, weights)

    def step(self, slots: Sequence[int], audio: Tensor) -> Tensor:
        """audio: [batch, frame_samples] -> latents [batch, hidden]."""
        batch = self.state.enter(slots)
        x = seanet.run(self.convolutions, audio[:, None], batch.rows, batch.fresh)
        x = self.transformer(x.transpose(1, 2), slots, batch.lengths)
        latents = self.down(x.transpose(1, 2), batch.rows, batch.fresh)
        self.state.leave(batch, x.shape[1])
        return latents[..., 0]


class Decoder:
    """Latents to samples."""

    def __init__(self, weights: WeightSource, shape: MimiShape) -> None:
        layout = RowLayout()
        widths = (shape.hidden, shape.hidden)
        self.up = TransposedConv(
            weights, layout, "upsample", widths, shape.stride, groups=shape.hidden, bias=False
        )
        self.transformer = CodecTransformer(weights, "decoder_transformer", shape)
        self.convolutions = seanet.decoder(weights, layout, shape)
        self.state = State(layout, self.transformer, weights)

    def step(self, slots: Sequence[int], latents: Tensor) -> Tensor:
        """latents: [batch, hidden] -> audio [batch, frame_samples]."""
        batch = self.state.enter(slots)
        x = self.up(latents[..., None], batch.rows, batch.fresh)
        x = self.transformer(x.transpose(1, 2), slots, batch.lengths)
        audio = seanet.run(self.convolutions, x.transpose(1, 2), batch.rows, batch.fresh)
        self.state.leave(batch, x.shape[1])
        return audio[:, 0]
