"""Which build of metronome this is: the commit that it was made from, where anything here knows."""

from __future__ import annotations

import json
import re
from importlib import metadata
from pathlib import Path

DISTRIBUTION = "metronome-cli"
_SHOWN = 10
_COMMIT = re.compile(r"[0-9a-f]{40,64}")


def build(root: Path | None = None) -> str | None:
    """The commit's first digits: of the source tree at `root`, else of what pip installed from a repository.

    None for a build that carries no commit, such as a released package, which its version names.
    """
    commit = _of_tree(Path(__file__).parents[2] if root is None else root) or _of_installation()
    return commit[:_SHOWN] if commit else None


def _of_tree(root: Path) -> str | None:
    """Read from git's own files, so that no git is needed."""
    git = root / ".git"
    try:
        head = (git / "HEAD").read_text(encoding="utf-8").strip()
        name = head.removeprefix("ref: ")
        if name == head:
            return _commit(head)
        if (git / name).is_file():
            return _commit((git / name).read_text(encoding="utf-8").strip())
        packed = (git / "packed-refs").read_text(encoding="utf-8").splitlines()
        return next((_commit(line.split()[0]) for line in packed if line.endswith(f" {name}")), None)
    except (OSError, UnicodeDecodeError):
        return None


def _of_installation() -> str | None:
    try:
        text = metadata.distribution(DISTRIBUTION).read_text("direct_url.json")
        return _commit(str(json.loads(text or "{}").get("vcs_info", {}).get("commit_id", "")))
    except (metadata.PackageNotFoundError, ValueError, AttributeError):
        return None


def _commit(text: str) -> str | None:
    return text if _COMMIT.fullmatch(text) else None
