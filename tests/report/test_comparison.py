"""Comparisons: what may be compared, which change is a change, which gate is reached, and how it is told."""

import json
import statistics

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import stats

from metronome_cli.core.errors import UsageError
from metronome_cli.core.files import write_text
from metronome_cli.report.compare.compared_metrics import METRICS, common_sessions, find_metric, judged
from metronome_cli.report.compare.comparison import ComparisonPlan, compare, load_side
from metronome_cli.report.compare.comparison_text import markdown, render_compare_text, render_markdown
from metronome_cli.report.compare.gates import Gate
from metronome_cli.report.compare.mismatch import mismatches
from metronome_cli.report.compare.noise import interval
from metronome_cli.report.report_file import report_json
from tests.report.builders import (
    ENVIRONMENT,
    PROFILE,
    capacity_report,
    forecast_report,
    objective,
    point,
    report,
)


def with_p99(p99, safe=24, **changes):
    """A capacity report whose judged points have that p99."""
    found = capacity_report(safe, **changes)
    for each in found.capacity.trials:
        each.latency_ms.p99 = p99
    return found


def saved(directory, *reports):
    for number, each in enumerate(reports):
        write_text(directory / f"{number}.json", report_json(each))
    return directory


def compared(tmp_path, base, new, *gates, **options):
    sides = (saved(tmp_path / "base", *base), saved(tmp_path / "new", *new))
    return compare(ComparisonPlan(*sides, tuple(Gate.parse(text) for text in gates), **options))


def changed(comparison, metric):
    return next(change for change in comparison.changes if change.metric == metric)


# -- gates ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "limit", "relative"),
    [
        ("p99:5%", 0.05, True),
        ("p99:+3ms", 3.0, False),
        ("max:1.5s", 1500.0, False),
        ("safe_sessions:-1", 1.0, False),
        ("safe_sessions:-10%", 0.1, True),
        ("misses:0.1%", 0.001, False),
        ("miss_streak:2", 2.0, False),
        ("fill_time:-10s", 10.0, False),
        ("stage.decode:5%", 0.05, True),
    ],
)
def test_gates_parse(text, limit, relative):
    gate = Gate.parse(text)
    assert gate.limit == pytest.approx(limit)
    assert gate.relative == relative


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("p99", "no change"), ("p99:", "no change"), ("p99:0%", "no change"), ("p99:fast", "no change"),
        ("q98:5%", "unknown metric"), ("p0:5%", "unknown metric"),
        ("safe_session:-1", "unknown metric"), ("", "unknown metric"),
        ("safe_sessions:1", "worse when it falls"), ("p99:-5%", "worse when it rises"),
        ("p99:5", "bare number"), ("miss_streak:2ms", "does not change by ms"), ("p99:5parsecs", "parsecs"),
    ],
)  # fmt: skip
def test_gates_that_make_no_sense_are_refused(text, said):
    with pytest.raises(UsageError, match=said) as caught:
        Gate.parse(text)
    assert caught.value.hint


def test_a_misspelt_metric_gets_the_nearest():
    with pytest.raises(UsageError) as caught:
        Gate.parse("safe_session:-1")
    assert "did you mean safe_sessions?" in caught.value.hint


@given(st.text(max_size=30))
def test_any_text_is_a_gate_or_a_usage_error(text):
    try:
        gate = Gate.parse(text)
    except UsageError:
        return
    assert gate.limit > 0


# -- noise ------------------------------------------------------------------------------------------

VALUES = st.lists(st.floats(1, 1000), min_size=1, max_size=6)


@given(VALUES, VALUES)
def test_the_interval_holds_the_change_and_is_known_with_repeats_only(base, new):
    found = interval(base, new)
    assert (found is None) == (len(base) == 1 and len(new) == 1)
    if found is not None:
        change = statistics.fmean(new) - statistics.fmean(base)
        assert found[0] <= change + 1e-9
        assert found[1] >= change - 1e-9


@given(
    st.lists(st.floats(1, 1000), min_size=2, max_size=6), st.lists(st.floats(1, 1000), min_size=2, max_size=6)
)
def test_the_interval_is_welchs(base, new):
    assume(min(max(base) - min(base), max(new) - min(new)) > 1e-3)
    reference = stats.ttest_ind(new, base, equal_var=False).confidence_interval(0.95)
    assert interval(base, new) == pytest.approx((reference.low, reference.high), rel=1e-6, abs=1e-6)


