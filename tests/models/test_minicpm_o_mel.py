"""Units of mel, cut from a stream, against the same mel computed over the whole buffer for each unit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from metronome_cli.models.audio.whisper_mel import RATE, WhisperLogMel
from metronome_cli.models.minicpm_o.mel import (
    FIRST,
    LEAD,
    QUIET_UNTIL,
    SLIDE_AT,
    SLIDE_BY,
    UnitMel26,
    UnitMel45,
    UnitMelStream,
)

CPU = torch.device("cpu")
BINS = 20


def noise(seconds: int, seed: int) -> np.ndarray:
    """Noise whose loudness changes from second to second, so that the floor matters."""
    rng = np.random.default_rng(seed)
    loudness = np.repeat(10.0 ** rng.uniform(-4, 0, seconds), RATE)
    return (rng.standard_normal(seconds * RATE) * loudness).astype(np.float32)


def whisper_mel(samples: np.ndarray, fixed_floor: bool) -> torch.Tensor:
    """Whisper's feature extraction by the book: reflect, transform, drop the last frame, floor, scale."""
    log_mel = WhisperLogMel(BINS, CPU)
    padded = torch.nn.functional.pad(torch.from_numpy(samples)[None], (200, 200), mode="reflect")
    raw = log_mel(padded)[0, :, :-1]
    floor = torch.tensor(-10.0) if fixed_floor else raw.max() - 8.0
    return (torch.maximum(raw, floor) + 4.0) / 4.0


def by_the_book(audio: np.ndarray) -> list[torch.Tensor]:
    """Each unit cut from the mel of the whole buffer, which slides by 10 s at 30 s."""
    stream = np.concatenate([np.zeros(LEAD, np.float32), audio])
    units, start = [], 0
    for k in range(len(audio) // RATE):
        end = FIRST + RATE * k
        if end - start >= SLIDE_AT:
            start += SLIDE_BY
        buffer = stream[start:end]
        mel = whisper_mel(buffer, fixed_floor=len(buffer) < QUIET_UNTIL)
        first = max(0, 100 * k - 2) - start // 160
        units.append(mel[:, first : 100 * k + 102 - start // 160])
    return units


def test_units_equal_the_whole_buffers_mel_across_two_slides() -> None:
    audio = noise(45, seed=1)
    mel, stream = UnitMel45(BINS, CPU), UnitMelStream()
    got = [mel.units([stream], [second])[0] for second in audio.reshape(45, RATE)]
    assert [unit.shape[1] for unit in got] == [102] + [104] * 44
    assert stream.dropped == 2 * SLIDE_BY
    for unit, expected in zip(got, by_the_book(audio), strict=True):
        torch.testing.assert_close(unit, expected, atol=2e-5, rtol=0)


def test_streams_of_different_ages_do_not_touch_each_other() -> None:
    long, short = noise(6, seed=2).reshape(6, RATE), noise(3, seed=3).reshape(3, RATE)
    mel = UnitMel45(BINS, CPU)
    alone, old, young = UnitMelStream(), UnitMelStream(), UnitMelStream()
    expected = [mel.units([alone], [second])[0] for second in short]
    for second in long[:3]:
        mel.units([old], [second])
    together = [mel.units([old, young], [a, b])[1] for a, b in zip(long[3:], short, strict=True)]
    for got, wanted in zip(together, expected, strict=True):
        torch.testing.assert_close(got, wanted, atol=1e-6, rtol=0)


def test_the_buffer_never_grows_past_thirty_seconds() -> None:
    mel, stream = UnitMel45(BINS, CPU), UnitMelStream()
    for second in noise(64, seed=4).reshape(64, RATE):
        mel.units([stream], [second])
        assert len(stream.audio) <= SLIDE_AT + 2 * RATE
        assert len(stream.peaks) == stream.end // 160 - 100  # `end` is the next unit's already


def reference_extractor(bins: int) -> Any:
    from transformers import WhisperFeatureExtractor

    return WhisperFeatureExtractor(feature_size=bins, chunk_length=1)


@pytest.mark.parametrize("bins", [80])
def test_a_second_of_version_26_equals_whispers_features(bins: int) -> None:
    audio = noise(3, seed=5).reshape(3, RATE)
    got = UnitMel26(bins, CPU).units(list(audio))
    for row, second in zip(got, audio, strict=True):
        expected = reference_extractor(bins)(second, sampling_rate=RATE, return_tensors="pt").input_features[
            0
        ]
        torch.testing.assert_close(row, expected, atol=2e-5, rtol=0)
