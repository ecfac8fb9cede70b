"""Log-mel: streaming equals the whole, and the numbers are those of the textbook."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from metronome_cli.core.errors import UsageError
from metronome_cli.models.audio.log_mel import CausalLogMel, mel_filters


def whole(mel: CausalLogMel, samples: torch.Tensor) -> torch.Tensor:
    return mel(torch.cat((torch.zeros(len(samples), mel.history), samples), dim=1))


@settings(max_examples=20, deadline=None)
@given(st.sampled_from([8000, 16000, 24000, 44100]), st.lists(st.integers(1, 9), min_size=1, max_size=6))
def test_streaming_equals_whole(rate: int, hops: list[int]) -> None:
    """Cut anywhere at a whole hop, the features are the same."""
    mel = CausalLogMel(rate, 40)
    samples = torch.randn(2, sum(hops) * mel.hop, generator=torch.Generator().manual_seed(1)) * 0.1
    past, parts, at = torch.zeros(2, mel.history), [], 0
    for count in hops:
        seen = torch.cat((past, samples[:, at : at + count * mel.hop]), dim=1)
        parts.append(mel(seen))
        past, at = seen[:, -mel.history :], at + count * mel.hop
    assert torch.allclose(torch.cat(parts, dim=1), whole(mel, samples), atol=1e-5)


def test_a_feature_hears_its_window_and_nothing_after() -> None:
    mel = CausalLogMel(16_000, 80)
    samples = torch.randn(1, 1600, generator=torch.Generator().manual_seed(2))
    before = whole(mel, samples)
    samples[0, 800] += 1.0
    changed = (whole(mel, samples) != before).any(dim=2)[0]
    assert changed.nonzero().flatten().tolist() == [5, 6]  # windows [560, 960) and [720, 1120)


def test_one_feature_by_hand() -> None:
    """The definition spelled out in numpy: Hann window, power spectrum over 800 points, filters, log10."""
    mel = CausalLogMel(16_000, 80)
    samples = np.random.default_rng(3).standard_normal(400).astype(np.float32)
    window = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(400) / 400)
    power = np.abs(np.fft.rfft(samples * window, 800)) ** 2
    expected = (np.log10(np.maximum(power @ mel_filters(16_000, 800, 80).numpy(), 1e-10)) + 4) / 4
    assert np.allclose(mel(torch.from_numpy(samples)[None])[0, 0].numpy(), expected, atol=1e-4)


@pytest.mark.parametrize("rate", [8000, 16000, 24000, 48000])
def test_every_filter_hears_something_and_all_have_one_area(rate: int) -> None:
    filters = mel_filters(rate, rate // 20, 80)
    assert (filters.sum(dim=0) > 0).all()
    areas = mel_filters(rate, rate, 80).double().sum(dim=0)  # bins of 1 Hz
    assert torch.allclose(areas, torch.ones(80, dtype=torch.float64), atol=0.01)


def test_a_tone_lands_in_its_filter() -> None:
    """1 kHz is mel 15 of Slaney's scale, and 80 filters up to 8 kHz stand 0.5586 mel apart."""
    mel = CausalLogMel(16_000, 80)
    tone = torch.sin(2 * torch.pi * 1000 * torch.arange(400) / 16_000)
    assert abs(int(mel(tone[None])[0, 0].argmax()) - (15 / (45.245640471924965 / 81) - 1)) < 1


def test_silence_is_finite() -> None:
    assert torch.equal(CausalLogMel(16_000, 80)(torch.zeros(1, 560)), torch.full((1, 2, 80), -1.5))


@pytest.mark.parametrize("rate", [11025, 22050])
def test_a_rate_without_whole_hops_is_refused(rate: int) -> None:
    with pytest.raises(UsageError, match=str(rate)):
        CausalLogMel(rate, 80)