def test_one_report_is_taken_to_be_as_noisy_as_the_other_side():
    assert interval([10.0], [20.0, 21.0, 22.0]) == pytest.approx(
        (11 - 4.302653 * (4 / 3) ** 0.5, 11 + 4.302653 * (4 / 3) ** 0.5), abs=1e-4
    )


# -- what is compared -------------------------------------------------------------------------------


def test_latency_is_compared_at_a_number_that_every_report_judged():
    assert common_sessions([capacity_report(24), capacity_report(24)]) == 24
    assert common_sessions([capacity_report(24), capacity_report(25)]) == 25
    assert common_sessions([capacity_report(24), capacity_report(40)]) is None
    assert 20 not in judged(capacity_report(24))


def test_every_metric_reads_from_reports_without_its_data():
    for metric in METRICS.values():
        metric.read(report(), None)
        metric.read(capacity_report(), point())
        metric.read(forecast_report(), None)
    assert find_metric("stage.") is None


# -- gates on reports -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rise", "verdict", "code"), [(1.04, "pass", 0), (1.06, "fail", 3), (0.5, "pass", 0)]
)
def test_a_gate_fails_when_the_change_reaches_it(tmp_path, rise, verdict, code):
    found = compared(tmp_path, [with_p99(60.0)], [with_p99(60.0 * rise)], "p99:5%")
    assert (found.verdict, found.exit_code) == (verdict, code)
    assert changed(found, "p99").relative == pytest.approx(rise - 1)
    assert any("noise is not known" in note for note in found.notes)


@pytest.mark.parametrize(("safe", "verdict"), [(24, "pass"), (23, "fail"), (30, "pass")])
def test_losing_one_session_reaches_minus_one(tmp_path, safe, verdict):
    found = compared(tmp_path, [capacity_report(24)], [capacity_report(safe)], "safe_sessions:-1")
    assert found.verdict == verdict


def test_a_change_within_the_noise_is_inconclusive(tmp_path):
    base = [with_p99(p) for p in (50.0, 60.0, 70.0)]
    new = [with_p99(p) for p in (55.0, 66.0, 77.0)]
    found = compared(tmp_path, base, new, "p99:5%")
    assert (found.verdict, found.exit_code) == ("inconclusive", 4)
    change = changed(found, "p99")
    assert change.low < 0 < change.high
    assert "noise" in change.reason


def test_a_change_beyond_the_noise_fails(tmp_path):
    base = [with_p99(p) for p in (60.0, 60.5, 61.0)]
    new = [with_p99(p) for p in (66.0, 66.5, 67.0)]
    found = compared(tmp_path, base, new, "p99:5%")
    assert found.verdict == "fail"
    assert changed(found, "p99").low > 0


def test_no_data_never_passes(tmp_path):
    found = compared(tmp_path, [capacity_report(24)], [capacity_report(40)], "p99:5%")
    assert (found.verdict, found.sessions) == ("inconclusive", None)
    assert changed(found, "p99").reason == "no number of sessions was judged in every report"
    assert found.answer == "Inconclusive: p99 (gate 5%): no number of sessions was judged in every report."
    assert any("same --sessions" in note for note in found.notes)


def test_an_inconclusive_answer_says_why(tmp_path):
    base, new = [with_p99(p) for p in (50.0, 60.0, 70.0)], [with_p99(p) for p in (56.0, 66.0, 76.0)]
    assert compared(tmp_path / "a", base, new, "p99:5%").answer == (
        "Inconclusive: p99 60.0 ms to 66.0 ms (gate 5%): reaches the limit, but not beyond the noise of the repeats."
    )
    unsettled = capacity_report()
    unsettled.capacity.safe_sessions = None
    found = compared(tmp_path / "b", [capacity_report()], [unsettled], "safe_sessions:-1", "fill_time:-5%")
    assert found.answer == (
        "Inconclusive: safe_sessions (gate -1): no data on new; fill_time (gate -5%): no data on either side."
    )


def failing(**changes):
    """A run in which one session fails already."""
    found = capacity_report(verdict="fail", exit_code=3, **changes)
    found.capacity.safe_sessions = None
    return found


@pytest.mark.parametrize("gate", ["safe_sessions:-1", "p99:5%", "max:50%"])
@pytest.mark.parametrize("failures", [1, 2, 3])
def test_a_gate_never_passes_if_more_of_the_new_runs_fail(tmp_path, gate, failures):
    new = [failing() for _ in range(failures)] + [capacity_report() for _ in range(3 - failures)]
    found = compared(tmp_path, [capacity_report() for _ in range(3)], new, gate)
    assert (found.verdict, found.exit_code) == ("fail", 3)
    assert f"{failures} of 3 runs failed on new, 0 of 3 on base" in found.answer


