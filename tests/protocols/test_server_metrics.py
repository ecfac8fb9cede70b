"""Metrics pages of real servers with known readings: `../shared/cases`, if it is there, and pages of our own."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metronome_cli.core.errors import UsageError
from metronome_cli.protocols.prometheus_text import parse
from metronome_cli.protocols.server_metrics import ServerReading, read, read_any

PAGES = Path(__file__).parents[3] / "shared" / "cases" / "metrics"
READINGS: dict[str, dict[str, Any]] = {
    "vllm-live-24-72": {"running": 24, "waiting": 72, "fullest": 0.0},
    "vllm-fp8-escaped-label-nan": {"running": 2, "waiting": 3, "fullest": 0.3412, "pool_tokens": None},
    "vllm-0.7.3": {"running": 3, "waiting": 5, "fullest": 0.75, "delivered": 123_456},
    "vllm-openmetrics-exemplar": {"delivered": 123_456, "fullest": 0.5},
    "vllm-omni-three-stages": {"running": 2, "waiting": 0, "fullest": 0.97, "delivered": 9000},
    "sglang-tp1": {"running": 2, "waiting": 0, "fullest": 0.31, "delivered": 3000},
    "sglang-underscores": {"server": "SGLang", "fullest": 0.28, "running": 12},
    "trtllm": {"running": 7, "waiting": 0, "fullest": 0.62},
    "moshi-server": {"running": 64, "occupancy": {}},
}


def page(name: str) -> ServerReading:
    file = PAGES / f"{name}.txt"
    if not file.is_file():
        pytest.skip("no case folder beside the checkout")
    return read_any(parse(file.read_text()))


@pytest.mark.parametrize("name", sorted(READINGS))
def test_a_servers_page_is_read_right(name: str) -> None:
    reading = page(name)
    for what, value in READINGS[name].items():
        got = max(reading.occupancy.values()) if what == "fullest" else getattr(reading, what)
        assert got == value, what


def test_gaps_in_playback_are_read() -> None:
    gaps = page("vllm-omni-three-stages").gaps
    assert gaps is not None
    assert (gaps.count, gaps.over, round(gaps.mean_s or 0, 2)) == (40, 28, 1.54)


def test_workers_of_one_server_stay_apart() -> None:
    assert sorted(page("sglang-underscores").occupancy.values()) == [0.28, 0.28]


def test_steps_of_a_server_without_a_pool() -> None:
    reading = page("moshi-server")
    assert reading.step_s is not None
    assert reading.steps is not None
    assert 1e3 * reading.step_s / reading.steps == pytest.approx(51.24)


def test_a_page_without_occupancy_says_so_and_what_there_is_instead() -> None:
    text = "llamacpp:requests_processing 3\nllamacpp:requests_deferred 1\nllamacpp:n_tokens_max 42094\n"
    with pytest.raises(UsageError, match=r"llama\.cpp exports no cache occupancy.*requests_processing 3"):
        read(parse(text))
    assert read_any(parse(text)).running == 3


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-Inf", "-3"])
def test_a_figure_that_cannot_be_is_not_told(value: str) -> None:
    reading = read(parse(f"vllm:kv_cache_usage_perc 0.5\nvllm:num_requests_running {value}\n"))
    assert reading.running is None
    assert reading.not_told == ("vllm:num_requests_running",)


@pytest.mark.parametrize("value", ["NaN", "+Inf"])
def test_an_occupancy_that_is_no_number_is_not_told(value: str) -> None:
    reading = read(parse(f'vllm:kv_cache_usage_perc{{engine="0"}} {value}\n'))
    assert reading.told == {}
    assert all(math.isnan(level) for level in reading.occupancy.values())
    assert reading.not_told == ("vllm:kv_cache_usage_perc",)


@given(st.text(alphabet='ab\\"\n, {}=#é', max_size=12), st.floats(0, 1, allow_nan=False))
def test_any_label_value_comes_back_as_it_was_written(label: str, value: float) -> None:
    written = label.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    samples = parse(f'used{{name="{written}"}} {value!r}\n')
    assert [(dict(s.labels), s.value) for s in samples] == [({"name": label}, value)]


@given(st.text(max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    refused = None
    try:
        parse(text)
    except UsageError as error:
        refused = error
    assert refused is None or "not in Prometheus' text format" in refused.message
