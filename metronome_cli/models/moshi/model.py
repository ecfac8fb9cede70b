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
from metronome_cli.core.types import Audio
from metronome_cli.engine.decoder_weights import DecoderWeights
from metronome_cli.engine.interface import CachedDecoder, FrameReply, StageTimer
from metronome_cli.engine.transfer import to_device
from metronome_cli.models.moshi.frame_sampling import FrameSampler
from metronome_cli.models.moshi.token_streams import TokenStreams
from metronome_cli.models.moshi.weights import MoshiWeights, load_network
from metronome_cli.models.registry import LoadedModel


@dataclass(frozen=True, slots=True)
class MoshiStep:
    """What the language model made of a frame. said: [batch, 1 + spoken], text first, as sampled; frame: the
    same shape, the streams' delays undone; speaks: [batch], whether `frame` is one yet."""

    said: Tensor
    frame: Tensor
    speaks: Tensor


class MoshiModel:
    """Implements `engine.interface.InteractionModel`.

    State a slot, all outside the pool: Mimi's encoder and decoder, the delayed tokens, a generator.
    """

    def __init__(self, network: MoshiWeights, seed: int) -> None:
        shape = network.shape
        self.shape = shape
        self._network = network
        self._seed = seed
        self._codec = network.mimi.new_state()
        self._streams = TokenStreams(shape.delays, shape.initial, shape.options.spoken, network.device)
        self._sampler = FrameSampler.of(shape, seed, network.device)
        self.stages: tuple[str, ...] = ("encode", "prefill")
        if network.depth is not None:
            self.stages += ("depth", "codec")

    @classmethod
    def from_profile(
        cls,
        profile: Profile,
        weights: str | Path = "random",
        device: torch.device | str = "cpu",
        seed: int = 0,
    ) -> MoshiModel:
        """See `network.load_network`."""
        return cls(load_network(profile, weights, device, seed), seed)

    @property
    def decoder(self) -> DecoderWeights:
        """The temporal layers, for the engine's stack."""
        return self._network.decoder

    def fresh(self) -> MoshiModel:
        """The same weights with no session in them."""
        return MoshiModel(self._network, self._seed)

    def positions(self, slot: int, tokens_out: int) -> int:
        """One: every stream of a frame is summed into one position."""
        return 1

    def open(self, slot: int) -> None:
        """A session that has not begun."""
        self._codec.open(slot)
        self._streams.open(slot)
        self._sampler.open(slot)

    def close(self, slot: int) -> None:
        """Close the slot. Its codec rows are kept for the next session in this slot."""
        self._sampler.close(slot)

    @torch.inference_mode()
    def frame(
        self,
        stack: CachedDecoder,
        slots: Sequence[int],
        audio: Sequence[Audio],
        tokens_out: Sequence[int],
        timer: StageTimer,
    ) -> Sequence[FrameReply]:
        """One frame of each slot; audio[i]: [samples of a frame].

        The tokens are the text token, then the codes, the first `tokens_out[i]` of them. There is no audio
        in a session's first frame: its later codebooks lag by one.
        """
        with timer("encode"):
            heard = self._hear(slots, audio)
        reply = self.reply(stack, slots, heard, timer)
        tokens = reply.said.tolist()
        if self._network.depth is None:
            return [FrameReply(row[:n]) for row, n in zip(tokens, tokens_out, strict=True)]
        with timer("codec"):
            sound = self._speak(slots, reply)
        return [FrameReply(row[:n], out) for row, n, out in zip(tokens, tokens_out, sound, strict=True)]

    @torch.inference_mode()
    def reply(
        self, stack: CachedDecoder, slots: Sequence[int], heard: Tensor, timer: StageTimer
    ) -> MoshiStep:
        """The frame between the codec's halves: the user's codes [batch, heard] in, tokens out."""
        network = self._network
        with timer("prefill"):
            step = self._streams.begin(slots, heard)
            self._sampler.begin(slots)
            hidden = stack.forward(slots, network.embedding(step.row).unsqueeze(1), [1] * len(slots))
            text = self._sampler.text(network.text_head(hidden))
        said = text[:, None]
        if network.depth is not None:
            with timer("depth"):
                said = torch.cat([said, network.depth.run(hidden, text, self._sampler.code)], dim=1)
        self._sampler.check()
        frame = self._streams.finish(step, said)
        return MoshiStep(said, frame, step.speaks)

    def describe(self) -> Mapping[str, Any]:
        """Adapter, weights, parameters, bytes of state a session by part, none of it in the pool."""
        state = {
            "codec": self._codec.bytes_per_slot,
            "streams": self._streams.bytes_per_slot,
            "depth": self.shape.depth_kv_bytes if self._network.depth else 0,
        }
        return {
            "adapter": "moshi",
            "weights": self._network.source,
            "parameters": self._network.parameters,
            "weight_bytes": self._network.weight_bytes,
            "state_bytes": state["codec"] + state["streams"],
            "stage_state_bytes": state,
            "stages": list(self.stages),
        }

    def _hear(self, slots: Sequence[int], audio: Sequence[Audio]) -> Tensor:
        """The user's codes of this frame: [batch, heard]."""
        samples = to_device(np.stack(audio), self._network.device)
        return self._network.mimi.encode(self._codec, slots, samples)[:, : self.shape.options.heard]

    def _speak(self, slots: Sequence[int], reply: MoshiStep) -> list[Audio | None]:
        """Audio of the slots that have a frame to say."""
        rows = [row for row, speaks in enumerate(reply.speaks.tolist()) if speaks]
        sound: list[Audio | None] = [None] * len(slots)
        if rows:
            speakers = [slots[row] for row in rows]
            samples = self._network.mimi.decode(self._codec, speakers, reply.frame[rows, 1:]).cpu()
            for row, one in zip(rows, samples, strict=True):
                sound[row] = one.numpy()
        return sound


def load(profile: Profile, *, weights: Path | None, device: str, seed: int) -> LoadedModel:
    """See `models.registry`."""
    model = MoshiModel.from_profile(profile, weights or "random", device, seed)
    return LoadedModel(model.decoder, model.fresh, chunk=1, weights=model.decoder.source)
