"""Files that a user names: read when they are plain and small, refused at once otherwise."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from metronome_cli.core.errors import UsageError
from metronome_cli.core.files import read_file


def test_a_plain_file_is_read_whole(tmp_path: Path) -> None:
    file = tmp_path / "plain"
    file.write_bytes(bytes(range(256)))
    assert read_file(file, 256) == bytes(range(256))


@pytest.mark.parametrize(("make", "says"), [
    (lambda file: None, "No such file"),
    (os.mkfifo, "not a regular file but a pipe"),
    (Path.mkdir, "not a regular file but a directory"),
    (lambda file: file.symlink_to("/dev/zero"), "not a regular file but a device"),
    (lambda file: file.symlink_to(file), "symbolic links"),
    (lambda file: file.write_bytes(b"x" * 1025), "larger than 1 KiB"),
])  # fmt: skip
def test_anything_else_is_refused_by_name_and_does_not_block(tmp_path: Path, make, says: str) -> None:
    file = tmp_path / "named"
    make(file)
    with pytest.raises(UsageError, match=f"named: .*{re.escape(says)}"):
        read_file(file, 1024)


def test_a_name_that_cannot_be_one_is_refused() -> None:
    with pytest.raises(UsageError):
        read_file(Path("a\0b"), 256)
