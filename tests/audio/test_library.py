"""Limits of what is kept, the decoder's silence, and the change of rate."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metronome_cli.audio import decode, library
from metronome_cli.audio.library import load_library, sample_paths
from metronome_cli.audio.quiet import decoder_muted
from metronome_cli.audio.resample import resample
from tests.audio.sounds import RATE, cut, pcm16, voice, wav_bytes, write


def test_a_long_file_is_cut_to_its_beginning_and_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decode, "MAX_SECONDS", 1)
    (clip,) = load_library([write(tmp_path / "long.flac", voice(3.0))], RATE).clips
    assert clip.seconds == 1.0
    assert clip.notes == ("long: used the first 1 s of 3 s",)
    assert np.allclose(clip.samples, voice(3.0)[:RATE], atol=1e-4)


def test_a_file_of_just_the_limit_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decode, "MAX_SECONDS", 2)
    (clip,) = load_library([write(tmp_path / "just.flac", voice(2.0))], RATE).clips
    assert (clip.seconds, clip.notes) == (2.0, ())


def test_a_claim_of_endless_sound_reads_in_bounded_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A gigabyte of zeros that takes no room on disk."""
    monkeypatch.setattr(decode, "MAX_SECONDS", 3)
    path = tmp_path / "big.wav"
    path.write_bytes(wav_bytes(pcm16(voice(1.0)), data_size=2**30, form_size=2**30 + 36))
    os.truncate(path, 2**30 + 44)
    (clip,) = load_library([path], RATE).clips
    assert clip.seconds == 3.0
    assert clip.notes == ("long: used the first 3 s of 9 h 19 min",)


def test_a_library_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "MAX_LIBRARY_S", 3.5)
    for name in "abcd":
        write(tmp_path / f"{name}.wav", voice(2.0))
    found = load_library([tmp_path], RATE)
    assert found.seconds == 4.0
    assert [r.file for r in found.refused] == ["2 more"]
    assert "not read" in found.refused[0].reason


def test_the_samples_that_ship_are_healthy() -> None:
    shipped = load_library(sample_paths(), RATE)
    assert len(shipped.clips) >= 8
    assert shipped.refused == ()
    assert all(clip.notes == () and clip.name.startswith("sample_audio/") for clip in shipped.clips)
    assert all(5.0 <= clip.seconds <= 41.0 for clip in shipped.clips)


def test_a_muted_decoder_writes_nothing_and_others_write_again(capfd: pytest.CaptureFixture[str]) -> None:
    with decoder_muted():
        os.write(2, b"warning from inside a library\n")
    os.write(2, b"after\n")
    assert capfd.readouterr().err == "after\n"


def test_the_terminal_is_given_back_after_an_error(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ZeroDivisionError), decoder_muted():
        raise ZeroDivisionError
    os.write(2, b"after\n")
    assert capfd.readouterr().err == "after\n"


def test_a_cut_mp3_leaves_the_terminal_clean(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    load_library([cut(write(tmp_path / "cut.mp3", voice(4.0)), 0.5)], RATE)
    assert capfd.readouterr() == ("", "")


@settings(max_examples=25, deadline=None)
@given(
    rate=st.sampled_from([8000, 11025, 16000, 22050, 44100, 44101, 48000, 96000]),
    tone_hz=st.integers(100, 3000),
)
def test_a_tone_keeps_its_pitch_and_size(rate: int, tone_hz: int) -> None:
    """Away from the ends, where the filter sees the silence outside."""
    t = np.arange(rate) / rate
    turned = resample((0.5 * np.sin(2 * np.pi * tone_hz * t)).astype(np.float32), rate, RATE)
    expected = 0.5 * np.sin(2 * np.pi * tone_hz * np.arange(len(turned)) / RATE)
    assert abs(len(turned) - RATE) <= 1
    assert turned.dtype == np.float32
    assert np.abs(turned - expected)[400:-400].max() < 0.01


def test_what_the_new_rate_cannot_hold_is_filtered_out() -> None:
    t = np.arange(48_000) / 48_000
    turned = resample(np.sin(2 * np.pi * 12_000 * t).astype(np.float32), 48_000, RATE)
    assert np.abs(turned[400:-400]).max() < 0.01


def test_an_awkward_ratio_takes_a_short_filter() -> None:
    assert len(resample(np.zeros(767_999, np.float32), 767_999, 16_001)) == pytest.approx(16_001, abs=2)
