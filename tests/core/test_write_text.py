"""Files of a report: written whole or not at all, and never blocked by a pipe without a reader."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from metronome_cli.core.errors import MetronomeError, UsageError
from metronome_cli.core.files import check_writable, write_text


def test_a_pipe_without_a_reader_is_an_error(tmp_path: Path) -> None:
    os.mkfifo(pipe := tmp_path / "pipe")
    with pytest.raises(MetronomeError, match=r"cannot write .*pipe"):
        write_text(pipe, "text")


def test_a_pipe_with_a_reader_gets_it_all(tmp_path: Path) -> None:
    os.mkfifo(pipe := tmp_path / "pipe")
    text, got = "x" * 300_000, list[bytes]()
    with os.fdopen(
        os.open(pipe, os.O_RDWR), "rb"
    ) as reader:  # open at both ends, so that it never ends early
        thread = threading.Thread(target=lambda: got.append(reader.read(len(text))))
        thread.start()
        write_text(pipe, text)
        thread.join(20)
    assert got == [text.encode()]


@pytest.mark.parametrize("name", ["new.html", "a/b/new.html", "old.html", "pipe"])
def test_looking_whether_a_file_can_be_written_changes_nothing(tmp_path: Path, name: str) -> None:
    (tmp_path / "old.html").write_text("old")
    os.mkfifo(tmp_path / "pipe")
    before = sorted(os.listdir(tmp_path))
    check_writable(tmp_path / name, "--html")
    assert sorted(os.listdir(tmp_path)) == before
    assert (tmp_path / "old.html").read_text() == "old"


@pytest.mark.parametrize("name", ["", "old.html/new.html", "old.html/a/new.html", "x" * 300, "gone/new.html"])
def test_what_cannot_be_written_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "old.html").write_text("old")
    (tmp_path / "gone").symlink_to(tmp_path / "nowhere")
    with pytest.raises(UsageError, match="--html: cannot write"):
        check_writable(tmp_path / name, "--html")
