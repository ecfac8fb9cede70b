"""A report as JUnit XML, as CI systems read it: one suite per command, one case per objective.

An objective that failed is a failure; one that is inconclusive is an error, since a gate must not pass on
no evidence; a run that failed or was stopped adds an error of its own. A command that judges nothing is
one case, passed. All objectives of a run are measured together, so its duration is shared evenly among
the cases.
"""

from __future__ import annotations

from xml.etree import ElementTree as ET

from metronome_cli.core.formatting import format_measured
from metronome_cli.report.conditions import notes
from metronome_cli.results.measured import ObjectiveResult
from metronome_cli.results.run_report import Report


def render(report: Report) -> str:
    """The XML document."""
    suite = ET.Element("testsuite")
    _properties(suite, report)
    for objective in report.objectives:
        _case(suite, report, objective)
    if report.status != "complete":
        _problem(_new_case(suite, report, "run"), "error", report.error or report.status, report.summary)
    elif not report.objectives:
        _judge(_new_case(suite, report, "answer"), report.verdict, report.summary, report.summary)
    ET.SubElement(suite, "system-out").text = xml_text("\n".join([report.summary, *notes(report)]))
    _totals(suite, report)
    suites = ET.Element("testsuites", {"name": "metronome"})
    suites.append(suite)
    ET.indent(suites)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ET.tostring(suites, encoding="unicode") + "\n"


def _properties(suite: ET.Element, report: Report) -> None:
    capacity = report.capacity
    facts = {
        "summary": report.summary,
        "verdict": report.verdict,
        "safe_sessions": capacity.safe_sessions if capacity else None,
        "limited_by": capacity.limited_by if capacity else None,
        "clock": report.clock,
        "weights": report.weights,
        "version": report.version,
    }
    parent = ET.SubElement(suite, "properties")
    for name, value in facts.items():
        if value is not None:
            ET.SubElement(parent, "property", {"name": name, "value": xml_text(str(value))})


def _new_case(suite: ET.Element, report: Report, name: str) -> ET.Element:
    profile = (report.profile or {}).get("name", "run")
    attributes = {"classname": xml_text(f"metronome.{report.command}.{profile}"), "name": xml_text(name)}
    return ET.SubElement(suite, "testcase", attributes)


def _case(suite: ET.Element, report: Report, result: ObjectiveResult) -> None:
    found, limit = format_measured(result.measured, result.unit), format_measured(result.limit, result.unit)
    message = f"{result.objective}: measured {found}, limit {limit}"
    _judge(_new_case(suite, report, result.objective), result.verdict, message, result.reason)


def _judge(case: ET.Element, verdict: str | None, message: str, detail: str) -> None:
    kind = {"fail": "failure", "inconclusive": "error"}.get(verdict or "pass")
    if kind is not None:
        _problem(case, kind, message, detail)


def _problem(case: ET.Element, kind: str, message: str, detail: str) -> None:
    ET.SubElement(case, kind, {"message": xml_text(message), "type": kind}).text = xml_text(detail)


def _totals(suite: ET.Element, report: Report) -> None:
    cases = suite.findall("testcase")
    for case in cases:
        case.set("time", f"{report.duration_s / len(cases):.3f}")
    counts = {
        "name": f"metronome {report.command}",
        "tests": len(cases),
        "failures": len(suite.findall("testcase/failure")),
        "errors": len(suite.findall("testcase/error")),
        "skipped": 0,
        "time": f"{report.duration_s:.3f}",
        "timestamp": report.started_at.replace(tzinfo=None).isoformat(timespec="seconds"),
    }
    for name, value in counts.items():
        suite.set(name, xml_text(str(value)))


def xml_text(text: str) -> str:
    """Text without the characters that XML 1.0 has no way to write."""
    return "".join(char if _is_xml(ord(char)) else "?" for char in text)


def _is_xml(code: int) -> bool:
    return code in (9, 10, 13) or 0x20 <= code <= 0xD7FF or 0xE000 <= code <= 0xFFFD or code >= 0x10000
