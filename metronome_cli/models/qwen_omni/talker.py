"""The voices of Qwen-Omni: thinker tokens in, codec codes out.

Qwen2.5: one code a step, 50 a second. A step's input is the last code's embedding plus the next token's
thinker state and embedding (or a padding token's when the text has been used up), projected to the
talker's width. A turn begins with the state in which the thinker was when it began to answer, a
beginning-of-text embedding with the padding code, and the first token with the start code.

Qwen3: 16 codes a step, 12.5 steps a second. The talker picks the first code of a step; a small decoder,
rebuilt each step, predicts the other 15. A step's input is the sum of the 16 codes' embeddings and a
token's, projected. A turn begins with the assistant's header, four paddings and a beginning-of-text, over
the codec's own header.

The authors' pipelines run the talker once over a finished answer, and also prefill it with the thinker's
states of the whole prompt. Here it follows the answer frame by frame and takes from the prompt only what
is said above.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from metronome_cli.engine.projection import Projection
from metronome_cli.models.decoding import Vocabulary
from metronome_cli.models.sampling import Sampler
from metronome_cli.models.talker.short_decoder import ShortDecoder
from metronome_cli.models.talker.talker_stage import TalkerInput, TalkerTurn


@dataclass(frozen=True, slots=True)
class TextIds25:
    """Thinker tokens that the Qwen2.5 talker is conditioned on, and codes that are no sound."""

    bos: int = 151860
    pad: int = 151859
    codec_pad: int = 8292
    codec_bos: int = 8293


class TalkerHead25:
    """Qwen2.5-Omni's talker. `thinker`: the thinker's tokens; `project`: their width to the talker's."""

    def __init__(
        self, thinker: Vocabulary, codec: Vocabulary, project: Projection, sampler: Sampler, ids: TextIds25
    ) -> None:
        self._thinker = thinker
        self._codec = codec
        self._project = project
        self._sampler = sampler
        self._ids = ids
        self._pad = thinker.embed([ids.pad])[0]

    def open(self, slot: int) -> None:
        self._sampler.open(slot)

    def close(self, slot: int) -> None:
        self._sampler.close(slot)

    def lead(self, speech: TalkerTurn, heard: TalkerInput) -> Tensor:
        """A turn's three opening positions, or the code left from the frame before."""
        if len(heard.tokens):
            said = self._thinker.embed(heard.tokens) + torch.stack(list(heard.states))
            speech.text.extend(said)
        if speech.codes is not None:
            return self.follow([speech], speech.codes[None])
        bos = self._thinker.embed([self._ids.bos])[0] + self._codec.embed([self._ids.codec_pad])[0]
        first = self._next_text(speech) + self._codec.embed([self._ids.codec_bos])[0]
        return self._project(torch.stack([heard.before.to(bos.dtype), bos, first]))

    def follow(self, speeches: Sequence[TalkerTurn], codes: Tensor) -> Tensor:
        """codes: [batch, 1]."""
        text = torch.stack([self._next_text(speech) for speech in speeches])
        return self._project(self._codec.embedding[codes[:, 0]] + text)

    def pick(self, slots: Sequence[int], hidden: Tensor) -> Tensor:
        """Sounds only: codes from the padding code on mean start, end and the like."""
        logits = self._codec.logits(hidden)[:, : self._ids.codec_pad]
        return self._sampler.pick(slots, logits)[:, None]

    def _next_text(self, speech: TalkerTurn) -> Tensor:
        return speech.text.popleft() if speech.text else self._pad


@dataclass(frozen=True, slots=True)
class TextIds3:
    """Tokens and codes of a Qwen3 talker's turn. `header`: the codec's, over paddings and the first token."""

    role: tuple[int, ...] = (151644, 77091, 198)  # the assistant's header
    bos: int = 151672
    pad: int = 151671
    sounds: int = 2048  # codes below this are sounds
    header: tuple[int, ...] = (
        2155,
        2156,
        2157,
        2302,
        2148,
        2149,
    )  # nothink, think, /think, speaker, pad, bos


@dataclass(frozen=True, slots=True)
class TextProjection:
    """The thinker's width to the talker's: a two-layer MLP with SiLU."""

    first: Projection
    second: Projection

    def __call__(self, x: Tensor) -> Tensor:
        return self.second(F.silu(self.first(x)))


@dataclass(frozen=True, slots=True)
class CodePredictor:
    """The other codes of a step. tables: [groups - 1, vocab, hidden]; heads: one a group."""

    decoder: ShortDecoder
    tables: Tensor
    heads: Sequence[Projection]


class TalkerHead3:
    """Qwen3-Omni's talker."""

    def __init__(
        self,
        thinker: Vocabulary,
        codec: Vocabulary,
        project: TextProjection,
        predictor: CodePredictor,
        *,
        sampler: Sampler,
        ids: TextIds3,
    ) -> None:
        self._thinker = thinker
        self._codec = codec
        self._project = project
        self._predictor = predictor
        self._sampler = sampler
        self._ids = ids
        self._pad = project(thinker.embed([ids.pad]))[0]

    def open(self, slot: int) -> None:
        self._sampler.open(slot)

    def close(self, slot: int) -> None:
        self._sampler.close(slot)

    def lead(self, speech: TalkerTurn, heard: TalkerInput) -> Tensor:
        """A turn's nine opening positions, or the codes left from the frame before."""
        if len(heard.tokens):
            speech.text.extend(self._project(self._thinker.embed(heard.tokens)))
        if speech.codes is not None:
            return self.follow([speech], speech.codes[None])
        role = self._project(self._thinker.embed(self._ids.role))
        bos = self._project(self._thinker.embed([self._ids.bos]))
        text = torch.cat([role, self._pad.expand(4, -1), bos, self._next_text(speech)[None]])
        text[3:] += self._codec.embed(self._ids.header)
        return text

    def follow(self, speeches: Sequence[TalkerTurn], codes: Tensor) -> Tensor:
        """codes: [batch, groups]."""
        groups = torch.arange(codes.shape[1] - 1, device=codes.device)
        spoken = self._codec.embedding[codes[:, 0]] + self._predictor.tables[groups, codes[:, 1:]].sum(1)
        return spoken + torch.stack([self._next_text(speech) for speech in speeches])

    def pick(self, slots: Sequence[int], hidden: Tensor) -> Tensor:
        """The first code by the talker's own head, the rest by the predictor."""
        first = self._sampler.pick(slots, self._codec.logits(hidden)[:, : self._ids.sounds])
        codes, decoder = [first], self._predictor.decoder
        decoder.begin(len(slots))
        decoder.feed(hidden)
        state = decoder.feed(self._codec.embedding[first])
        for group, head in enumerate(self._predictor.heads):
            codes.append(self._sampler.pick(slots, head(state)))
            if group + 1 < len(self._predictor.heads):
                state = decoder.feed(self._predictor.tables[group][codes[-1]])
        return torch.stack(codes, dim=1)

    def _next_text(self, speech: TalkerTurn) -> Tensor:
        return speech.text.popleft() if speech.text else self._pad
