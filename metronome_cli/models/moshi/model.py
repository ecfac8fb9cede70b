"""Moshi as an interaction model: 80 ms of speech in, a text token and 80 ms of speech out, every frame.

A frame: Mimi's encoder makes codes of the user's audio; the temporal decoder takes one position, the sum of
17 tokens (text, the model's 8 codes, the user's 8); the text head picks a text token; the depth transformer
picks the model's codes one after another; Mimi's decoder makes audio of them. The published model attends
the last 3000 positions: policy `ring(3000)`. Speech to text leaves the last two steps out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from metronome_cli.config.profile import Profile
from metronome_cli.engine.types import Audio
from metronome_cli.engine.weights import DecoderWeights
from metronome_cli.errors import UsageError
from metronome_cli.models.base import Stack, StageTimer
from metronome_cli.models.checkpoint import Checkpoint, refuse_unexpected
from metronome_cli.models.mimi import Mimi
from metronome_cli.models.moshi.depth import DepthTransformer
from metronome_cli.models.moshi.layouts import ignored, layouts
from metronome_cli.models.moshi.sampling import Choice, FrameSampler
from metronome_cli.models.moshi.shape import MoshiShape
from metronome_cli.models.moshi.streams import StreamStep, TokenStreams
from metronome_cli.models.moshi.temporal import StreamEmbedding, decoder_weights, text_head
from metronome_cli.models.source import CheckpointSource, RandomSource, WeightSource

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


@dataclass(frozen=True, slots=True)
class MoshiOutput:
    """One slot's frame: implements `models.base.ModelOutput`. tokens: text first, then the codes said."""

    tokens: Sequence[int]
    audio: Audio | None = None


