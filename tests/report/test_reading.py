"""Strict JSON, the model's round trip, the shipped schema, and what a reader refuses."""

import json
import math
import re
from contextlib import suppress
from pathlib import Path

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metronome_cli.core.errors import MetronomeError, UsageError
from metronome_cli.core.files import write_text
from metronome_cli.core.strict_json import BadJson, dumps, loads
from metronome_cli.measure.environment import environment
from metronome_cli.report.report_file import load_report, parse_report, report_json, write_report
from metronome_cli.results import schema
from metronome_cli.results.measured import LatencyMs
from metronome_cli.results.run_report import Report
from tests.report.builders import capacity_report, every_report, point, report

VALIDATOR = jsonschema.Draft202012Validator(schema.report_schema())
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


# -- strict JSON ------------------------------------------------------------------------------------


@given(JSON)
def test_what_is_written_is_strict_and_reads_back_without_nan(value):
    text = dumps(value)
    assert "\n" not in text
    back = loads(text.encode())
    assert dumps(back) == text


@pytest.mark.parametrize(
    "data",
    [
        b"", b"{", b"nul", b"NaN", b'{"a": Infinity}', b"1e999", b'{"a": 1, "a": 2}', b"\xff\xfe", b"[1] x",
        b"[" * 100 + b"]" * 100, b"[" * 200_000, b'{"a":' * 5000, b"9" * 5000,
    ],
)  # fmt: skip
def test_anything_else_is_refused_with_a_reason(data):
    with pytest.raises(BadJson) as caught:
        loads(data)
    assert "sys." not in str(caught.value)  # nothing that is Python's alone
    assert str(caught.value)


@given(st.binary(max_size=200))
def test_bytes_are_json_or_refused(data):
    with suppress(BadJson):
        loads(data)


# -- the model and its schema -----------------------------------------------------------------------


@pytest.mark.parametrize("name", every_report())
def test_a_report_survives_the_round_trip_and_fits_the_schema(name, tmp_path):
    given_report = every_report()[name]
    file, page = write_report(given_report, tmp_path / "run")
    assert load_report(file) == given_report
    assert load_report(tmp_path / "run") == given_report
    assert page.read_text().startswith("<!doctype html>")
    VALIDATOR.validate(json.loads(file.read_text()))


def test_no_data_is_null_and_times_are_utc():
    given_report = report(capacity=None)
    text = report_json(given_report)
    assert '"started_at": "2026-07-02T12:00:00Z"' in text
    odd = capacity_report()
    odd.capacity.trials[0].latency_ms = LatencyMs(p50=math.nan, max=math.inf)
    assert json.loads(report_json(odd))["capacity"]["trials"][0]["latency_ms"]["max"] is None


def test_the_shipped_schema_and_the_page_are_those_of_the_model():
    assert schema.SCHEMA_FILE.read_text(encoding="utf-8") == schema.schema_text(), "run python -m ...schema"
    page = schema.SCHEMA_FILE.parent.parent.parent / "docs" / "report.md"
    assert page.read_text(encoding="utf-8") == schema.reference()


def test_every_field_has_a_meaning_and_every_object_is_closed():
    assert not re.findall(r"^\| `\w+` \| .* \|  \|$", schema.reference(), re.MULTILINE)
    shapes = [schema.report_schema(), *schema.report_schema()["$defs"].values()]
    assert all(shape["additionalProperties"] is False for shape in shapes if shape["type"] == "object")


@pytest.mark.parametrize(
    "change", [{"extra": 1}, {"verdict": "maybe"}, {"exit_code": "0"}, {"schema": "x/1"}]
)
def test_schema_and_reader_refuse_the_same(change):
    value = {**json.loads(report_json(capacity_report())), **change}
    assert not VALIDATOR.is_valid(value)
    with pytest.raises(UsageError):
        parse_report(value, "here")


def test_a_report_of_an_older_version_lacks_what_was_added_since_and_still_reads():
    value = json.loads(report_json(capacity_report()))
    del value["repeats"], value["load_generator"], value["capacity"]["resolution_sessions"]
    VALIDATOR.validate(value)
    assert parse_report(value, "here").repeats == []


# -- what a reader says -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "not JSON"),
        ("[]", "no schema"),
        ('{"schema": "metronome.report/9"}', "metronome.report/9"),
        ('{"schema": "metronome.report/2"}', "command"),
        ('{"schema": "metronome.report/2", "a": NaN}', "NaN"),
    ],
)
def test_a_malformed_report_is_refused_with_file_and_reason(tmp_path, text, said):
    file = tmp_path / "report.json"
    file.write_text(text)
    with pytest.raises(UsageError) as caught:
        load_report(file)
    assert str(file) in caught.value.message
    assert said in caught.value.message


def test_a_wrong_field_is_named(tmp_path):
    value = json.loads(report_json(capacity_report()))
    value["capacity"]["trials"][1]["frames"] = "many"
    with pytest.raises(UsageError, match=r"capacity\.trials\.1\.frames"):
        parse_report(value, "here")


def test_a_missing_file_is_a_usage_error(tmp_path):
    with pytest.raises(UsageError, match="No such file"):
        load_report(tmp_path / "none.json")


# -- writing ----------------------------------------------------------------------------------------


def test_a_file_is_whole_or_not_there(tmp_path, monkeypatch):
    file = write_text(tmp_path / "a.txt", "before")
    monkeypatch.setattr("os.replace", _no_space)
    with pytest.raises(MetronomeError, match="No space"):
        write_text(file, "after")
    assert file.read_text() == "before"
    assert [item.name for item in tmp_path.iterdir()] == ["a.txt"]


def _no_space(*args):
    raise OSError(28, "No space left on device")


def test_a_directory_that_cannot_be_made_is_a_designed_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(MetronomeError, match="cannot write"):
        write_report(report(), tmp_path / "file" / "run")


# -- the environment --------------------------------------------------------------------------------


def test_the_environment_names_no_host_user_or_path():
    import getpass
    import socket

    text = dumps(environment(devices=False))
    assert socket.gethostname() not in text
    assert str(Path.home()) not in text
    assert str(Path.cwd()) not in text
    assert not re.search(rf"\b{re.escape(getpass.getuser())}\b", text)


def test_the_environment_has_what_a_comparison_needs():
    found = environment(devices=False)
    assert found["cores"] > 0
    assert found["memory_bytes"] > 2**20
    assert found["packages"]["numpy"]
    assert VALIDATOR.is_valid(json.loads(report_json(report(environment=found))))


def test_points_with_strange_numbers_are_refused():
    with pytest.raises(ValueError, match="greater than or equal to 0"):
        point(sessions=-1)
    with pytest.raises(ValueError, match="extra"):
        Report.model_validate({**json.loads(report_json(report())), "extra": 1})
