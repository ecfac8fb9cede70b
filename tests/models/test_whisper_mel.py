"""A stream of mel frames against Whisper's features of the whole recording."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from metronome_cli.models.audio.whisper_mel import LEAD, RATE, WhisperMelStream, WhisperStreamingMel

CPU = torch.device("cpu")
BINS = 80


def recording(samples: int, seed: int, loudest_first: bool = True) -> np.ndarray:
    rng = np.random.default_rng(seed)
    fade = np.linspace(1.0, 1e-6, samples) if loudest_first else np.ones(samples)
    return (rng.standard_normal(samples) * fade).astype(np.float32)


def whole(audio: np.ndarray) -> torch.Tensor:
    """`transformers`' features of the recording with the stream's zeros before it."""
    from transformers import WhisperFeatureExtractor

    extractor = WhisperFeatureExtractor(feature_size=BINS, chunk_length=300)
    padded = np.concatenate([np.zeros(LEAD, np.float32), audio])
    features: torch.Tensor = extractor(
        padded, sampling_rate=RATE, padding=False, return_tensors="pt"
    ).input_features[0]
    return features


@pytest.mark.parametrize("chunk", [32_000, 16_000, 3_200, 320])
def test_chunks_equal_the_whole_recording(chunk: int) -> None:
    audio = recording(64_000, seed=1)
    audio[: min(chunk, 2000)] *= 100.0  # the loudest is heard in the first chunk: the floor is settled
    mel, stream = WhisperStreamingMel(BINS, CPU), WhisperMelStream()
    streamed = torch.cat([mel([stream], [part])[0] for part in audio.reshape(-1, chunk)], dim=1)
    assert streamed.shape == (BINS, 400)
    torch.testing.assert_close(streamed, whole(audio)[:, :400], atol=2e-5, rtol=0)


def test_the_floor_is_that_of_the_loudest_so_far() -> None:
    quiet, loud = recording(32_000, 2, False) * 1e-5, recording(32_000, 3, False)
    mel, stream = WhisperStreamingMel(BINS, CPU), WhisperMelStream()
    mel([stream], [quiet])
    after = mel([stream], [loud])
    floored = mel([stream], [np.zeros(32_000, np.float32)])[0]
    assert len(floored[:, 10:].unique()) == 1  # silence lies on the floor, which the loud chunk set
    assert torch.isclose(floored[0, 20], after.max() - 2.0, atol=1e-5)


def test_sessions_do_not_touch_each_other() -> None:
    first, second = recording(32_000, 4), recording(32_000, 5)
    mel = WhisperStreamingMel(BINS, CPU)
    together = mel([WhisperMelStream(), WhisperMelStream()], [first, second])
    for row, audio in zip(together, (first, second), strict=True):
        torch.testing.assert_close(row, mel([WhisperMelStream()], [audio])[0], atol=1e-6, rtol=0)
