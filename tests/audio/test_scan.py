"""What a list of files and directories means, and what is never waited for."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from metronome_cli.audio import scan as scanning
from metronome_cli.audio.library import load_library
from metronome_cli.audio.scan import FoundFile, printable, scan
from metronome_cli.core.errors import NoAudioError, UsageError
from tests.audio.sounds import RATE, voice, write


def names(paths: list[Path]) -> list[str]:
    return [found.path.name for found in scan(paths)]


def problems(paths: list[Path]) -> dict[str, str]:
    return {found.path.name: found.problem for found in scan(paths) if found.problem is not None}


def test_a_tree_gives_audio_by_extension_in_any_case_or_by_content(tmp_path: Path) -> None:
    (tmp_path / "deep" / "er").mkdir(parents=True)
    write(tmp_path / "b.WAV", voice(0.2))
    write(tmp_path / "a.flac", voice(0.2))
    write(tmp_path / "deep" / "er" / "c.Ogg", voice(0.2))
    write(tmp_path / "deep" / "recording", voice(0.2), format="FLAC")
    (tmp_path / "README.md").write_text("not audio")
    (tmp_path / "picture.png").write_bytes(b"\x89PNG\r\n")
    (tmp_path / "video.avi").write_bytes(b"RIFF\0\0\0\0AVI LIST")
    (tmp_path / "._b.wav").write_bytes(b"\0\x05\x16\x07")
    (tmp_path / "film.m4a").write_bytes(b"\0\0\0 ftyp")
    assert names([tmp_path]) == ["a.flac", "b.WAV", "film.m4a", "recording", "c.Ogg"]
    assert problems([tmp_path]) == {}


def test_each_file_once(tmp_path: Path) -> None:
    write(tmp_path / "a.wav", voice(0.2))
    (tmp_path / "link.wav").symlink_to("a.wav")
    assert names([tmp_path / "a.wav", tmp_path, tmp_path]) == ["a.wav"]


def test_a_loop_of_links_ends(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "out").symlink_to(tmp_path)
    (tmp_path / "self.wav").symlink_to("self.wav")
    write(tmp_path / "in" / "a.wav", voice(0.2))
    assert sorted(names([tmp_path])) == ["a.wav", "self.wav"]
    assert "symbolic links" in problems([tmp_path])["self.wav"]


def test_a_missing_path_is_a_mistake(tmp_path: Path) -> None:
    write(tmp_path / "a.wav", voice(0.2))
    for missing in (tmp_path / "nowhere", tmp_path / "a.wav" / "b.wav"):
        with pytest.raises(UsageError, match=missing.name):
            list(scan([tmp_path, missing]))


def test_a_directory_without_audio_says_so(tmp_path: Path) -> None:
    (tmp_path / "README").write_text("nothing here")
    with pytest.raises(NoAudioError, match="no audio files in") as caught:
        load_library([tmp_path], RATE)
    assert caught.value.hint is not None
    assert "flac" in caught.value.hint


def test_what_is_no_file_is_refused_and_never_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.wav")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "gone.wav").symlink_to("nowhere.wav")
    (tmp_path / "gone").symlink_to("nowhere")
    assert problems([tmp_path]) == {
        "pipe.wav": "a pipe, not a file",
        "gone.wav": "a link to a file that is not there",
    }
    assert problems([tmp_path / "pipe", Path(os.devnull), tmp_path / "gone"]) == {
        "pipe": "a pipe, not a file",
        "null": "a device, not a file",
        "gone": "a link to a file that is not there",
    }


def test_a_pipe_put_in_a_files_place_is_refused_when_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipe = tmp_path / "late.wav"
    os.mkfifo(pipe)
    monkeypatch.setattr("metronome_cli.audio.library.scan", lambda paths: [FoundFile(pipe, pipe.name)])
    with pytest.raises(NoAudioError, match="a pipe, not a file"):
        load_library([pipe], RATE)


def test_permission_denied_is_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "good.wav", voice(0.2))
    write(tmp_path / "locked.wav", voice(0.2))
    (tmp_path / "vault").mkdir()
    real_open, real_list = os.open, os.listdir

    def closed(path: Path, *rest: int) -> int:
        if Path(path).name == "locked.wav":
            raise PermissionError(13, "Permission denied")
        return real_open(path, *rest)

    def hidden(path: Path) -> list[str]:
        if Path(path).name == "vault":
            raise PermissionError(13, "Permission denied")
        return real_list(path)

    monkeypatch.setattr(os, "open", closed)
    monkeypatch.setattr(os, "listdir", hidden)
    library = load_library([tmp_path], RATE)
    assert [Path(clip.name).name for clip in library.clips] == ["good.wav"]
    assert {Path(r.file).name: r.reason for r in library.refused} == {
        "locked.wav": "permission denied",
        "vault": "permission denied",
    }


def test_a_scan_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scanning, "MAX_ENTRIES", 4)
    for directory in "ab":
        (tmp_path / directory).mkdir()
        for name in ("1.wav", "2.wav"):
            write(tmp_path / directory / name, voice(0.2))
    assert names([tmp_path])[:2] == ["1.wav", "2.wav"]
    assert list(problems([tmp_path]).values()) == ["stopped after 4 directory entries"]


def test_names_are_safe_to_print() -> None:
    assert printable("naïve öä 声.wav") == "naïve öä 声.wav"
    assert printable("a\x1b[31m\n.wav") == "a\\x1b[31m\\n.wav"
    printable(os.fsdecode(b"bad\xff.wav")).encode("utf-8")


def test_a_file_with_a_bad_name_is_read(tmp_path: Path) -> None:
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/bad\xff\x1b.wav"))
    with path.open("wb") as file:
        file.write(write(tmp_path / "a.wav", voice(0.2)).read_bytes())
    library = load_library([path], RATE)
    assert library.clips[0].name.endswith("bad\\xff\\x1b.wav")
