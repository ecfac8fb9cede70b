"""What `probe quality` was asked for, as the command line reads it. Imports nothing heavy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class QualityOptions:
    """Options that no profile has. Empty `windows` or `sinks`: the sweep's own; `streams`: sessions that read
    the text, each a part of its own; 0 of `stream`: all that there is for each; 0 of `stretch`: picked by its length.
    `margin` is a share of perplexity."""

    text: Path | None = None
    questions: Path | None = None
    transcripts: Path | None = None
    windows: tuple[int, ...] = ()
    sinks: tuple[int, ...] = ()
    text_tokens: int = 0
    text_sessions: int = 1
    age_bucket: int = 0
    questions_per_session: int = 8
    sessions: int = 4
    free_run_tokens: int = 512
    perplexity_margin: float = 0.05

    def quick(self) -> QualityOptions:
        """The same, smaller: what was left at its default is cut to a few minutes on a processor."""
        return replace(
            self, **{key: value for key, value in QUICK.items() if getattr(self, key) == _DEFAULTS[key]}
        )


_DEFAULTS: Mapping[str, Any] = {field.name: field.default for field in fields(QualityOptions)}
QUICK: Mapping[str, Any] = {
    "windows": (256,), "sinks": (0, 4), "text_tokens": 1500, "questions_per_session": 2, "sessions": 2,
    "free_run_tokens": 128,
}  # fmt: skip
