"""Runs any decoder as a session: the audio of a frame as tokens in, tokens out, no audio out.

For planning with a model that has no adapter. Work, memory and limits are those of the decoder, and the period is
the profile's. Its output has no meaning, since it was not trained on audio: see `audio_to_tokens`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from metronome_cli.config.profile import Profile
from metronome_cli.core.errors import UsageError
from metronome_cli.core.types import Audio
from metronome_cli.engine.decoder_weights import DecoderWeights
from metronome_cli.models.adapter import AdapterModel
from metronome_cli.models.adapter_options import AdapterOptions
from metronome_cli.models.audio.audio_tokens import audio_to_tokens
from metronome_cli.models.decoding import Vocabulary
from metronome_cli.models.registry import LoadedModel
from metronome_cli.models.sampling import Sampler
from metronome_cli.models.weights.load_decoder import BlockVariant, load_decoder, weight_source, working_dtype
from metronome_cli.models.weights.model_files import (
    ModelFiles,
    find_model,
    read_config,
    read_decoder,
    shape_of,
)

_OPTIONS: Mapping[str, float | str] = {"temperature": 0.0, "family": "llama"}
_POOL = "2GiB"  # default size of the pool
_FORMS = {
    "llama": BlockVariant(),
    "qwen2": BlockVariant(qkv_bias=True),
    "qwen3": BlockVariant(head_norms=True),
}


class PlainDecoder(AdapterModel):
    """State per slot: the token that was not fed yet."""

    def __init__(self, vocabulary: Vocabulary, into: int, sampler: Sampler, source: str) -> None:
        super().__init__(vocabulary, sampler)
        self._into = into
        self._source = source

    @classmethod
    def from_profile(
        cls, profile: Profile, weights: Path | Literal["random"], device: str | torch.device, seed: int
    ) -> PlainDecoder:
        """A model without its decoder's layers. Raises UsageError for a profile or model that does not
        fit."""
        path = None if isinstance(weights, str) else weights
        _, vocabulary, source = _read(profile, path, torch.device(device), seed)
        return cls(vocabulary, _into(profile), _sampler(profile, seed), source)

    def positions(self, slot: int, tokens_out: int) -> int:
        """See `InteractionModel.positions`. The last token of a frame waits for the next one."""
        return self._pending.positions(slot, self._into, tokens_out)

    def encode(self, slots: Sequence[int], audio: Sequence[Audio]) -> Sequence[Tensor]:
        """Audio as tokens, embedded."""
        size = len(self.vocabulary.embedding)
        return [self.vocabulary.embed(audio_to_tokens(samples, self._into, size)) for samples in audio]

    def prompt_rows(self, slots: Sequence[int], heard: Sequence[Tensor] | Tensor) -> list[Tensor]:
        """The pending token, then the embeddings of the audio."""
        pending = self._pending.take(slots, self.vocabulary)
        return [torch.cat(parts) for parts in zip(pending, heard, strict=True)]

    def describe(self) -> Mapping[str, Any]:
        """Adapter, weights, parameters outside the decoder's layers, bytes of state a session."""
        return {
            "adapter": "decoder",
            "weights": self._source,
            "parameters": self.vocabulary.embedding.numel(),
            "state_bytes": 8,
            "audio": "loudness and zero crossings of each slice, hashed to a token",
        }


def profile_for(model: str) -> Profile:
    """A profile of any decoder: one token in and one out every 80 ms, the shape from its configuration.

    model: a checkpoint directory, a .gguf file, or an OWNER/NAME in the local cache. Raises UsageError.
    """
    found = find_model(model)
    config = read_config(found)
    shape = shape_of(config, found)
    window = getattr(config, "sliding_window", None)
    kinds = set(getattr(config, "layer_types", None) or ())
    sliding = bool(window) and kinds <= {"sliding_attention"}
    data = {
        "name": re.sub(r"[^a-z0-9._-]+", "-", found.name.lower()).strip("-._")[:64] or "model",
        "title": f"{found.name}, a plain decoder",
        "adapter": "decoder",
        "adapter_options": {"family": config.model_type} if config.model_type in _FORMS else {},
        "frame": {"period": "80ms", "sample_rate": 16_000},
        "tokens": {"prefill": 1, "decode": {"listening": 1, "speaking": 1}},
        "shape": shape.model_dump(),
        "kv_pool": {"bytes": _POOL},
        "policy": f"window({window})" if sliding else "unbounded",
        "objectives": ("p99<80ms", "misses<1%", "empty<1%"),
        "sources": [{"what": "shape", "where": f"the configuration of {found.name}"}],
        "notes": ["any decoder as a token-per-frame session: it was not trained to hear"],
    }
    return Profile.model_validate(data)


def load(profile: Profile, *, weights: Path | None, device: str, seed: int) -> LoadedModel:
    """The adapter for the engine: weights once, and fresh sessions on them. See `models.registry`."""
    decoder, vocabulary, source = _read(profile, weights, torch.device(device), seed)
    into = _into(profile)
    return LoadedModel(
        decoder,
        lambda: PlainDecoder(vocabulary, into, _sampler(profile, seed), source),
        into + 1,
        source,
        vocabulary,
    )


def _read(
    profile: Profile, weights: Path | None, device: torch.device, seed: int
) -> tuple[DecoderWeights | Any, Vocabulary, str]:
    if weights is None:
        form = _FORMS[AdapterOptions(profile, _OPTIONS).choice("family", *_FORMS)]
        dtype = working_dtype(profile.shape, device)
        decoder, vocabulary = load_decoder(weight_source(None, [], device, dtype, seed), profile.shape, form)
        return decoder, vocabulary, "random"
    found = find_model(str(weights))
    _check_shape(profile, found)
    return *read_decoder(found, device), str(weights)


def _check_shape(profile: Profile, found: ModelFiles) -> None:
    """Raises UsageError where the checkpoint's decoder is not of the profile's shape."""
    read, wanted = shape_of(read_config(found), found), profile.shape
    for key in ("layers", "heads", "kv_heads", "head_dim", "hidden_size", "vocab_size"):
        if getattr(read, key) != getattr(wanted, key):
            raise UsageError(
                f"{found.path}: {key} is {getattr(read, key)}, profile {profile.name} has {getattr(wanted, key)}",
                hint="use --model, which takes the shape from the checkpoint",
            )


def _into(profile: Profile) -> int:
    into = profile.tokens.prefill
    if into != int(into) or into < 1 or profile.tokens.fused:
        raise UsageError(
            f"profile {profile.name}: tokens.prefill is {into:g}; the decoder adapter needs a whole number, 1 or more"
        )
    return int(into)


def _sampler(profile: Profile, seed: int) -> Sampler:
    return Sampler(AdapterOptions(profile, _OPTIONS).real("temperature"), seed)
