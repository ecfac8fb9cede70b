"""Words that readers outside the project would have to learn: their number may only shrink."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CEILING = 0
BANNED = (Path(__file__).parent / "banned_words.txt").read_text(encoding="utf-8").split("\n")
WORDS = re.compile(
    rf"(?<![A-Za-z0-9-])(?:{'|'.join(map(re.escape, filter(None, BANNED)))})(?![A-Za-z0-9])", re.IGNORECASE
)
KINDS = (".py", ".md", ".yaml", ".css")
LEFT_OUT = (
    "CHANGELOG.md",
    "tests/fuzz/",
    "sample_audio/",
    "metronome_cli/core/renamed.py",
)
TREES = ("metronome_cli", "docs", "tests", "benchmarks", "profiles")


def files() -> list[Path]:
    """Text files of the project; a tree that is not there, as in a package, has none."""
    found = [path for tree in TREES for path in (ROOT / tree).rglob("*") if path.suffix in KINDS]
    return sorted([*found, *ROOT.glob("*.md")])


def count(path: Path) -> int:
    """Banned words in one file; `arm64` is a processor."""
    text = re.sub(r"arm64|sbs_arm", "", path.read_text(encoding="utf-8", errors="replace"))
    return len(WORDS.findall(text))


def test_no_word_of_a_private_language_is_added() -> None:
    counted = {path.relative_to(ROOT).as_posix(): count(path) for path in files()}
    found = {name: n for name, n in counted.items() if n and not name.startswith(LEFT_OUT)}
    most = sorted(found.items(), key=lambda each: -each[1])[:10]
    assert sum(found.values()) <= CEILING, f"{sum(found.values())} banned words: {most}"


def test_what_is_counted() -> None:
    assert all(WORDS.findall(f"a {word}, or") == [word] for word in BANNED if word)
    assert not WORDS.findall("a cellar, her, there, newsprint, newspaper-like, alarm, armed, reseat")
