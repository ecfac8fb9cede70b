"""Streams: distinct, endless, without a click, and spread over the period."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metronome_cli.audio.library import AudioLibrary, Clip
from metronome_cli.audio.streams import SEAM_S, AlignedLoopedSpeech, LoopedSpeech, join
from tests.audio.sounds import RATE, voice

PERIOD_S = 0.080
SEAM = round(SEAM_S * RATE)


def library(*seconds: float) -> AudioLibrary:
    clips = [
        Clip(f"{i}.wav", voice(s, pitch_hz=100 + 17 * i).astype(np.float32), s) for i, s in enumerate(seconds)
    ]
    return AudioLibrary(RATE, tuple(clips))


def test_frames_follow_one_another_for_ever() -> None:
    """Any frame equals that stretch of the session's audio played from the start."""
    streams = LoopedSpeech(library(2.0, 0.7), PERIOD_S, seed=1)
    stream = streams.stream(3)
    whole = np.concatenate([stream.frame(k) for k in range(200)])
    loop = round((2.0 + 0.7) * RATE) - 2 * SEAM
    assert np.array_equal(whole[loop:], whole[:-loop])
    assert np.array_equal(streams.stream(3).frame(150), whole[150 * 1280 : 151 * 1280])
    assert np.array_equal(stream.frame(10**12 * loop), stream.frame(0))


def test_a_frame_longer_than_all_speech_repeats_it() -> None:
    stream = LoopedSpeech(library(0.5), 2.0, seed=0).stream(0)
    assert stream.frame(0).shape == (2 * RATE,)
    period = round(0.5 * RATE) - SEAM
    assert np.array_equal(stream.frame(0)[period : 2 * period], stream.frame(0)[:period])


def test_a_frame_is_an_array_of_its_own() -> None:
    stream = LoopedSpeech(library(2.0), PERIOD_S, seed=0).stream(0)
    stream.frame(0)[:] = 9.0
    assert np.abs(stream.frame(0)).max() <= 1.0


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(100, 900), min_size=1, max_size=5), st.integers(0, 99))
def test_no_two_sessions_hear_the_same(lengths_ms: list[int], seed: int) -> None:
    rng = np.random.default_rng(seed)  # noise: a voice of steady pitch repeats itself
    clips = [
        Clip(f"{i}.wav", rng.uniform(-0.5, 0.5, ms * RATE // 1000).astype(np.float32), ms / 1000)
        for i, ms in enumerate(lengths_ms)
    ]
    streams = LoopedSpeech(AudioLibrary(RATE, tuple(clips)), PERIOD_S, seed)
    frames = {streams.stream(i).frame(0).tobytes() for i in range(64)}
    assert len(frames) == 64


def test_the_same_seed_gives_the_same_streams() -> None:
    one, two, other = (LoopedSpeech(library(2.0, 1.0, 1.5), PERIOD_S, seed) for seed in (5, 5, 6))
    assert np.array_equal(one.stream(7).frame(4), two.stream(7).frame(4))
    assert not np.array_equal(one.stream(7).frame(4), other.stream(7).frame(4))


def test_seams_do_not_click() -> None:
    """No step between samples exceeds the steps inside the pieces by more than the fade's own slope."""
    turn = 2 * np.pi * 50.3 * np.arange(RATE // 2) / RATE
    pieces = [(0.3 * np.sin(turn + start)).astype(np.float32) for start in (0.3, 1.5, 3.9)]
    loop = join(pieces, SEAM)
    steps = np.abs(np.diff(loop, append=loop[:1]))
    slope = 2 * 0.3 * np.pi / 2 / SEAM
    assert steps.max() <= max(np.abs(np.diff(piece)).max() for piece in pieces) + slope
    hard = np.concatenate(pieces)
    assert np.abs(np.diff(hard, append=hard[:1])).max() > 5 * steps.max()
    assert np.abs(loop).max() <= max(np.abs(piece).max() for piece in pieces) + 1e-6


@given(st.integers(2, 300))
def test_phases_fill_the_period_evenly(count: int) -> None:
    """No gap between neighbours exceeds 2.7 times the mean (three-distance theorem, golden ratio)."""
    streams = LoopedSpeech(library(0.5), PERIOD_S, seed=0)
    phases = np.sort([streams.phase_s(i) for i in range(count)])
    assert phases[0] >= 0.0
    assert phases[-1] < PERIOD_S
    gaps = np.diff(phases, append=phases[0] + PERIOD_S)
    assert gaps.max() <= 2.7 * PERIOD_S / count
    assert gaps.min() > 0


def test_one_more_session_moves_no_other() -> None:
    streams = LoopedSpeech(library(0.5), PERIOD_S, seed=0)
    before = [streams.phase_s(i) for i in range(5)]
    streams.stream(100)
    assert [streams.phase_s(i) for i in range(5)] == before
    assert before == pytest.approx([PERIOD_S * (i * 0.6180339887498949 % 1) for i in range(5)])


@settings(max_examples=20, deadline=None)
@given(st.lists(st.integers(9_000, 25_000), min_size=1, max_size=4), st.integers(0, 99), st.integers(0, 500))
def test_at_the_same_place_lies_the_same_audio(lengths_ms: list[int], seed: int, k: int) -> None:
    """Shared streams are whole frames of one loop, and the place says which."""
    library_ = library(*(ms / 1000 for ms in lengths_ms))
    shared = LoopedSpeech(library_, PERIOD_S, seed).shared()
    if isinstance(shared, LoopedSpeech):
        assert sum(lengths_ms) / 1000 < 256 * PERIOD_S + 2.0
        return
    seen: dict[int, bytes] = {}
    for index in range(40):
        stream = shared.stream(index)
        for frame in (k, k + 1, k + 10_000):
            heard = stream.frame(frame).tobytes()
            assert seen.setdefault(stream.place(frame), heard) == heard
            assert stream.place(frame + 1) != stream.place(frame)


def test_shared_streams_lose_less_than_a_frame_and_start_apart() -> None:
    streams = LoopedSpeech(library(30.0, 11.013), PERIOD_S, seed=3)
    shared = streams.shared()
    assert isinstance(shared, AlignedLoopedSpeech)
    assert len({shared.stream(i).place(0) for i in range(100)}) == 100
    assert [shared.phase_s(i) for i in range(9)] == [streams.phase_s(i) for i in range(9)]
    stream = shared.stream(0)
    lap = next(k for k in range(1, 10_000) if stream.place(k) == stream.place(0))
    whole = round(41.013 * RATE) - 2 * SEAM
    assert 0 <= whole - lap * 1280 < 1280
