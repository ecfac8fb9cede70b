"""Tokens and audio equal those of PyPI `moshi`, from the same weights, sessions of different ages in one batch.

Runs where `.ci/peers.sh moshi` has made the peer's environment.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from metronome_cli.config.frame import Frame, FrameTokens, TokensOut
from metronome_cli.config.model_shape import ModelShape
from metronome_cli.config.profile import Profile
from metronome_cli.core.types import FrameInput, FrameOutput
from metronome_cli.engine.build_decoder import build_decoder
from metronome_cli.engine.frame_engine import FrameEngine
from metronome_cli.models.moshi import MoshiModel
from metronome_cli.models.moshi.weights import load_network

ROOT = Path(__file__).parent.parent.parent
PYTHON = ROOT / ".peers" / "moshi" / "bin" / "python"
pytestmark = pytest.mark.skipif(not PYTHON.exists(), reason="no environment of the peer: .ci/peers.sh moshi")

BEGINS = (0, 4, 9)
BOOKS, TEXT, CODES, CONTEXT = 4, 60, 48, 12


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The peer's weights, and in `frames/` what it made of some audio."""
    out = tmp_path_factory.mktemp("peer")
    quiet = {**os.environ, "NO_TORCH_COMPILE": "1", "NO_CUDA_GRAPH": "1"}
    quiet.pop("PYTHONPATH", None)
    script = Path(__file__).parent / "moshi_side.py"
    done = subprocess.run([PYTHON, script, out], env=quiet, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return out


@pytest.fixture(scope="module")
def frames(served: Path) -> dict[str, Tensor]:
    return load_file(served / "frames" / "frames.safetensors")


def profile(served: Path) -> Profile:
    sizes: dict[str, int] = json.loads((served / "frames" / "sizes.json").read_text())
    options: dict[str, Any] = {
        "spoken": BOOKS, "heard": BOOKS, "audio_vocab": CODES, "text_temperature": 0.0, "audio_temperature": 0.0,
        "depth_hidden": 32, "depth_layers": 2, "depth_heads": 2, "depth_mlp": sizes["depth_mlp"],
        "mimi_filters": 4, "mimi_hidden": 32, "mimi_heads": 4, "mimi_layers": 2, "mimi_mlp": 48,
        "mimi_codebook_size": CODES, "mimi_codebook_dim": 12, "mimi_stored_codebooks": 6,
    }  # fmt: skip
    return Profile(
        name="peer",
        title="peer",
        adapter="moshi",
        frame=Frame(period="80ms", sample_rate=24_000),
        tokens=FrameTokens(prefill=1, decode=TokensOut(listening=5, speaking=5), fused=True),
        shape=ModelShape(
            layers=3,
            heads=4,
            kv_heads=4,
            head_dim=16,
            hidden_size=64,
            intermediate_size=sizes["mlp"],
            vocab_size=TEXT,
            context_length=CONTEXT,
        ),
        policy=f"ring({CONTEXT})",
        adapter_options=options,
    )


def answers(served: Path, audio: Tensor) -> list[list[FrameOutput]]:
    """What this engine makes of the same audio, sessions beginning at the same frames."""
    here = profile(served)
    model = MoshiModel.from_profile(here, weights=served)
    stack = build_decoder(model.decoder, blocks=12, policy=here.policy_spec, block_tokens=4)
    engine = FrameEngine(model, stack, len(BEGINS))
    got: list[list[FrameOutput]] = [[] for _ in BEGINS]
    slots: dict[int, int] = {}
    for frame in range(audio.shape[1]):
        for session, begin in enumerate(BEGINS):
            if begin == frame:
                slots[session] = engine.open()
        batch = [
            FrameInput(slot, audio[session, frame - BEGINS[session]].numpy(), 1 + BOOKS)
            for session, slot in slots.items()
        ]
        for session, outcome in zip(slots, engine.step(batch).outcomes, strict=True):
            got[session].append(outcome)
    return got


def test_tokens_and_audio_equal_the_peers(served: Path, frames: dict[str, Tensor]) -> None:
    got = answers(served, frames["audio"])
    for session, outcomes in enumerate(got):
        ours = torch.tensor([outcome.tokens for outcome in outcomes])
        aligned = torch.cat([ours[:-1, :2], ours[1:, 2:]], dim=1)  # the peer undoes the delays
        theirs = frames["said"][session, 1 : len(outcomes)]
        assert torch.equal(aligned, theirs)
        assert len(theirs.unique()) > 20, "greedy tokens must vary for this to mean something"
        assert outcomes[0].audio is None
        sound = np.stack([outcome.audio for outcome in outcomes[1:] if outcome.audio is not None])
        expected = frames["sound"][session, 1 : len(outcomes)].numpy()
        assert np.linalg.norm(sound - expected) < 1e-4 * np.linalg.norm(expected)


def test_codec_equals_the_peers_whole_utterance_both_ways(served: Path, frames: dict[str, Tensor]) -> None:
    network = load_network(profile(served), served, "cpu", seed=0)
    codec, state = network.mimi, network.mimi.new_state()
    state.open(0)
    with torch.inference_mode():
        codes = [codec.encode(state, [0], frame[None]) for frame in frames["audio"][0]]
        sound = [codec.decode(state, [0], column[None]) for column in frames["heard"][0]]
    assert torch.equal(torch.cat(codes).T, frames["whole_codes"])
    assert torch.equal(torch.cat(codes), frames["heard"][0])
    error = (torch.cat(sound).flatten() - frames["whole_audio"]).norm() / frames["whole_audio"].norm()
    assert error < 1e-5
