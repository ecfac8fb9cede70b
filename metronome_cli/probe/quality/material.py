"""What is read to a model and asked of it: a text, questions with their context, and spoken questions.

A set of the project's own ships in this package; `--text` brings another text. The form of a file of
questions, JSON: [{"context": "...", "question": "...", "answer": "...", "keywords": ["..."]}, ...].
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from metronome_cli.core.errors import UsageError
from metronome_cli.core.files import read_file

MOST_BYTES = 64 * 2**20
_OWN = Path(__file__).resolve().parent / "material"


@dataclass(frozen=True, slots=True)
class Question:
    """A question with its context, and the content of a right answer."""

    context: str
    question: str
    answer: str
    keywords: tuple[str, ...]

    @property
    def asked(self) -> str:
        return f"{self.context}\n{self.question}".strip()


@dataclass(frozen=True, slots=True)
class ReadingText:
    """A text to be read as one stream. `name` says where it is from."""

    name: str
    text: str


def bundled_text() -> ReadingText:
    """The story that ships with the project."""
    return ReadingText("the project's own story", (_OWN / "story.txt").read_text(encoding="utf-8"))


def read_text(path: Path) -> ReadingText:
    """Raises UsageError for a file that is missing, empty, or not UTF-8 text."""
    try:
        text = read_file(path, MOST_BYTES).decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(f"--text {path}: not UTF-8 text", hint="save it as UTF-8") from error
    except UsageError as error:
        raise UsageError(f"--text {error.message}", hint="give a text file") from None
    if not text.strip():
        raise UsageError(f"--text {path}: it is empty", hint="give a text of some thousand words")
    return ReadingText(path.name, text)


@cache
def bundled_questions() -> tuple[Question, ...]:
    """The questions that ship with the project."""
    return read_questions(_OWN / "questions.json")


def read_questions(path: Path) -> tuple[Question, ...]:
    """Raises UsageError naming the entry that is wrong."""
    return tuple(
        _question(entry, f"{path}: entry {number}") for number, entry in enumerate(_entries(path), start=1)
    )


def _entries(path: Path) -> list[Any]:
    try:
        data = json.loads(read_file(path, MOST_BYTES))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: not JSON: {error}", hint="a list of questions") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(
            f"{path}: a number too long, or nested too deep", hint="a list of questions"
        ) from error
    if not isinstance(data, list) or not data:
        raise UsageError(f"{path}: not a list of questions", hint='[{"question": ..., "answer": ...}, ...]')
    return data


@dataclass(frozen=True, slots=True)
class RecordedQuestion:
    """A question about a recording, or in it; then `question.question` is empty."""

    file: str
    question: Question


def bundled_transcripts() -> tuple[RecordedQuestion, ...]:
    """Questions about the sample audio."""
    return read_transcripts(_OWN / "spoken.json")


def read_transcripts(path: Path) -> tuple[RecordedQuestion, ...]:
    """Questions about recordings, by file name: [{"file": "a.wav", "question": ..., "answer": ...,
    "keywords": [...]}, ...]. `question` is left out if the recording contains it.

    Raises UsageError naming the entry that is wrong.
    """
    found = []
    for number, entry in enumerate(_entries(path), start=1):
        where = f"{path}: entry {number}"
        rest = dict(entry) if isinstance(entry, dict) else {}
        name = rest.pop("file", None)
        if not isinstance(name, str) or not name:
            raise UsageError(f"{where}: file is missing", hint="the recording's name, such as a.wav")
        found.append(RecordedQuestion(name, _question(rest, where, heard=True)))
    return tuple(found)


def _question(entry: Any, where: str, *, heard: bool = False) -> Question:
    if not isinstance(entry, dict):
        raise UsageError(f"{where}: not an object", hint="keys: context, question, answer, keywords")
    unknown = set(entry) - {"context", "question", "answer", "keywords"}
    if unknown:
        raise UsageError(
            f"{where}: unknown key {min(unknown)!r}", hint="keys: context, question, answer, keywords"
        )
    for key in ("answer",) if heard else ("question", "answer"):
        if not isinstance(entry.get(key), str) or not entry[key].strip():
            raise UsageError(f"{where}: {key} is missing", hint="question and answer are texts")
    return Question(
        str(entry.get("context", "")),
        str(entry.get("question", "")),
        entry["answer"],
        keywords_of(entry, where),
    )


def keywords_of(entry: dict[str, Any], where: str) -> tuple[str, ...]:
    """The entry's keywords. Raises UsageError unless they are a list of texts."""
    given: Any = entry.get("keywords", [])
    if not isinstance(given, list) or not all(isinstance(word, str) and word.strip() for word in given):
        raise UsageError(f"{where}: keywords are a list of words", hint='"keywords": ["blue", "van"]')
    return tuple(given)
