"""Trials near the edge: some collapse, as often as predicted; with the window none does."""

from metronome_cli.capacity.repeats import predicted_collapse, run_repeats
from metronome_cli.config.cache_policy import CachePolicySpec
from tests.capacity.builders import always, context_on, small_profile

UNBOUNDED, WINDOW = CachePolicySpec("unbounded"), CachePolicySpec.parse("window(64, 16)")
LENGTH_S = 40.0


def trials(blocks, count=12):
    profile = small_profile(blocks=blocks, turn_taking={"speaking_share": 0.5, "mean_turn": "20s"})
    into = []
    context = context_on(always(0.002), profile=profile, length_s=LENGTH_S)
    run_repeats(context, [UNBOUNDED, WINDOW], 4, count, predicted_collapse, into)
    return into


def test_ordinary_variance_decides_where_t_sat_is_near_the_session_length():
    unbounded, window = trials(blocks=440)
    assert 0 < unbounded.collapsed < unbounded.repeats
    assert unbounded.collapsed_share_low <= unbounded.forecast_probability <= unbounded.collapsed_share_high
    assert (window.collapsed, window.repeats) == (0, 12)
    assert window.forecast_probability == 0.0
    assert all(t is None or t <= LENGTH_S for t in unbounded.pool_full_at_s)


def test_far_from_the_edge_nothing_is_left_to_chance():
    assert trials(blocks=800, count=3)[0].collapsed == 0
    assert trials(blocks=200, count=3)[0].collapsed == 3
