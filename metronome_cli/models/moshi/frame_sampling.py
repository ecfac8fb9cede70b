"""Which token follows, among the likeliest k, for the text head and every depth step of a frame.

A draw among the top k is argmax(logit / T + g) over them, g standard Gumbel noise: the same distribution as
the softmax of the k. Each session draws its whole frame's noise at once from a generator of its own, so what
it says depends neither on the batch it is in nor on the slot's earlier tenants' order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from metronome_cli.engine.failures import check_finite
from metronome_cli.engine.transfer import to_device
from metronome_cli.models.keyed_noise import exponential
from metronome_cli.models.moshi.shape import MoshiShape


@dataclass(frozen=True, slots=True)
class TopKChoice:
    """How one kind of token is picked; temperature 0 is greedy."""

    temperature: float
    top_k: int

    def pick(self, logits: Tensor, noise: Tensor) -> Tensor:
        """logits: [batch, vocab], noise: [batch, top_k] -> tokens [batch]."""
        if self.temperature == 0.0:
            return logits.argmax(-1)
        best, ids = logits.topk(noise.shape[1], dim=-1, sorted=True)
        scores = torch.add(noise, best.float(), alpha=1 / self.temperature)
        return ids.gather(1, scores.argmax(-1, keepdim=True)).squeeze(1)


class FrameSampler:
    """Picks text, then `steps` codes. `vocab`: (text, audio) sizes, which bound top_k."""

    def __init__(
        self,
        text: TopKChoice,
        audio: TopKChoice,
        *,
        steps: int,
        vocab: tuple[int, int],
        seed: int,
        device: torch.device,
    ) -> None:
        self._text = text
        self._audio = audio
        self._widths = [_width(text, vocab[0]), *([_width(audio, vocab[1])] * steps)]
        self._seed = seed
        self._device = device
        self._opened = 0
        self._generators: dict[int, torch.Generator] = {}
        self._keys: dict[int, int] = {}  # of the next frame on a GPU
        self._noise: Sequence[Tensor] = ()
        self._picked: list[Tensor] = []  # logits of this frame's tokens, [batch, 1] each

    @classmethod
    def of(cls, shape: MoshiShape, seed: int, device: torch.device) -> FrameSampler:
        """The temperatures and top-k of a profile's options."""
        options = shape.options
        return cls(
            TopKChoice(options.text_temperature, options.text_top_k),
            TopKChoice(options.audio_temperature, options.audio_top_k),
            steps=options.spoken,
            vocab=(shape.decoder.need("vocab_size"), options.audio_vocab),
            seed=seed,
            device=device,
        )

    def open(self, slot: int) -> None:
        """Another session in this slot, with numbers of its own."""
        seed = self._seed * 1_000_003 + self._opened
        self._generators[slot] = torch.Generator().manual_seed(seed)
        self._keys[slot] = seed << 24
        self._opened += 1

    def close(self, slot: int) -> None:
        """Forget the slot."""
        self._generators.pop(slot, None)
        self._keys.pop(slot, None)

    def begin(self, slots: Sequence[int]) -> None:
        """Draw the noise of one frame of these slots."""
        self._picked = []
        noise = torch.empty(len(slots), sum(self._widths), device=self._device)
        if noise.shape[1] and self._device.type == "cuda":
            noise = exponential(self._next_keys(slots), noise.shape[1])
        elif noise.shape[1]:
            for row, slot in enumerate(slots):
                noise[row].exponential_(generator=self._generators[slot])
        self._noise = torch.split(noise.log_().neg_(), self._widths, dim=1)

    def text(self, logits: Tensor) -> Tensor:
        """[batch, vocab] -> [batch]."""
        return self._noted(logits, self._text.pick(logits, self._noise[0]))

    def code(self, step: int, logits: Tensor) -> Tensor:
        """The code of one depth step: [batch, codes] -> [batch]."""
        return self._noted(logits, self._audio.pick(logits, self._noise[1 + step]))

    def check(self) -> None:
        """The frame is picked. Raises EngineError where a logit of it was no number."""
        check_finite(torch.cat(self._picked, dim=1), "a logit")

    def _next_keys(self, slots: Sequence[int]) -> Tensor:
        """[batch], keys that no other frame has."""
        keys = [self._keys[slot] for slot in slots]
        self._keys.update((slot, key + 1) for slot, key in zip(slots, keys, strict=True))
        return to_device(keys, self._device)

    def _noted(self, logits: Tensor, tokens: Tensor) -> Tensor:
        self._picked.append(logits.gather(1, tokens[:, None]).float())
        return tokens


def _width(choice: TopKChoice, vocab: int) -> int:
    """Numbers that one draw needs."""
    if choice.temperature == 0.0:
        return 0
    return min(choice.top_k or vocab, vocab)
