"""Numbers as every view writes them."""

from metronome_cli.core.formatting import (
    format_bound,
    format_measured,
    format_ms,
    format_probability,
    format_seconds,
    format_time,
    percent,
)


def test_times_and_limits_read_well():
    assert [format_time(v) for v in (None, 0.04, 0.31, 4.38, 148.0)] == [
        "-",
        "0 s",
        "0.3 s",
        "4.4 s",
        "2 min 28 s",
    ]
    assert [format_measured(v, "ms") for v in (None, 4.24, 146.0, 9_999.0, 3_600_000.0)] == [
        "-", "4.2 ms", "146 ms", "9,999 ms", "1 h",
    ]  # fmt: skip
    limits = (80.0, "ms"), (62.5, "ms"), (3_600_000.0, "ms"), (0.0015, "fraction"), (3.0, "count")
    assert [format_bound(*limit) for limit in limits] == ["80 ms", "62.5 ms", "1 h", "0.15 %", "3"]
    assert [percent(v) for v in (0.014, 0.0996, 0.123)] == ["1.4 %", "10 %", "12 %"]


def test_numbers_read_well():
    assert [format_ms(v) for v in (None, 61.4, 4.24, 0.0)] == ["-", "61", "4.2", "0"]
    assert [percent(v) for v in (None, 0.0, 0.003, 0.41, 0.999, 1.0)] == [
        "-",
        "0 %",
        "0.3 %",
        "41 %",
        ">99 %",
        "100 %",
    ]
    assert [percent(v) for v in (0.00001, 8.7e-6, 9e-51)] == ["0.001 %", "<0.001 %", "<0.001 %"]
    assert [format_probability(v) for v in (None, 0.0, 0.0004, 0.001, 0.25, 0.996, 0.9996, 1.0)] == [
        "-",
        "<0.1 %",
        "<0.1 %",
        "0.1 %",
        "25 %",
        "99.6 %",
        ">99.9 %",
        ">99.9 %",
    ]
    assert [format_seconds(v) for v in (None, 0.2, 47.4, 200)] == ["-", "0 s", "47 s", "3 min 20 s"]
