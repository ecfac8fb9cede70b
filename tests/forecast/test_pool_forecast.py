"""The answer of a profile alone."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metronome_cli.core.errors import UsageError
from metronome_cli.forecast.pool_fill import PoolFill
from metronome_cli.forecast.pool_forecast import (
    ForecastQuery,
    PoolBudget,
    PoolForecast,
    collapse_probability,
    forecast_pool,
)
from tests.forecast.profiles import SHAPE, profile

QWEN3_OMNI: dict[str, Any] = {
    "frame": {"period": "2s", "sample_rate": 16_000},
    "tokens": {"prefill": 28, "decode": {"listening": 25, "speaking": 25}},
    "shape": SHAPE | {"layers": 48, "heads": 32, "kv_heads": 4, "head_dim": 128, "hidden_size": 2048},
    "kv_pool": {"blocks": 32_000},  # 0.2 % of the pool is 1024 tokens
}


def ask(sessions: int, length_s: float = 300.0, **keys: Any) -> ForecastQuery:
    case = profile(**keys)
    return ForecastQuery(case, sessions, length_s, PoolBudget.of(case))


def span_of(answer: PoolForecast) -> list[float]:
    values = [answer.t_sat.low, answer.t_sat.estimate, answer.t_sat.high]
    return [value for value in values if value is not None]


def test_the_published_collapse_comes_out() -> None:
    """Qwen3-Omni-30B at N = 128: measured at 148 s, predicted there at 145 s (arXiv:2607.02640)."""
    answer = forecast_pool(ask(128, **QWEN3_OMNI))
    assert answer.t_sat.estimate is not None
    assert 130 < answer.t_sat.estimate < 165
    assert answer.binding == "pool"
    assert answer.probability == pytest.approx(1.0)


def test_estimate_lies_in_its_interval_and_halves_with_twice_the_sessions() -> None:
    one, two = forecast_pool(ask(10)), forecast_pool(ask(20))
    for answer in (one, two):
        assert sorted(span_of(answer)) == span_of(answer)
        assert len(span_of(answer)) == 3
    assert two.t_sat.estimate == pytest.approx(one.t_sat.estimate / 2, rel=0.05)  # type: ignore[operator]


@given(length_s=st.floats(20, 2000), blocks=st.integers(200, 20_000))
@settings(max_examples=25, deadline=None)
def test_the_largest_safe_number_is_safe_and_one_more_is_not(length_s: float, blocks: int) -> None:
    question = ask(1, length_s, kv_pool={"blocks": blocks})
    most = forecast_pool(question).max_sessions
    assert most is not None
    if most:
        assert collapse_probability(question.profile, most, length_s) <= 0.05 + 1e-9
    assert collapse_probability(question.profile, most + 1, length_s) > 0.05


@given(sessions=st.integers(1, 60), blocks=st.integers(200, 20_000), sinks=st.integers(0, 64))
@settings(max_examples=40, deadline=None)
def test_the_safe_window_fits_and_a_wider_one_does_not(sessions: int, blocks: int, sinks: int) -> None:
    question = ask(sessions, kv_pool={"blocks": blocks}, policy=f"window(64, {sinks})")
    widest = forecast_pool(question).safe_window
    if widest is None:
        narrowest = ask(sessions, 1e5, kv_pool={"blocks": blocks}, policy=f"window(1, {sinks})")
        assert not any(hazard.fits for hazard in narrowest.hazards() if isinstance(hazard, PoolFill))
        return
    fits = ask(sessions, kv_pool={"blocks": blocks}, policy=f"window({widest}, {sinks})")
    assert forecast_pool(fits).t_sat.estimate is None
    if widest + 32 < question.profile.shape.context_length - sinks:
        wider = ask(sessions, 1e5, kv_pool={"blocks": blocks}, policy=f"window({widest + 32}, {sinks})")
        assert forecast_pool(wider).probability == pytest.approx(1.0)


def test_a_context_that_ends_first_is_the_limit() -> None:
    answer = forecast_pool(ask(2, shape=SHAPE | {"context_length": 1000}, kv_pool={"blocks": 100_000}))
    assert answer.binding == "context"
    assert answer.t_sat.estimate == pytest.approx(1000 / 26.5, rel=0.2)


def test_a_window_outlives_the_context() -> None:
    answer = forecast_pool(ask(2, shape=SHAPE | {"context_length": 1000}, policy="window(128, 16)"))
    assert (answer.binding, answer.t_sat.estimate, answer.probability) == ("none", None, 0.0)


def test_a_stage_with_its_own_limit_is_the_limit() -> None:
    talker = {
        "name": "talker", "kind": "paged", "kv_bytes_per_position": 1024,
        "positions_per_s": {"speaking": 50.0}, "limit": 4096,
    }  # fmt: skip
    answer = forecast_pool(ask(2, 600.0, kv_pool={"blocks": 100_000}, stages=[talker]))
    assert answer.binding == "stage talker limit"
    assert answer.t_sat.estimate == pytest.approx(4096 / 25, rel=0.25)
    pooled = forecast_pool(
        ask(8, 600.0, kv_pool={"blocks": 100_000}, stages=[talker | {"limit": None, "pool": {"blocks": 500}}])
    )
    assert pooled.binding == "stage talker"
    assert pooled.t_sat.estimate == pytest.approx(500 * 16 / (8 * 25), rel=0.25)


def test_dropping_the_cache_at_each_turn_lifts_a_stage_limit() -> None:
    talker = {
        "name": "talker", "kind": "paged", "kv_bytes_per_position": 1024, "resets": "turn",
        "positions_per_s": {"speaking": 50.0}, "limit": 4096,
    }  # fmt: skip
    answer = forecast_pool(ask(2, 600.0, kv_pool={"blocks": 100_000}, stages=[talker]))
    assert answer.binding != "stage talker"
    assert answer.probability < 0.05


def test_a_model_that_adds_nothing_never_saturates() -> None:
    answer = forecast_pool(ask(4, tokens={"prefill": 0, "decode": {"listening": 0, "speaking": 0}}))
    assert (answer.t_sat.estimate, answer.probability, answer.max_sessions) == (None, 0.0, None)


def test_without_a_pool_the_user_must_name_memory() -> None:
    with pytest.raises(UsageError, match="no pool"):
        PoolBudget.of(profile(kv_pool=None))
