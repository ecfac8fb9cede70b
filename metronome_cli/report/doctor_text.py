"""A check-up as text and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from metronome_cli.report.plain_text import fill

if TYPE_CHECKING:
    from metronome_cli.results.checkup_result import Checkup, CheckupFinding

DOCTOR_SCHEMA = "metronome.doctor/1"
_MARKS = {"ok": "ok", "note": "note", "wrong": "WRONG", "missing": "MISSING"}


def render_checkup(checkup: Checkup, width: int) -> str:
    """A line a finding, its fix below it, and a sentence at the end."""
    width = max(30, width)
    label = max(len(finding.area) for finding in checkup.findings) + 2
    lines = [line for finding in checkup.findings for line in _lines(finding, label, width)]
    return "\n".join([*lines, "", fill(verdict(checkup.findings), width)])


def _lines(finding: CheckupFinding, label: int, width: int) -> list[str]:
    mark = _MARKS[finding.state].ljust(9)
    indent = " " * (label + 9) if width >= 60 else "  "
    lines = [fill(mark + finding.area.ljust(label) + finding.said, width, indent)]
    if finding.fix:
        lines.append(fill(f"{indent}fix: {finding.fix}", width, indent))
    return lines


def verdict(findings: Sequence[CheckupFinding]) -> str:
    """Return the conclusion in one sentence."""
    missing, wrong, notes = (
        ", ".join(finding.area for finding in findings if finding.state == state)
        for state in ("missing", "wrong", "note")
    )
    if missing or wrong:
        said = [f"Needed and missing: {missing}."] if missing else []
        return " ".join([*said, *([f"To be put right: {wrong}."] if wrong else [])])
    if notes:
        return f"Everything needed is here; worth a look: {notes}."
    return "Everything is here, and the machine is quiet enough to measure."


def checkup_json(checkup: Checkup) -> dict[str, Any]:
    """The same, with the figures; no host name, no user name, no path."""
    return {
        "schema": DOCTOR_SCHEMA,
        "exit_code": int(checkup.exit_code),
        "answer": verdict(checkup.findings),
        "findings": [asdict(finding) for finding in checkup.findings],
        "environment": dict(checkup.environment),
        "wakeups": asdict(checkup.wakeups),
        "load": asdict(checkup.load) | {"free_cores": checkup.load.free_cores},
    }
