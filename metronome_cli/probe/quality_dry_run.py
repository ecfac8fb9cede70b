"""`probe quality --dry-run`: what would be measured, without loading a model.

A step is one forward pass: of the text in blocks of text positions, of free decoding one per token. Its time is
not known before the model is there, so the plan is given in tokens per variant.
"""

from __future__ import annotations

from dataclasses import dataclass

from metronome_cli.core.formatting import number
from metronome_cli.core.strict_json import dumps
from metronome_cli.probe.quality.material import bundled_text, read_text
from metronome_cli.probe.quality.sweep import SINKS, WINDOWS, grid
from metronome_cli.probe.quality_report import QualityProbePlan

SCHEMA = "metronome.plan/1"


@dataclass(frozen=True, slots=True)
class QualityDryRun:
    """Counts per variant; 0 of a regime leaves it out. `text_words` of None: a speech model reads no text."""

    model: str
    variants: tuple[str, ...]
    text: str | None
    text_words: int | None
    text_sessions: int
    text_tokens: int
    questions: int
    free_run_tokens: int

    def as_json(self) -> str:
        """One object."""
        return dumps(
            {"schema": SCHEMA, "does": "probe quality", **{k: getattr(self, k) for k in self.__slots__}}
        )

    def as_text(self) -> str:
        """For people."""
        most = f"at most {self.text_tokens:,} tokens each" if self.text_tokens else "to its end"
        rows = [
            ("model", self.model),
            ("variants", f"{len(self.variants)}: {', '.join(self.variants)}"),
            ("text", f"{self.text}, {number(self.text_words)} words, {self.text_sessions} sessions, {most}"),
            ("questions", f"{self.questions:,} per variant"),
            ("free run", f"{self.free_run_tokens:,} tokens per variant"),
            ("shorter", "a variant that is clearly worse reads no further text; --quick cuts every default"),
        ]
        shown = [row for row in rows if row[0] != "text" or self.text is not None]
        width = max(len(name) for name, _ in shown)
        return (
            "\n".join(f"{name:<{width}}  {text}" for name, text in shown)
            + "\n\nDry run: no model was loaded."
        )


def outline_quality(run: QualityProbePlan) -> QualityDryRun:
    """What `run_quality(run)` would measure. Raises UsageError for a text that cannot be read."""
    asked = run.asked
    text = None if run.model is None else read_text(asked.text) if asked.text else bundled_text()
    return QualityDryRun(
        model=run.model or run.profile.name,
        variants=tuple(
            str(one) for one in grid(asked.windows or WINDOWS, asked.sinks or SINKS, run.positions)
        ),
        text=text.name if text else None,
        text_words=len(text.text.split()) if text else None,
        text_sessions=asked.text_sessions,
        text_tokens=asked.text_tokens,
        questions=asked.questions_per_session * asked.sessions,
        free_run_tokens=asked.free_run_tokens if text else 0,
    )
