"""The part of a report that names the recordings: those that were used, and those that were refused."""

from __future__ import annotations

from pydantic import Field

from metronome_cli.results.part import ReportPart


class AudioFile(ReportPart):
    """An audio file that was used."""

    file: str
    """Its name, without the directory."""
    seconds: float | None = None
    """Length of what was decoded."""
    notes: list[str] = Field(default_factory=list)
    """What is odd about it."""


class RefusedAudioFile(ReportPart):
    """An audio file that was left out."""

    file: str
    """Its name, without the directory."""
    reason: str
    """Why."""


class AudioFiles(ReportPart):
    """What the sessions spoke."""

    files_used: list[AudioFile] = Field(default_factory=list)
    """Files that were used."""
    files_refused: list[RefusedAudioFile] = Field(default_factory=list)
    """Files that were left out."""
