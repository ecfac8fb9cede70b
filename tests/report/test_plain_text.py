"""A report as text: everything is said, at any width."""

import itertools
import re
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metronome_cli.report.conditions import RANDOM_WEIGHTS, VIRTUAL_CLOCK, flat, notes
from metronome_cli.report.html import page
from metronome_cli.report.plain_text import fill, render_table, render_text
from metronome_cli.report.tables.report_tables import tables
from metronome_cli.report.tables.table import Column, Table
from tests.report.builders import (
    capacity_report,
    every_report,
    forecast_report,
    nothing_report,
    point,
    policy_report,
)
from tests.report.test_pages import hostile_report


@pytest.mark.parametrize("width", [40, 60, 80, 120, 300])
@pytest.mark.parametrize("name", every_report())
def test_text_fits_and_starts_with_the_answer(name, width):
    given_report = every_report()[name]
    lines = render_text(given_report, width).split("\n")
    assert max(map(len, lines)) <= max(width, 46)
    assert given_report.summary.startswith(lines[0][:20])


def test_text_is_ascii_of_its_own_and_has_no_control_codes():
    for each in every_report().values():
        assert render_text(each, 100).isascii()
    shown = render_text(hostile_report(), 100)
    assert shown.replace("\n", "").isprintable()


def test_text_names_what_was_refused_and_what_was_random():
    shown = render_text(capacity_report(), 200)
    assert "1 audio file refused: noise.mp3 (no audio in it)" in shown
    assert RANDOM_WEIGHTS in shown
    assert VIRTUAL_CLOCK in shown


def test_a_partial_report_says_so():
    assert any("partial" in note for note in notes(nothing_report()))
    assert any(
        "engine broke" in note for note in notes(nothing_report(status="failed", error="engine broke"))
    )


def test_real_weights_on_the_real_clock_need_no_such_note():
    found = notes(capacity_report(weights="checkpoint", clock="real"))
    assert RANDOM_WEIGHTS not in found
    assert VIRTUAL_CLOCK not in found


def test_columns_without_room_go_below_their_row_those_that_matter_least_first():
    table = Table("T", [Column("a"), Column("b", 1), Column("c", 5)], [["1" * 10, "2" * 10, "3" * 10]])
    assert render_table(table, 25).split("\n")[2:] == [f"{'1' * 10}  {'3' * 10}", " " * 12 + f"b {'2' * 10}"]
    assert render_table(table, 80).split("\n")[2:] == [f"{'1' * 10}  {'2' * 10}  {'3' * 10}"]


def test_a_name_is_wrapped_before_a_column_goes():
    table = Table("T", [Column("run", text=True), Column("handshake p99", 1)], [["confirm", "12"]])
    assert render_table(table, 18).split("\n") == [
        "T",
        "run      handshake",
        "               p99",
        "confirm         12",
    ]


@given(
    st.lists(st.sampled_from(["", "run"]), min_size=3, max_size=3),
    st.lists(st.lists(st.sampled_from(["", " ", "12"]), min_size=3, max_size=3), max_size=3),
    st.booleans(),
)
def test_a_column_that_says_nothing_takes_no_room(names, rows, text):
    shown = render_table(Table("T", [Column(name, text=text) for name in names], rows), 30)
    assert Counter(shown.split()) == Counter(" ".join(["T", *names, *itertools.chain(*rows)]).split())


@pytest.mark.parametrize("width", [40, 60, 80, 100, 120])
@pytest.mark.parametrize("name", every_report())
def test_no_cell_is_lost_at_any_width(name, width):
    """Nothing that a reader needs vanishes on a narrow terminal."""
    for table in tables(every_report()[name]):
        shown = Counter(render_table(table, width))
        assert (
            Counter("".join("".join(row).replace(" ", "") for row in table.rows)) - Counter("-" * 99) <= shown
        )


@given(st.text(max_size=300), st.integers(10, 100))
def test_filled_text_is_no_wider_than_asked(value, width):
    assert all(len(line) <= width for line in fill(value, width).split("\n"))


def test_forecast_says_its_interval_and_never():
    shown = render_text(forecast_report(), 120)
    assert "2 min 28 s (2 min 11 s to 2 min 47 s)" in shown
    assert "never" in shown


def test_policy_runs_and_trials_have_their_tables():
    shown = render_text(policy_report(), 120)
    assert "unbounded, memory guard" in shown
    assert "14 of 20" in shown


def test_nested_settings_become_dotted_keys_of_bounded_number():
    assert flat({"a": {"b": [1, 2]}, "c": None, "d": [{"e": True}]}) == [
        ("a.b", "1, 2"),
        ("c", "-"),
        ("d[0].e", "yes"),
    ]
    assert len(flat({str(i): i for i in range(10_000)})) <= 400


@pytest.mark.parametrize("width", [80, 100])
def test_a_reason_that_has_no_room_beside_its_row_stands_below_it(width):
    why = "of 2 sessions: 1 fell_behind (29 frames of output behind), 1 connection_closed (the server broke off)"
    given_report = capacity_report()
    given_report.capacity.trials = [point(2, "fail", "single", reason=why), point(3, "pass", "exceed")]
    lines = render_text(given_report, width).split("\n")
    row = next(number for number, line in enumerate(lines) if line.split()[:2] == ["2", "fail"])
    below = lines[row + 1 : next(n for n, line in enumerate(lines) if line.split()[:2] == ["3", "pass"])]
    assert " ".join(line.strip() for line in below).endswith(why)
    assert all(line.startswith(" " * 10) for line in below)
    assert max(map(len, lines)) <= width
    assert "why" not in lines[row - 1]


def test_a_reason_with_room_stands_beside_its_row():
    shown = render_text(capacity_report(), 150)
    assert re.search(r"limited by +why\n", shown)
    assert re.search(r"25  fail .*deadline +p99 93 ms", shown)


def test_a_server_is_named_and_of_the_profile_only_its_beat():
    served = capacity_report(
        backend={"url": "ws://127.0.0.1:8998/api/chat", "protocol": "moshi"}, weights="unknown"
    )
    shown = render_text(served, 120)
    assert "ws://127.0.0.1:8998/api/chat, moshi" in shown
    assert "with the period of profile default, a frame every 80 ms" in shown
    assert "Built-in speech model" not in shown
    assert "<h1>metronome capacity: ws://127.0.0.1:8998/api/chat</h1>" in page.render_html(served)


def test_a_refused_recording_is_named_once():
    shown = render_text(capacity_report(), 200)
    assert shown.count("noise.mp3") == shown.count("refused") == 1


def test_a_policy_run_that_admitted_no_session_says_why():
    given_report = policy_report()
    given_report.policy_runs[
        2
    ].no_admission_reason = "no session is admitted: one session may need 182 blocks, and the pool has 96"
    assert "the pool has 96" in " ".join(render_text(given_report, 80).split())
