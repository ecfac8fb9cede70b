"""Every weight of a Moshi-like model, from a seed or a checkpoint: what sessions share."""

from __future__ import annotations

from pathlib import Path

import torch

from metronome_cli.config.profile import Profile
from metronome_cli.core.errors import UsageError
from metronome_cli.models.mimi import Mimi
from metronome_cli.models.moshi.depth import DepthTransformer
from metronome_cli.models.moshi.layouts import ignored, layouts
from metronome_cli.models.moshi.shape import MoshiShape
from metronome_cli.models.moshi.temporal import StreamEmbedding, decoder_weights, text_head
from metronome_cli.models.weights.checkpoint import Checkpoint, refuse_unexpected
from metronome_cli.models.weights.source import CheckpointSource, RandomSource, WeightSource

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


class MoshiWeights:
    """The parts in the order of a frame. `decoder` is for the engine's stack to run; `depth` is None in a
    model that only listens."""

    def __init__(
        self, shape: MoshiShape, weights: WeightSource, codec_weights: WeightSource, source: str
    ) -> None:
        spoken, heard = shape.options.spoken, shape.options.heard
        self.shape = shape
        self.source = source
        self.device = weights.device
        self.mimi = Mimi(codec_weights, shape.mimi, max(heard, spoken), speaks=spoken > 0)
        self.embedding = StreamEmbedding(weights, shape)
        self.decoder = decoder_weights(weights, shape, source)
        self.text_head = text_head(weights, shape)
        self.depth = DepthTransformer(weights, shape) if spoken else None
        self.parameters = weights.taken + codec_weights.taken
        self.weight_bytes = weights.taken_bytes + codec_weights.taken_bytes


def load_network(
    profile: Profile, weights: str | Path, device: torch.device | str, seed: int
) -> MoshiWeights:
    """Built to a profile; `weights` is "random" (all of `seed`) or a directory of safetensors.

    On a CPU the layers are float32 whatever the profile's dtype; elsewhere they have that dtype, and a
    checkpoint's tensors go straight to the device. Raises UsageError where profile or checkpoint do not fit,
    naming what is missing and what is unexpected.
    """
    shape = MoshiShape.from_profile(profile)
    place = torch.device(device)
    dtype = _dtype(profile, place)
    if str(weights) == "random":
        sources = (RandomSource(seed, place, dtype), RandomSource(seed, place, torch.float32))
        return MoshiWeights(shape, *sources, "random")
    return _from_checkpoint(Checkpoint.open(Path(weights)), shape, place, dtype)


def _from_checkpoint(
    checkpoint: Checkpoint, shape: MoshiShape, device: torch.device, dtype: torch.dtype
) -> MoshiWeights:
    names = layouts(shape)
    sources = (
        CheckpointSource(checkpoint, names, device, dtype),
        CheckpointSource(checkpoint, names, device, torch.float32),
    )
    try:
        network = MoshiWeights(shape, *sources, str(checkpoint.root))
        refuse_unexpected(checkpoint, ignored(shape))
    finally:
        checkpoint.close()
    return network


def _dtype(profile: Profile, device: torch.device) -> torch.dtype:
    """What the layers are run in."""
    if device.type == "cpu":
        return torch.float32
    name = profile.shape.dtype
    if name not in _DTYPES:
        raise UsageError(f"profile {profile.name}: shape.dtype {name} is not one that the moshi adapter runs")
    return _DTYPES[name]
