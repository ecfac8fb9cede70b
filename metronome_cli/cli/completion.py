"""What a shell offers while a value is typed: names of profiles, policies, the words a setting may be."""

from __future__ import annotations

import os
import re
from collections.abc import Callable

from metronome_cli.config.settings_table import Setting

Completer = Callable[[str], list[str]]
_SIGNS = re.compile(r"[()<>&|;$*?!]")
_WORDS: dict[str, tuple[str, ...]] = {
    "policy": ("unbounded", "window(1024,16)", "ring(3000)", "recycle(1024)"),
    "device": ("auto", "cpu", "cuda"),
    "weights": ("random",),
    "slo": ("p99<80ms", "misses<1%", "empty<1%"),
}


def completer(row: Setting) -> Completer | None:
    """The completer of a setting; None where only the user knows, and for files, which shells complete."""
    if row.key == "profile":
        return complete_profile
    words = row.choices or _WORDS.get(row.key)
    return complete_words(*words) if words else None


def complete_words(*words: str) -> Completer:
    """Those of `words` that go on from what was typed; for bash, which would read the signs in them, escaped."""

    def complete(incomplete: str) -> list[str]:
        found = [word for word in words if word.startswith(incomplete)]
        if os.environ.get("_METRONOME_COMPLETE") == "complete_bash":
            return [_SIGNS.sub(r"\\\g<0>", word) for word in found]
        return found

    return complete


def complete_profile(incomplete: str) -> list[str]:
    """Shipped profiles; where none fits the shell offers files."""
    from metronome_cli.config.profile_files import profile_names

    return [name for name in profile_names() if name.startswith(incomplete)]
