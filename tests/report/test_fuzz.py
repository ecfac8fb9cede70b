"""Reports from elsewhere: any change to a report's JSON is refused by name, or rendered; never a traceback."""

import copy
import json
from contextlib import suppress

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from metronome_cli.core.errors import UsageError
from metronome_cli.core.files import write_text
from metronome_cli.core.strict_json import dumps
from metronome_cli.report.compare.comparison import ComparisonPlan, compare
from metronome_cli.report.event_log import EVENTS_FILE, head
from metronome_cli.report.event_replay import CONDITIONS
from metronome_cli.report.html.page import render_html
from metronome_cli.report.junit import render
from metronome_cli.report.plain_text import render_text
from metronome_cli.report.rebuild import rebuild
from metronome_cli.report.report_file import parse_report, report_json
from tests.report.builders import (
    capacity_report,
    collapse_report,
    forecast_report,
    point,
    policy_report,
    probe_report,
)

ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from(
        [0, -1, 1, 10**30, -1e300, 1e-300, 1e300, "", "\x00\x1b<b>", [], {}, [[]], {"a": {}}, [None]]
    ),
    st.text(max_size=20),
    st.floats(allow_nan=False, allow_infinity=False),
)
SOURCES = [
    json.loads(report_json(make()))
    for make in (capacity_report, collapse_report, policy_report, forecast_report, probe_report)
]


def paths(value, prefix=()):
    """Every place in a JSON value; only the first two of a list, since the others are alike."""
    if prefix:
        yield prefix
    items = (
        value.items() if isinstance(value, dict) else enumerate(value[:2]) if isinstance(value, list) else ()
    )
    for key, item in items:
        yield from paths(item, (*prefix, key))


PLACES = [(index, path) for index, source in enumerate(SOURCES) for path in paths(source)]


def changed(place, value):
    index, path = place
    odd = copy.deepcopy(SOURCES[index])
    node = odd
    for key in path[:-1]:
        node = node[key]
    node[path[-1]] = value
    return odd


def accepted(odd):
    with suppress(UsageError):
        return parse_report(json.loads(dumps(odd)), "here")
    return None


@settings(max_examples=300)
@given(st.sampled_from(PLACES), ODD, st.integers(30, 200))
def test_text_and_junit_render_whatever_is_accepted(place, value, width):
    report = accepted(changed(place, value))
    if report is not None:
        assert render_text(report, width)
        assert render(report)


@pytest.mark.slow
@settings(max_examples=25)
@given(st.sampled_from(PLACES), ODD)
def test_the_page_renders_whatever_is_accepted(place, value):
    report = accepted(changed(place, value))
    if report is not None:
        assert "</html>" in render_html(report)


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(PLACES), ODD)
def test_comparison_takes_whatever_is_accepted(tmp_path, place, value):
    report = accepted(changed(place, value))
    if report is None:
        return
    base = write_text(tmp_path / "base.json", report_json(accepted(SOURCES[place[0]])))
    new = write_text(tmp_path / "new.json", report_json(report))
    assert compare(ComparisonPlan(base, new, allow_mismatch=True)).exit_code == 0


EVENTS = st.fixed_dictionaries(
    {
        "t": ODD | st.just(1.0),
        "kind": st.sampled_from(
            [
                "run_started",
                "audio",
                "phase",
                "window",
                "trial",
                "policy_run",
                "collapse",
                "backend_started",
                "repeats",
            ]
        ),
        "data": ODD
        | st.just(point().model_dump(mode="json"))
        | st.just({"name": "next", "phase": "next", "t_s": 1.0}),
    }
)


@settings(max_examples=400, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(EVENTS, max_size=5), st.binary(max_size=30), st.sampled_from(CONDITIONS), ODD | st.just(...))
def test_events_are_rebuilt_or_refused(tmp_path, events, tail, key, value):
    conditions = {key: SOURCES[0][key] for key in CONDITIONS}
    conditions |= {} if value is ... else {key: value}
    lines = [dumps(head()), dumps({"t": 0.0, "kind": "run_started", "data": conditions}), *map(dumps, events)]
    file = tmp_path / EVENTS_FILE
    file.write_bytes("\n".join(lines).encode() + b"\n" + tail)
    with suppress(UsageError):
        assert render_text(rebuild(file), 80)