def test_a_failed_run_counts_as_0_sessions(tmp_path):
    found = compared(tmp_path, [capacity_report(24)], [capacity_report(24), failing(), failing()])
    assert changed(found, "safe_sessions").new == pytest.approx(24 / 3)
    assert changed(found, "failed_runs").new == pytest.approx(2 / 3)


def test_a_run_that_ended_with_an_error_fails_the_gate_and_a_failing_base_excuses_it(tmp_path):
    broken = capacity_report(status="failed", verdict="inconclusive", exit_code=1)
    assert compared(tmp_path, [capacity_report()], [broken], "p99:5%").verdict == "fail"
    assert compared(tmp_path / "b", [failing()], [failing()], "p99:5%").verdict == "pass"


def test_a_gate_with_data_in_some_reports_only_is_inconclusive(tmp_path):
    unsettled = capacity_report(verdict="inconclusive", exit_code=4)
    unsettled.capacity.safe_sessions = None
    found = compared(tmp_path, [capacity_report()], [capacity_report(), unsettled], "safe_sessions:-1")
    assert (found.verdict, changed(found, "safe_sessions").reason) == (
        "inconclusive",
        "1 report without data",
    )


@pytest.mark.parametrize(("value", "verdict"), [(60.0, "pass"), (70.0, "fail")])
def test_the_metric_of_every_objective_can_be_gated(tmp_path, value, verdict):
    base, new = capacity_report(), capacity_report()
    for each, measured in ((base, 60.0), (new, value)):
        for trial in each.capacity.trials:
            trial.objectives.append(objective("p95<80ms", measured=measured))
            trial.objectives.append(objective("p99.95<90ms", measured=measured))
    for gate in ("p95:5%", "p99.95:5ms"):
        assert compared(tmp_path / gate[:6], [base], [new], gate).verdict == verdict


def test_a_rise_from_nothing_reaches_any_relative_gate(tmp_path):
    base, new = capacity_report(), capacity_report()
    for each in new.capacity.trials:
        each.miss_streak = 3
    assert compared(tmp_path, [base], [new], "miss_streak:50%").verdict == "fail"
    assert compared(tmp_path / "b", [base], [base], "miss_streak:50%").verdict == "pass"


def test_fail_wins_over_inconclusive(tmp_path):
    base, new = [capacity_report(24)], [capacity_report(10)]
    assert compared(tmp_path, base, new, "p99:5%", "safe_sessions:-1").verdict == "fail"


def test_forecasts_compare_too(tmp_path):
    new = forecast_report()
    new.forecast.fill_time_s.estimate = 100.0
    found = compared(tmp_path, [forecast_report()], [new], "fill_time:-10s")
    assert found.verdict == "fail"


# -- what may not be compared -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"environment": {**ENVIRONMENT, "cpu": "Other"}}, "machine cpu"),
        ({"environment": {**ENVIRONMENT, "cores": 4}}, "machine cores"),
        ({"environment": {**ENVIRONMENT, "memory_bytes": 2**33}}, "machine memory"),
        ({"environment": {**ENVIRONMENT, "devices": [{"name": "GPU"}]}}, "machine devices"),
        ({"profile": {**PROFILE, "policy": "unbounded"}}, "profile policy"),
        ({"settings": {"batching": {"value": "periodic", "from": "flag"}}}, "setting batching"),
        ({"clock": "real"}, "clock"),
        ({"weights": "checkpoint"}, "weights"),
        ({"command": "probe"}, "command"),
        ({"objectives": []}, "objectives"),
    ],
)
def test_other_machines_profiles_and_settings_are_refused_by_name(tmp_path, change, what):
    base, new = capacity_report(), capacity_report(**change)
    with pytest.raises(UsageError, match=what) as caught:
        compared(tmp_path, [base], [new], "p99:5%")
    assert "--allow-mismatch" in caught.value.hint
    allowed = compared(tmp_path / "allowed", [base], [new], allow_mismatch=True)
    assert what in [mismatch.what for mismatch in allowed.mismatches]


def test_repeats_of_one_side_have_to_agree_too(tmp_path):
    odd = capacity_report(environment={**ENVIRONMENT, "cpu": "Other"})
    with pytest.raises(UsageError, match="machine cpu"):
        compared(tmp_path, [capacity_report(), odd], [capacity_report()])