class MoshiModel:
    """Implements `models.base.InteractionModel`. `decoder` holds the layers that the engine's stack runs.

    State a slot, all outside the pool: Mimi's encoder and decoder, the delayed tokens, a generator.
    """

    def __init__(
        self, shape: MoshiShape, weights: WeightSource, codec_weights: WeightSource, *, source: str, seed: int
    ) -> None:
        options = shape.options
        device = weights.device
        self.shape = shape
        self.decoder: DecoderWeights = decoder_weights(weights, shape, source)
        self._source = source
        self._embedding = StreamEmbedding(weights, shape)
        self._text_head = text_head(weights, shape)
        self._depth = DepthTransformer(weights, shape) if options.spoken else None
        speaks = options.spoken > 0
        self._mimi = Mimi(codec_weights, shape.mimi, max(options.heard, options.spoken), speaks=speaks)
        self._streams = TokenStreams(shape.delays, shape.initial, options.spoken, device)
        self._sampler = FrameSampler(
            Choice(options.text_temperature, options.text_top_k),
            Choice(options.audio_temperature, options.audio_top_k),
            steps=options.spoken,
            vocab=(shape.decoder.vocab, options.audio_vocab),
            seed=seed,
            device=device,
        )
        self._device = device
        self._parameters = {"model": weights.taken, "codec": codec_weights.taken}
        self._weight_bytes = weights.taken_bytes + codec_weights.taken_bytes
        self.stages = ("encode", "prefill", "depth", "codec") if speaks else ("encode", "prefill")

    @classmethod
    def from_profile(
        cls,
        profile: Profile,
        weights: str | Path = "random",
        device: torch.device | str = "cpu",
        seed: int = 0,
    ) -> MoshiModel:
        """Built to a profile; `weights` is "random" (all of `seed`) or a directory of safetensors.

        On a CPU the layers are float32 whatever the profile's dtype; elsewhere they have that dtype. Raises
        UsageError where profile or checkpoint do not fit, naming what is missing and what is unexpected.
        """
        shape = MoshiShape.from_profile(profile)
        device = torch.device(device)
        dtype = _dtype(profile, device)
        if str(weights) == "random":
            return cls(
                shape,
                RandomSource(seed, device, dtype),
                RandomSource(seed, device, torch.float32),
                source="random",
                seed=seed,
            )
        checkpoint = Checkpoint.open(Path(weights))
        try:
            return cls._from_checkpoint(checkpoint, shape, device, dtype, seed)
        finally:
            checkpoint.close()

    @classmethod
    def _from_checkpoint(
        cls, checkpoint: Checkpoint, shape: MoshiShape, device: torch.device, dtype: torch.dtype, seed: int
    ) -> MoshiModel:
        names = layouts(shape)
        model = cls(
            shape,
            CheckpointSource(checkpoint, names, device, dtype),
            CheckpointSource(checkpoint, names, device, torch.float32),
            source=str(checkpoint.root),
            seed=seed,
        )
        refuse_unexpected(checkpoint, ignored(shape))
        return model

    def positions(self, slot: int, tokens_out: int) -> int:
        """One: every stream of a frame is summed into one position."""
        return 1

    def open(self, slot: int) -> None:
        """A session that has not begun."""
        self._mimi.open(slot)
        self._streams.open(slot)
        self._sampler.open(slot)

    def close(self, slot: int) -> None:
        """Forget this slot. Its codec rows stay for the next one in this seat."""
        self._sampler.close(slot)

    @torch.inference_mode()
    def frame(
        self,
        stack: Stack,
        slots: Sequence[int],
        audio: Sequence[Audio],
        tokens_out: Sequence[int],
        timer: StageTimer,
    ) -> Sequence[MoshiOutput]:
        """One frame of each slot; audio[i]: [samples of a frame].

        The tokens are the text token, then the codes, the first `tokens_out[i]` of them. There is no audio
        in a session's first frame: its later codebooks lag by one.
        """
        with timer("encode"):
            step = self._streams.begin(slots, self._hear(slots, audio))
        with timer("prefill"):
            hidden, text = self._advance(stack, slots, step)
        if self._depth is None:
            self._streams.finish(step, text[:, None])
            return [MoshiOutput([token][:n]) for token, n in zip(text.tolist(), tokens_out, strict=True)]
        with timer("depth"):
            said = torch.cat([text[:, None], self._depth.run(hidden, text, self._sampler.code)], dim=1)
            heard_by_user = self._streams.finish(step, said)
        with timer("codec"):
            sound = self._speak(slots, step, heard_by_user)
        tokens = said.tolist()
        return [MoshiOutput(row[:n], out) for row, n, out in zip(tokens, tokens_out, sound, strict=True)]

    def describe(self) -> Mapping[str, Any]:
        """Adapter, weights, parameters, bytes of state a session by part, none of it in the pool."""
        state = {
            "codec": self._mimi.bytes_per_slot,
            "streams": self._streams.bytes_per_slot,
            "depth": self.shape.depth_kv_bytes if self._depth else 0,
        }
        return {
            "adapter": "moshi",
            "weights": self._source,
            "parameters": sum(self._parameters.values()),
            "weight_bytes": self._weight_bytes,
            "state_bytes": state["codec"] + state["streams"],
            "stage_state_bytes": state,
            "stages": list(self.stages),
        }

    def _hear(self, slots: Sequence[int], audio: Sequence[Audio]) -> Tensor:
        """The user's codes of this frame: [batch, heard]."""
        samples = torch.from_numpy(np.stack(audio)).to(self._device)
        return self._mimi.encode(slots, samples)[:, : self.shape.options.heard]

    def _advance(self, stack: Stack, slots: Sequence[int], step: StreamStep) -> tuple[Tensor, Tensor]:
        """The temporal step: hidden [batch, hidden], text tokens [batch]."""
        self._sampler.begin(slots)
        embeds = self._embedding(step.row).unsqueeze(1)
        hidden = stack.forward(slots, embeds, [1] * len(slots))
        return hidden, self._sampler.text(self._text_head(hidden))

    def _speak(self, slots: Sequence[int], step: StreamStep, frame: Tensor) -> list[Audio | None]:
        """Audio of the slots that have a frame to say."""
        speaking = step.speaks.tolist()
        rows = [row for row, speaks in enumerate(speaking) if speaks]
        sound: list[Audio | None] = [None] * len(slots)
        if rows:
            codes = frame[rows, 1:]
            for row, samples in zip(
                rows, self._mimi.decode([slots[r] for r in rows], codes).cpu(), strict=True
            ):
                sound[row] = samples.numpy()
        return sound


def _dtype(profile: Profile, device: torch.device) -> torch.dtype:
    """What the layers are run in."""
    if device.type == "cpu":
        return torch.float32
    name = profile.shape.dtype
    if name not in _DTYPES:
        raise UsageError(f"profile {profile.name}: shape.dtype {name} is not one the moshi adapter runs")
    return _DTYPES[name]
