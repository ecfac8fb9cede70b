"""JUnit XML: one case an objective, an open verdict is an error, any text is well-formed."""

from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metronome_cli.cli.output import OutputFiles
from metronome_cli.report.junit import render, xml_text
from tests.report.builders import (
    capacity_report,
    every_report,
    forecast_report,
    nothing_report,
    objective,
    report,
)


def suite_of(given_report):
    return ET.fromstring(render(given_report).encode()).find("testsuite")


@pytest.mark.parametrize(
    ("verdict", "kind"), [("pass", None), ("fail", "failure"), ("inconclusive", "error")]
)
def test_a_verdict_becomes_what_a_gate_needs(verdict, kind):
    suite = suite_of(report(objectives=[objective(verdict=verdict, reason="why")]))
    (case,) = suite.findall("testcase")
    assert case.get("name") == "p99<80ms"
    assert case.get("classname") == "metronome.capacity.default"
    assert [child.tag for child in case] == ([kind] if kind else [])
    assert (suite.get("failures"), suite.get("errors")) == (
        str(int(kind == "failure")),
        str(int(kind == "error")),
    )
    if kind:
        assert "61 ms" in case[0].get("message")


@pytest.mark.parametrize("name", every_report())
def test_counts_and_times_add_up(name):
    given_report = every_report()[name]
    suite = suite_of(given_report)
    cases = suite.findall("testcase")
    assert int(suite.get("tests")) == len(cases) >= 1
    assert sum(float(case.get("time")) for case in cases) == pytest.approx(given_report.duration_s, abs=0.01)


def test_a_run_that_did_not_end_never_passes():
    suite = suite_of(nothing_report())
    assert suite.get("errors") == "1"
    failed = suite_of(capacity_report(status="failed", error="engine broke"))
    assert failed.find("testcase/error[@message='engine broke']") is not None


def test_a_command_that_judges_nothing_is_one_case():
    assert [case.get("name") for case in suite_of(forecast_report()).findall("testcase")] == ["answer"]


@given(st.text())
def test_any_text_makes_well_formed_xml(text):
    given_report = report(summary=text, objectives=[objective(text, "fail", reason=text)])
    assert suite_of(given_report).find("testcase").get("name").strip() is not None
    ET.fromstring(f"<a>{xml_text(text).replace('&', '').replace('<', '')}</a>")


def test_the_file_is_written(tmp_path):
    file = tmp_path / "new" / "junit.xml"
    OutputFiles(None, {"junit": file}).write(capacity_report())
    assert file.read_text(encoding="utf-8").startswith("<?xml")
