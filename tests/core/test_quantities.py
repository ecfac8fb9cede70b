"""Quantities: what is printed parses back, and only UsageError ever comes out."""

from __future__ import annotations

import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from metronome_cli.core import quantities
from metronome_cli.core.errors import UsageError
from metronome_cli.core.quantities import (
    digits,
    format_duration,
    format_size,
    parse_duration,
    parse_fraction,
    parse_milliseconds,
    parse_rate,
    parse_size,
    plain_number,
    shown,
)

PARSERS = (parse_duration, parse_milliseconds, parse_size, parse_fraction, parse_rate)
ODD = st.text(alphabet="0123456789.,_-+eE /%µμmshdunKMGTiB∞٣ \t\n", max_size=50)


@pytest.mark.parametrize(("text", "seconds"), [
    ("80ms", 0.08), ("2s", 2.0), ("10m", 600.0), ("1h30m", 5400.0), ("1h 30min", 5400.0), (" 5 us ", 5e-6),
    ("5µs", 5e-6), ("1_000ms", 1.0), (".5s", 0.5), ("2d", 172_800.0), ("0s", 0.0),
])  # fmt: skip
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(("text", "size"), [
    ("168MiB", 168 * 2**20), ("96GB", 96 * 10**9), ("1.5KiB", 1536), ("7B", 7), ("1kB", 1000),
])  # fmt: skip
def test_sizes(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(
    ("text", "value"), [("1%", 0.01), ("0.1%", 0.001), ("0.25", 0.25), ("100%", 1.0), ("0", 0.0)]
)
def test_fractions(text: str, value: float) -> None:
    assert parse_fraction(text) == value


@pytest.mark.parametrize(("text", "value"), [("2.5/s", 2.5), ("150/m", 2.5), ("36 / h", 0.01)])
def test_rates(text: str, value: float) -> None:
    assert parse_rate(text) == value


@pytest.mark.parametrize("parse", PARSERS)
@pytest.mark.parametrize(
    "text", ["", "80", "80 parsecs", "-5ms", "1e3s", "nan", "inf", "5 5ms", "5ms, 5ms", "٣s", "9" * 5000]
)
def test_what_is_no_quantity_is_refused_with_a_hint(parse, text) -> None:
    with pytest.raises(UsageError) as caught:
        parse(text)
    assert caught.value.hint
    assert len(caught.value.message) < 120


@pytest.mark.parametrize(("parse", "text"), [
    (parse_duration, "99999999999h"), (parse_size, "99999999999TiB"), (parse_fraction, "101%"),
    (parse_rate, "9999999999/ms"),
])  # fmt: skip
def test_what_is_too_much_is_refused(parse, text) -> None:
    with pytest.raises(UsageError):
        parse(text)


@pytest.mark.parametrize("parse", PARSERS)
@given(text=st.text(max_size=60) | ODD)
@example(text="1" * 39 + "d")
@example(text="/")
@example(text="\ud800")
def test_only_usage_errors_come_out(parse, text: str) -> None:
    try:
        value = parse(text)
    except UsageError:
        return
    assert math.isfinite(value)
    assert value >= 0


@given(st.floats(0, 1e9))
def test_a_plain_number_parses_back_to_itself(value: float) -> None:
    assert float(plain_number(value)) == value
    assert "e" not in plain_number(value)


@given(st.floats(1e-3, 1e9))
def test_milliseconds_are_exact(value: float) -> None:
    text = plain_number(value) + "ms"
    if len(text) <= 40:
        assert parse_milliseconds(text) == value


@pytest.mark.parametrize(("value", "text"), [
    (0.000939, "0.00094"), (9.39e-9, "0.0000000094"), (1234.0, "1200"), (-0.0, "0"), (2.0, "2"),
])  # fmt: skip
def test_digits_have_no_exponent(value: float, text: str) -> None:
    assert digits(value, 2) == text


@pytest.mark.parametrize(("seconds", "text"), [
    (0.061, "61 ms"), (2.5, "2.5 s"), (600, "10 min"), (5400, "1 h 30 min"), (0, "0 us"), (0.00099999, "1 ms"),
    (0.9999, "1 s"), (119.99, "2 min"), (-2, "-2 s"), (90_000_000, "25,000 h"), (math.inf, "for ever"),
    (math.nan, "unknown"),
])  # fmt: skip
def test_durations_read_well(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


@pytest.mark.parametrize(("size", "text"), [
    (0, "0 B"), (168 * 2**20, "168 MiB"), (1023.9 * 2**10, "1 MiB"), (1000 * 2**20, "1,000 MiB"),
    (1.5 * 2**30, "1.5 GiB"),
    (2**50, "1,024 TiB"), (math.nan, "unknown"), (-3 * 2**30, "-3 GiB"),
])  # fmt: skip
def test_sizes_read_well(size: float, text: str) -> None:
    assert format_size(size) == text


@given(st.floats(allow_nan=True, allow_infinity=True))
def test_no_number_breaks_a_format(value: float) -> None:
    for text in (format_duration(value), format_size(value)):
        assert text
        assert "e+" not in text


@given(st.one_of(st.text(), st.lists(st.text()), st.integers(), st.none()))
def test_a_shown_value_is_one_short_line(value: object) -> None:
    assert len(shown(value)) <= 60
    assert "\n" not in shown(value)


def test_units_are_those_documented() -> None:
    assert set(quantities.DURATION_UNITS) == {"ns", "us", "ms", "s", "m", "min", "h", "d"}
