"""What a profile means in memory and minutes."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metronome_cli.commands.describe_profile import blocks_per_session, profile_card
from metronome_cli.commands.predict.from_profile import ForecastPlan, predict_profile
from metronome_cli.config.profile import Profile
from metronome_cli.config.profile_files import list_profiles, load_profile
from metronome_cli.core.errors import UsageError
from metronome_cli.forecast.memory import MemoryPlan, profile_weights

GIB = 2**30


@given(
    st.integers(20, 400), st.sampled_from(["moshi", "minicpm-o-4.5", "qwen3-omni-30b", "voxtral-realtime-4b"])
)
@settings(max_examples=20, deadline=None)
def test_as_many_sessions_fit_as_the_forecast_says(gib: int, name: str) -> None:
    profile = load_profile(name)
    plan = MemoryPlan(profile, gib * GIB, profile_weights(profile))
    try:
        fit = profile_card(profile, gib * GIB).fit
    except UsageError:
        assert plan.blocks(1) < 1
        return
    assert fit is not None
    forecast = predict_profile(ForecastPlan(profile, 1, memory=gib * GIB)).forecast
    assert forecast is not None
    assert (fit.sessions, fit.binding) == (forecast.max_sessions, forecast.max_sessions_limited_by)
    assert fit.sessions is not None
    before_its_last_frame_s = profile.session_length - profile.frame.period_s
    assert fit.sessions * blocks_per_session(profile, before_its_last_frame_s) <= plan.blocks(fit.sessions)


@pytest.mark.parametrize("profile", [p for p in list_profiles() if p.kv_pool], ids=lambda p: str(p.name))
def test_predict_and_the_card_give_one_number(profile: Profile) -> None:
    fit = profile_card(profile).fit
    forecast = predict_profile(ForecastPlan(profile, 1)).forecast
    assert fit is not None
    assert forecast is not None
    assert (fit.sessions, fit.confidence) == (forecast.max_sessions, forecast.confidence)


@given(st.floats(1, 1e5), st.floats(0, 1e5))
def test_an_older_session_never_holds_less_and_a_window_stops_growing(age_s: float, more_s: float) -> None:
    unbounded = load_profile("qwen2.5-omni-7b")
    windowed = unbounded.model_copy(update={"policy": "window(1024, 16)"})
    assert blocks_per_session(unbounded, age_s) <= blocks_per_session(unbounded, age_s + more_s)
    assert blocks_per_session(windowed, age_s) <= blocks_per_session(unbounded, age_s)
    assert blocks_per_session(windowed, 1e5) == blocks_per_session(windowed, 2e5)


def test_minutes_to_the_context_limit() -> None:
    card = profile_card(load_profile("minicpm-o-4.5"))
    assert card.seconds_to_context.listening == pytest.approx(40_960 / 13)
    assert card.seconds_to_context.speaking == pytest.approx(40_960 / 32)


def test_a_talkers_limit_is_met_while_speaking_only() -> None:
    talker = profile_card(load_profile("minicpm-o-4.5")).stages[1]
    assert talker.seconds_to_limit.listening is None
    assert talker.seconds_to_limit.speaking == pytest.approx(91, abs=1)


def test_no_memory_and_no_pool_is_no_answer() -> None:
    assert profile_card(load_profile("moshi")).fit is None


def test_weights_that_do_not_fit_are_refused() -> None:
    with pytest.raises(UsageError, match="no memory is left"):
        profile_card(load_profile("qwen3-omni-30b"), 24 * GIB)
