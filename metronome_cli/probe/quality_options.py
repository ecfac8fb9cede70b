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
    stream: int = 0
    streams: int = 1
    stretch: int = 0
    turns: int = 8
    sessions: int = 4
    spoken: int = 512
    margin: float = 0.05
