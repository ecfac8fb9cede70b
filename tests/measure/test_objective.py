"""Objectives: text and back, and errors that name what is known."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metronome_cli.core.errors import UsageError
from metronome_cli.core.quantities import plain_number
from metronome_cli.measure.objective import METRICS, Objective


@pytest.mark.parametrize(("text", "parts", "canonical"), [
    ("p99<80ms", ("p99", "<", 80.0, "ms"), "p99<80ms"),
    ("p99.90 <= 0.08 s", ("p99.9", "<=", 80.0, "ms"), "p99.9<=80ms"),
    ("max<200ms", ("max", "<", 200.0, "ms"), "max<200ms"),
    ("p99<3600000ms", ("p99", "<", 3_600_000.0, "ms"), "p99<1h"),
    ("max<=90s", ("max", "<=", 90_000.0, "ms"), "max<=90s"),
    ("p99<20m", ("p99", "<", 1_200_000.0, "ms"), "p99<20m"),
    ("p99<12345.5ms", ("p99", "<", 12_345.5, "ms"), "p99<12345.5ms"),
    ("misses<0.1%", ("misses", "<", 0.001, "fraction"), "misses<0.1%"),
    ("empty<0.01", ("empty", "<", 0.01, "fraction"), "empty<1%"),
    ("occupancy<=100%", ("occupancy", "<=", 1.0, "fraction"), "occupancy<=100%"),
    ("miss_streak<3", ("miss_streak", "<", 3.0, "count"), "miss_streak<3"),
    ("fell_behind<=0", ("fell_behind", "<=", 0.0, "count"), "fell_behind<=0"),
])  # fmt: skip
def test_forms(text: str, parts: tuple[object, ...], canonical: str) -> None:
    objective = Objective.parse(text)
    assert (objective.metric, objective.comparator, objective.limit, objective.unit) == parts
    assert str(objective) == canonical


def objectives() -> st.SearchStrategy[Objective]:
    percentile = st.floats(0.01, 99.99).map(lambda q: f"p{plain_number(round(q, 4))}")
    latency = st.builds(
        Objective,
        percentile | st.just("max"),
        st.sampled_from(["<", "<="]),
        st.floats(0.001, 1e8),
        st.just("ms"),
    )
    share = st.builds(
        Objective,
        st.sampled_from([metric for metric, unit in METRICS.items() if unit == "fraction"]),
        st.sampled_from(["<", "<="]),
        st.floats(1e-9, 1),
        st.just("fraction"),
    )
    count = st.builds(
        Objective,
        st.sampled_from(["miss_streak", "fell_behind"]),
        st.sampled_from(["<", "<="]),
        st.integers(1, 10**8).map(float),
        st.just("count"),
    )
    return latency | share | count


@given(objectives())
def test_text_and_back(objective: Objective) -> None:
    assert Objective.parse(str(objective)) == objective


@given(objectives(), st.floats(0, 1e9))
def test_what_holds_strictly_also_holds_loosely(objective: Objective, value: float) -> None:
    loose = Objective(objective.metric, "<=", objective.limit, objective.unit)
    assert loose.holds(value) or not objective.holds(value)
    assert loose.holds(objective.limit)


@pytest.mark.parametrize(("text", "says", "hints"), [
    ("p9x<80ms", "unknown metric 'p9x'", "did you mean p99?"),
    ("mises<1%", "unknown metric 'mises'", "did you mean misses?"),
    ("P99<80ms", "unknown metric 'P99'", "did you mean p99?"),
    ("p100<80ms", "unknown metric 'p100'", "did you mean max?"),
    ("p0<80ms", "unknown metric 'p0'", "known: p50"),
    ("p99>80ms", "upper bound", "use < or <="),
    ("p99=80ms", "upper bound", "use < or <="),
    ("p99<80", "'80' is not a duration", "number and a unit"),
    ("p99<80%", "'80%' is not a duration", "number and a unit"),
    ("p99<0ms", "between 1us and 11 days", ""),
    ("misses<3", "'3' is not a fraction", "percentage"),
    ("misses<0%", "no number of frames shows", "miss_streak<1"),
    ("miss_streak<1.5", "'1.5' is not a count", "whole number"),
    ("miss_streak<0", "never below 0", "<=0 or <1"),
    ("p99", "is not an objective", "such as"),
    ("", "is not an objective", "such as"),
    ("<80ms", "unknown metric ''", "known"),
])  # fmt: skip
def test_errors_say_what_is_allowed(text: str, says: str, hints: str) -> None:
    with pytest.raises(UsageError) as caught:
        Objective.parse(text)
    assert says in caught.value.message
    assert hints in (caught.value.hint or "")


@given(st.text(max_size=80) | st.text(alphabet="p9.max<=>! msemptyisk0%8_", max_size=20))
def test_only_usage_errors_come_out(text: str) -> None:
    try:
        objective = Objective.parse(text)
    except UsageError:
        return
    assert Objective.parse(str(objective)) == objective
