"""Names the module of each adapter, and loads it.

A module named here has `load(profile, *, weights, device, seed) -> LoadedModel`. Weights are read or drawn once;
every trial of a run gets new session state on the same weights.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from metronome_cli.config.profile import Profile
from metronome_cli.core.errors import UsageError
from metronome_cli.engine.interface import InteractionModel
from metronome_cli.models.weights.versions import need_transformers

if TYPE_CHECKING:
    from torch import nn

    from metronome_cli.engine.decoder_weights import DecoderWeights
    from metronome_cli.models.decoding import Vocabulary

ADAPTERS = {
    "decoder": "metronome_cli.models.plain_decoder",
    "minicpm-o": "metronome_cli.models.minicpm_o.model",
    "moshi": "metronome_cli.models.moshi",
    "qwen-omni": "metronome_cli.models.qwen_omni.model",
    "speech-lm": "metronome_cli.models.speech_lm",
}


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model in memory. `chunk`: most cache positions that one forward pass appends, which sizes a ring buffer.

    `weights` is "random" or the path they were read from. `vocabulary`: embedding table and head of the text
    output, for an adapter whose text can be scored.
    """

    decoder: DecoderWeights | nn.Module
    fresh: Callable[[], InteractionModel]
    chunk: int
    weights: str = "random"
    vocabulary: Vocabulary | None = None


def load_adapter(profile: Profile, *, weights: Path | None, device: str, seed: int) -> LoadedModel:
    """Load the profile's model, with random weights if `weights` is None. Raises UsageError without an adapter."""
    if profile.adapter is None:
        raise UsageError(
            f"profile {profile.name} is for planning only: no adapter runs it",
            hint=f"use `metronome predict --profile {profile.name}`",
        )
    if profile.adapter not in ADAPTERS:
        near = difflib.get_close_matches(profile.adapter, ADAPTERS, 1)
        raise UsageError(
            f"profile {profile.name}: adapter: {profile.adapter!r} is not known",
            hint=f"did you mean {near[0]}?" if near else f"one of: {', '.join(sorted(ADAPTERS))}",
        )
    need_transformers()
    module = import_module(ADAPTERS[profile.adapter])
    loaded: LoadedModel = module.load(profile, weights=weights, device=device, seed=seed)
    return loaded
