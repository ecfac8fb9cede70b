"""Trials near the edge: some collapse, as often as predicted; with the window none does."""

from metronome_cli.capacity.repeats import predicted_collapse, run_repeats
from metronome_cli.config.cache_policy import CachePolicySpec
from tests.capacity.builders import always, lab_on, small_profile

UNBOUNDED, WINDOW = CachePolicySpec("unbounded"), CachePolicySpec.parse("window(64, 16)")
LENGTH_S = 40.0


def trials(blocks, count=12):
    profile = small_profile(blocks=blocks, turn_taking={"speaking_share": 0.5, "mean_turn": "20s"})
    into = []
    lab = lab_on(always(0.002), profile=profile, length_s=LENGTH_S)
    run_repeats(lab, [UNBOUNDED, WINDOW], 4, count, predicted_collapse, into)
    return into


def test_ordinary_variance_decides_where_t_sat_is_near_the_session_length():
    unbounded, window = trials(blocks=440)
    assert 0 < unbounded.collapsed < unbounded.trials
    assert unbounded.share_low <= unbounded.predicted_probability <= unbounded.share_high
    assert (window.collapsed, window.trials) == (0, 12)
    assert window.predicted_probability == 0.0
    assert all(t is None or t <= LENGTH_S for t in unbounded.collapse_t_s)


def test_far_from_the_edge_nothing_is_left_to_chance():
    assert trials(blocks=800, count=3)[0].collapsed == 0
    assert trials(blocks=200, count=3)[0].collapsed == 3
