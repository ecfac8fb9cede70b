"""A server's metrics, read and followed."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metronome_cli.core.errors import UsageError
from metronome_cli.forecast.live_forecast import LiveForecast, ScrapeHistory
from metronome_cli.protocols.prometheus_text import parse
from metronome_cli.protocols.server_metrics import ServerReading, read

VLLM_TEXT = """\
# HELP vllm:kv_cache_usage_perc KV-cache usage. 1 means 100 percent usage.
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.25
vllm:kv_cache_usage_perc{engine="1",model_name="m"} 0.75
vllm:num_requests_running{engine="0",model_name="m"} 3.0
vllm:num_requests_running{engine="1",model_name="m"} 1.0
vllm:num_requests_waiting{engine="0",model_name="m"} 0.0
vllm:generation_tokens_total{engine="0",model_name="m"} 1234.0
vllm:cache_config_info{block_size="32",num_gpu_blocks="200",engine="0"} 1.0
process_start_time_seconds 1.7e+09
"""


def fed(
    levels: list[float | None], *, spacing_s: float = 1.0, tokens: float | None = 50.0
) -> list[LiveForecast | None]:
    """What a fresh follower says after each scrape; None stands for one that failed."""
    scrapes = ScrapeHistory()
    sights = []
    for i, level in enumerate(levels):
        delivered = None if tokens is None else tokens * i
        reading = (
            None if level is None else ServerReading("vLLM", "m", {"engine=0": level}, delivered=delivered)
        )
        sights.append(scrapes.add(i * spacing_s, reading))
    return sights


def test_vllm_is_read_engine_by_engine() -> None:
    reading = read(parse(VLLM_TEXT))
    assert reading.occupancy == {"engine=0,model_name=m": 0.25, "engine=1,model_name=m": 0.75}
    assert (reading.server, reading.running, reading.waiting, reading.delivered) == ("vLLM", 4, 0, 1234)
    assert (reading.pool_tokens, reading.started) == (6400, 1.7e9)


def test_older_vllm_and_sglang_are_read_too() -> None:
    assert read(parse("vllm:gpu_cache_usage_perc 0.5\n")).metric == "vllm:gpu_cache_usage_perc"
    sglang = read(
        parse('sglang:token_usage{a="b"} 0.5\nsglang:num_queue_reqs 2\nsglang:max_total_num_tokens 9000\n')
    )
    assert (sglang.server, sglang.waiting, sglang.pool_tokens, sglang.running) == ("SGLang", 2, 9000, None)


def test_a_metric_can_be_named() -> None:
    samples = parse('pool_used{shard="a"} 0.125\n')
    assert read(samples, "pool_used").occupancy == {"shard=a": 0.125}
    with pytest.raises(UsageError, match="looked for other"):
        read(samples, "other")


@pytest.mark.parametrize("value", [55.0, -1.0, 1.01])
def test_a_gauge_that_is_no_share_is_refused_with_how_to_name_another(value: float) -> None:
    with pytest.raises(UsageError, match=rf"^here: used is {value:g}, which lies outside 0..1$") as caught:
        read(parse(f"used {value}\n"), "used", "here")
    assert "--occupancy-metric" in (caught.value.hint or "")
    with pytest.raises(UsageError, match="vllm:kv_cache_usage_perc is "):
        read(parse(f"vllm:kv_cache_usage_perc {value}\n"))


def test_metrics_without_occupancy_name_what_is_near() -> None:
    with pytest.raises(UsageError, match="foo_cache_hits"):
        read(parse("foo_cache_hits 3\nbar 1\n"))


@given(st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs", "Zl", "Zp"]), max_size=20))
def test_label_values_come_back_as_they_were(value: str) -> None:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    (sample,) = parse(f'm{{x="{escaped}",y="2"}} 1.5 1700000000000')
    assert sample.labels == {"x": value, "y": "2"}
    assert sample.value == 1.5


def test_special_numbers() -> None:
    values = [sample.value for sample in parse("a NaN\nb +Inf\nc -Inf\nd 1e3\n")]
    assert math.isnan(values[0])
    assert values[1:] == [math.inf, -math.inf, 1000.0]


@pytest.mark.parametrize("text", ["<html>", "a", "a b", '{x="1"} 2'])
def test_what_is_no_metrics_page_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="line 1 is not in Prometheus"):
        parse(text)


def test_the_countdown_runs_down() -> None:
    sights = fed([0.01 * i for i in range(60)])
    remaining = [sight.remaining_s for sight in sights if sight is not None and sight.remaining_s is not None]
    assert len(remaining) > 40
    assert remaining == pytest.approx(
        [100 - (60 - len(remaining) + i) for i in range(len(remaining))], abs=0.6
    )


def test_a_restart_starts_anew_and_is_said() -> None:
    scrapes = ScrapeHistory()
    for i in range(30):
        scrapes.add(i, ServerReading("vLLM", "m", {"": 0.02 * i}, delivered=100.0 * i))
    sight = scrapes.add(30, ServerReading("vLLM", "m", {"": 0.59}, delivered=5.0))
    assert sight is not None
    assert sight.outlook.saturates is None
    assert any("restarted" in note for note in sight.notes)


def test_a_later_start_time_is_a_restart() -> None:
    scrapes = ScrapeHistory()
    scrapes.add(0, ServerReading("vLLM", "m", {"": 0.5}, started=1000.0))
    sight = scrapes.add(1, ServerReading("vLLM", "m", {"": 0.5}, started=2000.0))
    assert sight is not None
    assert any("restarted" in note for note in sight.notes)


def test_a_failed_scrape_is_a_gap_that_is_said() -> None:
    sights = fed([*(0.01 * i for i in range(20)), None, None, *(0.01 * i for i in range(22, 40))])
    assert sights[20] is None
    last = sights[-1]
    assert last is not None
    assert any("no answer from 20.0 s" in note for note in last.notes)
    assert last.outlook.t_sat_s == pytest.approx(100, abs=0.1)


def test_full_and_silent_is_a_collapse_full_and_delivering_is_not() -> None:
    full = [min(1.0, 0.1 * i) for i in range(30)]
    stalled, busy = fed(full, tokens=0.0)[-1], fed(full)[-1]
    assert stalled is not None
    assert busy is not None
    assert stalled.collapsed
    assert not busy.collapsed
    assert stalled.remaining_s == 0


def test_the_engine_that_is_full_first_decides() -> None:
    scrapes = ScrapeHistory()
    for i in range(40):
        sight = scrapes.add(i, ServerReading("vLLM", "m", {"slow": 0.3 + 0.001 * i, "fast": 0.01 * i}))
    assert sight is not None
    assert sight.engine == "fast"


def test_a_series_that_goes_away_is_said() -> None:
    scrapes = ScrapeHistory()
    scrapes.add(0, ServerReading("vLLM", "m", {"a": 0.1, "b": 0.2}))
    sight = scrapes.add(1, ServerReading("vLLM", "m", {"a": 0.1}))
    assert sight is not None
    assert sight.notes == ("series {b} is gone since 1.0 s",)
