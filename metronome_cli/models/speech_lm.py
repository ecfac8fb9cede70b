"""The built-in model: speech in, tokens out, seeded random weights, no download.

A frame: log-mel and a small causal encoder turn the session's own audio into `tokens.prefill` embeddings; the
decoder takes them in (prefill), then decodes token by token, each fed back. The last token of a frame is
fed at the start of the next frame's prefill, so a frame of `out` tokens adds into + out positions to the
cache, and a session's first one less.

With random weights the tokens have no meaning, but they depend on every input sample, and the work and the memory
are those of a trained model of this shape.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from metronome_cli.config.profile import Profile
from metronome_cli.core.errors import UsageError
from metronome_cli.core.types import Audio
from metronome_cli.engine.decoder_weights import DecoderWeights
from metronome_cli.engine.projection import Projection
from metronome_cli.engine.transfer import to_device
from metronome_cli.models.adapter import AdapterModel
from metronome_cli.models.adapter_options import AdapterOptions
from metronome_cli.models.audio.causal_encoder import CausalEncoder, CausalEncoderShape
from metronome_cli.models.audio.log_mel import HOPS_PER_S
from metronome_cli.models.audio.slot_rows import SlotRows
from metronome_cli.models.decoding import PendingTokens, Vocabulary
from metronome_cli.models.registry import LoadedModel
from metronome_cli.models.sampling import Sampler
from metronome_cli.models.weights.source import RandomSource

_OPTIONS: Mapping[str, float] = {"encoder_width": 256, "encoder_blocks": 2, "temperature": 0.0}


class SpeechLm(AdapterModel):
    """State per slot: the encoder's row, and the token that was not fed back yet."""

    def __init__(
        self, encoder: CausalEncoder, into: int, vocab: int, weights: RandomSource, sampler: Sampler
    ) -> None:
        hidden = encoder.shape.hidden
        vocabulary = Vocabulary(
            weights.tensor("tokens.embedding", vocab, hidden, fan_in=1),
            Projection(weights.tensor("tokens.head", vocab, hidden)),
        )
        super().__init__(vocabulary, sampler)
        self._tokens = sampler
        self._encoder = encoder
        self._into = into
        self._weights = weights
        self._heard = SlotRows(encoder.state_width, weights.device)

    @classmethod
    def from_profile(cls, profile: Profile, device: torch.device | str, seed: int) -> SpeechLm:
        """Built to a profile's frame and shape; all weights from `seed`. Raises UsageError where it does
        not fit."""
        options, into = _options(profile), _into(profile)
        weights = RandomSource(seed, torch.device(device), torch.float32)
        shape = CausalEncoderShape(
            hidden=profile.shape.hidden_size,
            stride=_features_per_frame(profile) // into,
            width=options.number("encoder_width"),
            blocks=options.number("encoder_blocks"),
        )
        encoder = CausalEncoder(profile.frame.sample_rate, shape, weights)
        return cls(
            encoder,
            into,
            profile.shape.need("vocab_size"),
            weights,
            Sampler(options.real("temperature"), seed),
        )

    def fresh(self) -> SpeechLm:
        """Return a model on the same weights with no open slot."""
        other = copy.copy(self)
        other._heard = SlotRows(self._encoder.state_width, self._weights.device)
        other._sampler = self._tokens.fresh()
        other._pending = PendingTokens()
        other._open = set()
        return other

    def positions(self, slot: int, tokens_out: int) -> int:
        """See `InteractionModel.positions`. The last token of the frame waits for the next one."""
        return self._pending.positions(slot, self._into, tokens_out)

    def begin(self, slot: int) -> None:
        self._heard.open(slot)

    def end(self, slot: int) -> None:
        self._heard.close(slot)

    def prompt_rows(self, slots: Sequence[int], heard: Sequence[Tensor] | Tensor) -> list[Tensor]:
        """The pending token, then the embeddings of the audio."""
        pending = self._pending.take(slots, self.vocabulary)
        return [torch.cat(parts) for parts in zip(pending, heard, strict=True)]

    def encode(self, slots: Sequence[int], audio: Sequence[Audio]) -> Tensor:
        """Encode the next frame of these slots: [batch, into, hidden]. Advances their state."""
        samples = to_device(np.stack(audio), self._weights.device)
        embeds, state = self._encoder.step(self._heard.take(slots), samples)
        self._heard.put(slots, state)
        return embeds

    def describe(self) -> Mapping[str, Any]:
        """Adapter, weights, parameters outside the decoder's layers, bytes of state a session."""
        return {
            "adapter": "speech-lm",
            "weights": "random",
            "parameters": self._weights.taken,
            "state_bytes": 4 * self._encoder.state_width,
        }


def _features_per_frame(profile: Profile) -> int:
    return round(profile.frame.period_s * HOPS_PER_S)


def _into(profile: Profile) -> int:
    """Embeddings a frame. Raises UsageError where features cannot be shared out evenly among them."""
    into, features = profile.tokens.prefill, _features_per_frame(profile)
    if profile.tokens.fused:
        raise UsageError(f"profile {profile.name}: tokens.fused is not for the speech-lm adapter")
    if into != int(into) or into < 1 or features % int(into):
        raise UsageError(
            f"profile {profile.name}: tokens.prefill is {into:g}; the speech-lm adapter needs a divisor "
            f"of {features}, the features it makes a frame (one every 10 ms)",
            hint=f"one of: {', '.join(str(n) for n in range(1, features + 1) if features % n == 0)}",
        )
    return int(into)


def _options(profile: Profile) -> AdapterOptions:
    """Raises UsageError for unknown ones, and for an encoder of no width or depth."""
    options = AdapterOptions(profile, _OPTIONS)
    for key in ("encoder_width", "encoder_blocks"):
        if not 1 <= options.number(key) <= 4096:
            raise UsageError(
                f"profile {profile.name}: adapter_options.{key} is {options.number(key)}; it takes 1 to 4096"
            )
    return options


def load(profile: Profile, *, weights: Path | None, device: str, seed: int) -> LoadedModel:
    """The built-in model. It has random weights only: raises UsageError for a checkpoint."""
    if weights is not None:
        raise UsageError(
            f"profile {profile.name} has no checkpoint: its weights are random",
            hint="leave --weights out, or name the profile of the checkpoint's model",
        )
    speech = SpeechLm.from_profile(profile, device, seed)
    decoder = DecoderWeights.random(profile.shape, seed, device=device)
    return LoadedModel(decoder, speech.fresh, chunk=round(profile.tokens.prefill) + 1)
