"""The build that --version names: git's own files, or what pip wrote down."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

import pytest

from metronome_cli.cli.root import version_line
from metronome_cli.core.version import build

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Installed:
    """A distribution with pip's note of its origin."""

    version = "1.0"

    def __init__(self, note: str | None) -> None:
        self.note = note

    def read_text(self, name: str) -> str | None:
        return self.note if name == "direct_url.json" else None


@pytest.fixture(autouse=True)
def nothing_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "distribution", lambda name: Installed(None))


def tree(root: Path, **files: str) -> Path:
    """A source tree with these files of git; a / in a name is written as __."""
    for name, text in files.items():
        file = root / ".git" / name.replace("__", "/").replace("packed_refs", "packed-refs")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return root


def test_a_branch_a_packed_branch_and_a_bare_commit(tmp_path: Path) -> None:
    loose = tree(tmp_path / "loose", HEAD="ref: refs/heads/main\n", refs__heads__main=COMMIT + "\n")
    packed = tree(
        tmp_path / "packed", HEAD="ref: refs/heads/main\n", packed_refs=f"# pack\n{COMMIT} refs/heads/main\n"
    )
    detached = tree(tmp_path / "detached", HEAD=COMMIT)
    assert [build(root) for root in (loose, packed, detached)] == [COMMIT[:10]] * 3


@pytest.mark.parametrize("head", ["", "ref: refs/heads/none", "not a commit", "ref: "])
def test_what_is_no_commit_is_none(tmp_path: Path, head: str) -> None:
    assert build(tree(tmp_path, HEAD=head)) is None
    assert build(tmp_path / "no git at all") is None


@pytest.mark.parametrize(("note", "found"), [
    (f'{{"url": "x", "vcs_info": {{"vcs": "git", "commit_id": "{COMMIT}"}}}}', COMMIT[:10]),
    ('{"url": "file:///x", "dir_info": {}}', None), ("{", None), ("[]", None), ('{"vcs_info": 3}', None),
])  # fmt: skip
def test_what_pip_wrote_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, note: str, found: str | None
) -> None:
    monkeypatch.setattr(metadata, "distribution", lambda name: Installed(note))
    assert build(tmp_path) == found


def test_the_line_names_a_build_only_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("metronome_cli.cli.root.build", lambda: None)
    assert "build" not in version_line()
    monkeypatch.setattr("metronome_cli.cli.root.build", lambda: "0123456789")
    assert version_line().endswith(", build 0123456789)")
