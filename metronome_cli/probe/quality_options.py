"""What `probe quality` was asked for, as the command line reads it. Imports nothing heavy."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


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
