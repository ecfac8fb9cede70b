"""Each kind of odd file is used, used with a word said, or refused: one row a kind."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from metronome_cli.audio.library import Clip, load_library
from metronome_cli.core.errors import NoAudioError
from tests.audio.sounds import RATE, Samples, chunk, cut, pcm16, voice, wav_bytes, write

Build = Callable[[Path], object]
LIST = chunk(b"LIST", b"INFOISFT\x05\0\0\0test\0\0")


def subtype(name: str, rate: int = RATE) -> Build:
    return lambda path: write(path, voice(rate=rate), rate, subtype=name)


def raw(data: bytes) -> Build:
    return lambda path: path.write_bytes(data)


def channels(*levels: float) -> Samples:
    return np.outer(voice(), levels)


def with_bad_values() -> Samples:
    samples = voice()
    samples[100:110] = np.nan
    samples[5000] = np.inf
    return samples


PCM = pcm16(voice())
USED: dict[str, Build] = {
    "u8.wav": subtype("PCM_U8"),
    "s24.wav": subtype("PCM_24"),
    "f32.wav": subtype("FLOAT"),
    "f64.wav": subtype("DOUBLE"),
    "adpcm.wav": subtype("IMA_ADPCM"),
    "mulaw.wav": subtype("ULAW", 8000),
    "alaw.wav": subtype("ALAW", 8000),
    "rate-8k.wav": subtype("PCM_16", 8000),
    "rate-11025.wav": subtype("PCM_16", 11025),
    "rate-96k.wav": subtype("PCM_16", 96000),
    "extensible.wav": lambda path: write(path, channels(1, 0.5), format="WAVEX", subtype="PCM_16"),
    "extensible-5.1.wav": lambda path: write(
        path, channels(1, 0.8, 0.6, 0, 0.4, 0.2), format="WAVEX", subtype="PCM_24"
    ),
    "six-channels.wav": lambda path: write(path, channels(1, 0.8, 0.6, 0.4, 0, 0.1)),
    "list-chunk.wav": raw(wav_bytes(PCM, before=LIST)),
    "odd-chunks.wav": raw(wav_bytes(PCM, before=LIST + chunk(b"odd ", b"abc"), after=LIST)),
    "na\u00efve speech \u2013 \u00f6\u00e4 \u58f0.wav": subtype("PCM_16"),
    "UPPER.WAV": subtype("PCM_16"),
    "speech.ogg": subtype("VORBIS"),
    "speech.opus": lambda path: write(path, voice(), format="OGG", subtype="OPUS"),
    "speech.aiff": subtype("PCM_16"),
    "speech.au": subtype("PCM_16"),
    "speech.flac": subtype("PCM_16"),
    "speech.mp3": lambda path: write(path, voice()),
    "mp3-named.wav": lambda path: write(path, voice(), format="MP3"),
    "streamed.wav": raw(wav_bytes(PCM, data_size=0xFFFFFFFF, form_size=0xFFFFFFFF)),
    "streamed-by-sox.wav": raw(wav_bytes(PCM, data_size=0x7FFFF000, form_size=0x7FFFF024)),
    "rf64.wav": lambda path: write(path, voice(), format="RF64", subtype="PCM_16"),
    "a-frame-short.mp3": lambda path: cut(write(path, voice(8.0)), 0.994),
    "truncated.ogg": lambda path: cut(write(path, voice(40.0)), 0.6),
    "digit.wav": lambda path: write(path, voice(0.63, 8000), 8000),
    "half-silent.wav": lambda path: write(path, np.concatenate((voice(), np.zeros(2 * RATE)))),
    "loud.wav": lambda path: write(path, voice() / 0.3 * 0.99),
}
SAID: dict[str, tuple[Build, str]] = {
    "silence.wav": (lambda path: write(path, np.zeros(3 * RATE)), "silence"),
    "clipped.wav": (lambda path: write(path, np.clip(voice() * 8, -1, 1)), r"clipped: \d+ %"),
    "dc-offset.wav": (lambda path: write(path, 0.6 + voice()), r"offset of \+0\.6"),
    "hot-float.wav": (lambda path: write(path, voice() * 7, subtype="FLOAT"), r"beyond full scale .*2\.1"),
    "truncated.wav": (raw(wav_bytes(PCM)[:30001]), r"cut short: 936 ms of the 2 s"),
    "claims-too-much.wav": (raw(wav_bytes(PCM, data_size=900_000_000)), r"cut short: 2 s of the 7 h 4\d min"),
    "truncated.aiff": (lambda path: cut(write(path, voice()), 0.5), r"cut short: (1 s|999 ms) of the 2 s"),
    "truncated.au": (lambda path: cut(write(path, voice()), 0.5), r"cut short: (1 s|999 ms) of the 2 s"),
    "truncated.mp3": (lambda path: cut(write(path, voice(4.0)), 0.5), r"cut short: .* of the 4 s"),
    "truncated.flac": (lambda path: cut(write(path, voice(4.0)), 0.6), r"damaged .* of 4 s"),
    "cancelling.wav": (lambda path: write(path, channels(1, -1)), "cancel each other"),
}
REFUSED: dict[str, tuple[Build, str]] = {
    "size-zero.wav": (raw(wav_bytes(PCM, data_size=0, form_size=0)), "never finished.*64,000 bytes"),
    "header-only.wav": (raw(wav_bytes(b"")), "no samples"),
    "empty-data-then-list.wav": (raw(wav_bytes(b"", after=LIST)), "no samples"),
    "shorter-than-a-frame.wav": (lambda path: write(path, voice(0.025)), "25 ms long"),
    "nan-inf.wav": (
        lambda path: write(path, with_bad_values(), subtype="FLOAT"),
        "11 of 32,000 .*not finite",
    ),
    "all-nan.wav": (lambda path: write(path, voice() * np.nan, subtype="FLOAT"), "32,000 of 32,000"),
    "zero-bytes.wav": (raw(b""), "empty file"),
    "text.wav": (raw(b"this is not audio\n" * 20), "not recognised"),
    "half-a-header.wav": (raw(wav_bytes(PCM)[:20]), "not readable"),
    "rate-zero.wav": (raw(wav_bytes(PCM, rate=0)), "0 Hz"),
    "rate-huge.wav": (raw(wav_bytes(PCM, rate=2**31 - 1)), "rate of 2,147,483,647 Hz"),
    "no-channels.wav": (raw(wav_bytes(PCM, channels=0)), "0 channels"),
    "film.m4a": (raw(b"\0\0\0\x20ftypM4A " + b"\0" * 100), "not recognised"),
}


def read(path: Path) -> Clip:
    library = load_library([path], RATE)
    assert not library.refused
    return library.clips[0]


@pytest.mark.parametrize("name", USED)
def test_healthy_is_used_without_a_word(tmp_path: Path, name: str) -> None:
    USED[name](tmp_path / name)
    clip = read(tmp_path / name)
    assert clip.notes == ()
    assert clip.name == str(tmp_path / name)
    assert clip.samples.dtype == np.float32
    assert 0.05 < np.abs(clip.samples).max() <= 1.0
    assert clip.seconds == pytest.approx(len(clip.samples) / RATE)


@pytest.mark.parametrize("name", SAID)
def test_odd_is_used_and_said(tmp_path: Path, name: str) -> None:
    build, words = SAID[name]
    build(tmp_path / name)
    clip = read(tmp_path / name)
    assert len(clip.notes) == 1
    assert re.search(words, clip.notes[0]), clip.notes
    assert np.abs(clip.samples).max() <= 1.0


@pytest.mark.parametrize("name", REFUSED)
def test_useless_is_refused_with_the_reason(tmp_path: Path, name: str) -> None:
    build, words = REFUSED[name]
    build(tmp_path / name)
    write(tmp_path / "good.wav", voice())
    library = load_library([tmp_path], RATE)
    assert [Path(clip.name).name for clip in library.clips] == ["good.wav"]
    (refusal,) = library.refused
    assert Path(refusal.file).name == name
    assert re.search(words, refusal.reason), refusal.reason
    with pytest.raises(NoAudioError, match=re.escape(name)):
        load_library([tmp_path / name], RATE)


def test_the_good_part_of_a_damaged_file_is_exact(tmp_path: Path) -> None:
    whole = read(write(tmp_path / "whole.flac", voice(4.0))).samples
    part = read(cut(tmp_path / "whole.flac", 0.6)).samples
    assert 1.5 * RATE < len(part) < len(whole)
    assert np.array_equal(part, whole[: len(part)])


def test_an_offset_is_taken_off_and_hot_samples_keep_their_shape(tmp_path: Path) -> None:
    plain = read(write(tmp_path / "plain.wav", voice(), subtype="FLOAT")).samples
    lifted = read(write(tmp_path / "lifted.wav", 0.6 + voice(), subtype="FLOAT")).samples
    hot = read(write(tmp_path / "hot.wav", voice() * 7, subtype="FLOAT")).samples
    assert np.allclose(lifted, plain - plain.mean(), atol=1e-6)
    assert np.allclose(hot * 0.3, plain, atol=1e-6)


def test_channels_are_mixed_by_their_mean(tmp_path: Path) -> None:
    mixed = read(write(tmp_path / "six.wav", channels(1, 0.8, 0.6, 0.4, 0, 0.2), subtype="FLOAT")).samples
    assert np.allclose(mixed, voice() * 0.5, atol=1e-6)


def test_cancelling_channels_leave_the_first(tmp_path: Path) -> None:
    heard = read(write(tmp_path / "x.wav", channels(1, -1), subtype="FLOAT")).samples
    assert np.allclose(heard, voice(), atol=1e-6)
