"""What ships is there and well formed; what a user brings is checked with the entry named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from metronome_cli.audio.library import sample_paths
from metronome_cli.core.errors import UsageError
from metronome_cli.probe.quality.conversations import answered
from metronome_cli.probe.quality.material import (
    bundled_questions,
    bundled_text,
    bundled_transcripts,
    read_questions,
    read_text,
    read_transcripts,
)


def test_the_own_set_is_there() -> None:
    assert len(bundled_text().text.split()) > 2000
    assert len(bundled_questions()) >= 20
    assert len({question.asked for question in bundled_questions()}) == len(bundled_questions())


def test_own_spoken_questions_are_about_recordings_that_ship() -> None:
    here = {path.name for path in sample_paths()[0].iterdir()}
    for one in bundled_transcripts():
        assert one.file in here
        assert answered(one.question.answer, one.question)


def write(path: Path, data: object) -> Path:
    path.write_text(data if isinstance(data, str) else json.dumps(data), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("data", "named"),
    [
        ("{", "not JSON"),
        ("9" * 5000, "a number too long, or nested too deep"),
        ([], "not a list"),
        ({"a": 1}, "not a list"),
        ([3], "entry 1"),
        ([{"question": "?"}], "entry 1: answer"),
        (
            [{"question": "?", "answer": "!"}, {"question": "?", "answer": "!", "key": 1}],
            "entry 2: unknown key 'key'",
        ),
        ([{"question": "?", "answer": "!", "keywords": "blue"}], "list of words"),
        ([{"question": "?", "answer": "!", "keywords": 5}], "list of words"),
    ],
)
def test_a_wrong_file_of_questions_names_what_is_wrong(tmp_path: Path, data: object, named: str) -> None:
    with pytest.raises(UsageError, match=named):
        read_questions(write(tmp_path / "q.json", data))


def test_a_recording_may_ask_by_itself_but_has_a_name(tmp_path: Path) -> None:
    found = read_transcripts(write(tmp_path / "t.json", [{"file": "a.wav", "answer": "Yes."}]))
    assert (found[0].file, found[0].question.question) == ("a.wav", "")
    for wrong in ([{"answer": "Yes."}], [{"file": 3, "answer": "Yes."}], [None], [{"file": "a.wav"}]):
        with pytest.raises(UsageError, match="entry 1"):
            read_transcripts(write(tmp_path / "t.json", wrong))


def test_a_text_must_be_text(tmp_path: Path) -> None:
    binary = tmp_path / "b.txt"
    binary.write_bytes(b"\xff\xfe\x00\x81")
    for path in (binary, write(tmp_path / "empty.txt", "  \n"), tmp_path / "none.txt", tmp_path):
        with pytest.raises(UsageError, match="--text"):
            read_text(path)