@pytest.mark.parametrize(
    "change",
    [
        {"seed": 7},
        {"environment": {**ENVIRONMENT, "packages": {"torch": "9"}}},
        {"environment": {**ENVIRONMENT, "memory_bytes": 16 * 2**30 - 2**26}},
        {"settings": {**capacity_report().settings, "output": {"value": "/x", "from": "flag"}}},
        {"profile": {**PROFILE, "title": "Another name"}},
    ],
)
def test_seed_versions_and_outputs_are_no_mismatch(change):
    assert mismatches([capacity_report()], [capacity_report(**change)]) == []


def test_versions_and_partial_runs_are_remarked(tmp_path):
    new = capacity_report(environment={**ENVIRONMENT, "packages": {"torch": "9"}}, status="interrupted")
    notes = " ".join(compared(tmp_path, [capacity_report()], [new]).notes)
    assert "torch 9" in notes
    assert "partial" in notes


# -- sides ------------------------------------------------------------------------------------------


def test_a_missing_baseline_is_an_error_unless_it_is_allowed(tmp_path):
    new = saved(tmp_path / "new", capacity_report())
    (tmp_path / "empty").mkdir()
    gates = (Gate.parse("p99:5%"),)
    for base in (tmp_path / "none", tmp_path / "empty"):
        with pytest.raises(UsageError, match="no baseline there") as caught:
            compare(ComparisonPlan(base, new, gates))
        assert "--allow-missing-baseline" in caught.value.hint
        found = compare(ComparisonPlan(base, new, gates, allow_missing_baseline=True))
        assert (found.state, found.exit_code) == ("no_baseline", 0)
        assert "No baseline" in render_compare_text(found, 80)
        assert "No baseline" in render_markdown(found)


def test_a_new_side_that_is_missing_is_an_error(tmp_path):
    base = saved(tmp_path / "base", capacity_report())
    with pytest.raises(UsageError, match="no report"):
        compare(ComparisonPlan(base, tmp_path / "none"))


def test_a_side_is_a_report_a_run_or_several_of_either(tmp_path):
    write_text(tmp_path / "a" / "report.json", report_json(capacity_report()))
    write_text(tmp_path / "b" / "report.json", report_json(capacity_report()))
    write_text(tmp_path / "c.json", report_json(capacity_report()))
    assert len(load_side(tmp_path)) == 3
    assert len(load_side(tmp_path / "a")) == 1
    assert len(load_side(tmp_path / "c.json")) == 1


def test_a_malformed_report_is_refused_not_skipped(tmp_path):
    base = saved(tmp_path / "base", capacity_report())
    (base / "other.json").write_text("{}")
    with pytest.raises(UsageError, match=r"other\.json"):
        compare(ComparisonPlan(base, base))


# -- how it is told ---------------------------------------------------------------------------------


def test_text_and_markdown_tell_the_same(tmp_path):
    found = compared(tmp_path, [with_p99(60.0)], [with_p99(66.0)], "p99:5%", "stage.decode:5%")
    text, page = render_compare_text(found, 120), render_markdown(found)
    for words in ("Worse: p99 60.0 ms to 66.0 ms (gate 5%)", "66.0 ms", "+10.0 %"):
        assert words in text
        assert words in page
    assert "| p99 | 60.0 ms | 66.0 ms | +6 ms | +10.0 % | - | p99:5% | **FAIL**" in page
    assert text.isascii()


def test_a_table_row_has_as_many_cells_as_the_head(tmp_path):
    lines = render_markdown(compared(tmp_path, [with_p99(60.0)], [with_p99(66.0)], "p99:5%")).split("\n")
    rows = [line for line in lines if line.startswith("|")]
    assert len(rows) >= 3
    assert {line.count("|") for line in rows} == {9}


@given(st.text())
def test_markdown_text_stays_text(text):
    shown = markdown(text)
    assert "\n" not in shown
    assert "<" not in shown
    assert "@" not in shown.replace("@\u200b", "")


def test_markdown_of_a_hostile_profile_is_harmless(tmp_path):
    new = capacity_report(profile={**PROFILE, "policy": "x | y <img src=a> @team `code`"})
    page = render_markdown(compared(tmp_path, [capacity_report()], [new], allow_mismatch=True))
    assert "<img" not in page
    assert "@team" not in page


def test_json_is_strict_and_named(tmp_path):
    found = compared(tmp_path, [with_p99(60.0)], [with_p99(66.0)], "p99:5%")
    dumped = json.loads(found.model_dump_json(by_alias=True))
    assert dumped["schema"] == "metronome.compare/1"
    assert dumped["verdict"] == "fail"
