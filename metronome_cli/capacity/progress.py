"""Progress of a phase: its share for a bar, and a text."""

from __future__ import annotations

from dataclasses import dataclass

from metronome_cli.core.formatting import duration


@dataclass(frozen=True, slots=True)
class PhaseProgress:
    """`share`: 0 to 1 of the phase, and more where it runs over. `words`: "step 210 of 480", "1 min 40 s of 10 min"."""

    share: float
    words: str = ""


def steps_done(steps: int, of: int) -> PhaseProgress:
    """So many of the steps that would settle it, if the rest are good."""
    return PhaseProgress(steps / max(1, of), f"step {steps:,} of {of:,}")


def time_done(now_s: float, of_s: float) -> PhaseProgress:
    """So much of a run whose length is known, on the run's own clock."""
    digits = 0 if of_s >= 20 else 1
    gone, whole = round(min(now_s, of_s), digits), round(of_s, digits)
    return PhaseProgress(now_s / of_s, f"{duration(gone)} of {duration(whole)}")
