"""The loop of a script: speech where its marks say, room noise elsewhere, and the same for everyone who follows it."""

from __future__ import annotations

import numpy as np
import pytest

from metronome_cli.audio.library import AudioLibrary, Clip
from metronome_cli.audio.streams import LoopedSpeech
from metronome_cli.audio.utterances import LONGEST_S, SHORTEST_S, utterances
from metronome_cli.capacity.scripted_audio import NOISE_DBFS, scripted_loop
from metronome_cli.core.errors import NoAudioError
from metronome_cli.core.types import Audio
from metronome_cli.load.script import ScriptLine, built_in_script

RATE = 8000


def speech(*runs_s: tuple[float, float], rate: int = RATE) -> Audio:
    """Tones of (seconds, pause after it in seconds)."""
    parts = []
    for seconds, pause_s in runs_s:
        parts.append(0.3 * np.sin(2 * np.pi * 300 * np.arange(round(seconds * rate)) / rate))
        parts.append(np.zeros(round(pause_s * rate)))
    return np.concatenate(parts).astype(np.float32)


def library(*clips: Audio) -> AudioLibrary:
    return AudioLibrary(RATE, tuple(Clip(f"c{i}", clip, len(clip) / RATE) for i, clip in enumerate(clips)))


def dbfs(samples: Audio) -> float:
    return float(10 * np.log10(np.mean(np.square(samples, dtype=np.float64)) + 1e-12))


def test_recordings_are_cut_at_pauses_and_trimmed() -> None:
    found = utterances([speech((3.0, 1.0), (2.5, 0.6), (5.0, 2.0))], RATE)
    assert [len(one) / RATE for one in found] == pytest.approx([3.0, 2.5, 5.0], abs=0.05)


def test_a_short_pause_is_inside_an_utterance_and_a_short_word_joins_the_next() -> None:
    assert len(utterances([speech((1.5, 0.2), (1.5, 1.0))], RATE)) == 1
    joined = utterances([speech((0.5, 0.6), (3.0, 1.0))], RATE)
    assert [len(one) / RATE for one in joined] == pytest.approx([4.1], abs=0.05)


def test_long_speech_is_cut_into_utterances_of_at_most_eight_seconds() -> None:
    lengths = [len(one) / RATE for one in utterances([speech((30.0, 1.0))], RATE)]
    assert max(lengths) <= LONGEST_S
    assert min(lengths) >= SHORTEST_S


def test_a_loop_has_speech_at_its_marks_and_room_noise_elsewhere() -> None:
    made, script = scripted_loop(
        library(speech((3.0, 1.0), (2.5, 1.0))),
        built_in_script(4.0),
        0.08,
        1,
        lambda name: speech((1.0, 0.0)),
    )
    audio = LoopedSpeech(made, 0.08, 0)
    assert audio.loop_samples == script.loop_samples
    assert script.loop_samples % round(0.08 * RATE) == 0
    loop = np.concatenate([audio.at(0).frame(k) for k in range(script.loop_samples // round(0.08 * RATE))])
    quiet = np.ones(len(loop), dtype=bool)
    for mark in script.marks:
        assert dbfs(loop[mark.start : mark.end]) > -20
        quiet[mark.start : mark.end] = False
    assert dbfs(loop[quiet]) == pytest.approx(NOISE_DBFS, abs=1.0)


def test_a_session_hears_its_turns_when_the_script_says() -> None:
    made, script = scripted_loop(
        library(speech((3.0, 1.0))), built_in_script(4.0), 0.08, 1, lambda name: speech()
    )
    audio = LoopedSpeech(made, 0.08, 3)
    for index in range(3):
        first = next(script.events(index, audio.start(index), 0.0))
        samples = np.concatenate(
            [audio.stream(index).frame(k) for k in range(round((first.at_s + 1) / 0.08))]
        )
        at = round(first.at_s * RATE)
        assert dbfs(samples[at : at + RATE // 4]) > -20
        assert dbfs(samples[max(0, at - RATE // 4) : at - 10]) < -50


def test_recordings_without_speech_are_refused() -> None:
    with pytest.raises(NoAudioError, match="2 to 8 s"):
        scripted_loop(library(speech((0.5, 3.0))), [ScriptLine("say")], 0.08, 1, lambda name: speech())
