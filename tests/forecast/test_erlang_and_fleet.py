"""Erlang's formula against published values; fleets keep what they promise."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom, poisson

from metronome_cli.forecast.erlang import blocking, log_blocking, servers_for
from metronome_cli.forecast.fleet import Fleet, FleetDemand


@pytest.mark.parametrize(
    ("erlangs", "servers", "expected", "within"),
    [
        (8.108, 15, 0.01, 1e-4),  # erlang.com calculator manual
        (25, 30, 0.052603, 1e-5),  # Wolfram's example states about 0.05
        (123, 132, 0.031243, 1e-5),
        (20, 10, 0.5379631686320729, 1e-12),
        (200, 190, 0.08869684386923561, 1e-12),
        (5, 1, 5 / 6, 1e-12),
        (120, 100, math.exp(-1.62826407041), 1e-10),
        (12_000, 10_000, math.exp(-1.78927734649), 1e-10),
        (20, 100, math.exp(-84.1661482002), 1e-9),
    ],
)
def test_published_values(erlangs: float, servers: int, expected: float, within: float) -> None:
    assert blocking(erlangs, servers) == pytest.approx(expected, rel=within)


@pytest.mark.parametrize(
    ("servers", "percent", "erlangs"),
    [(5, 1, 1.4), (5, 2, 1.7), (5, 5, 2.2), (8, 1, 3.1), (8, 2, 3.6), (8, 5, 4.5)],
)
def test_the_table_of_carried_loads(servers: int, percent: int, erlangs: float) -> None:
    """Tables give the load to a tenth of an erlang; a twentieth either way brackets the target."""
    assert blocking(erlangs - 0.06, servers) < percent / 100 < blocking(erlangs + 0.06, servers)


@given(erlangs=st.floats(1e-3, 5000), servers=st.integers(0, 3000))
@settings(max_examples=100, deadline=None)
def test_the_recursion_holds(erlangs: float, servers: int) -> None:
    before = blocking(erlangs, servers)
    expected = erlangs * before / (servers + 1 + erlangs * before)
    assert blocking(erlangs, servers + 1) == pytest.approx(expected, rel=1e-8, abs=1e-300)


@given(erlangs=st.floats(0.1, 3000), target=st.floats(1e-6, 0.9))
@settings(max_examples=60, deadline=None)
def test_servers_for_is_the_fewest(erlangs: float, target: float) -> None:
    servers = servers_for(erlangs, target)
    assert blocking(erlangs, servers) <= target
    assert servers == 0 or blocking(erlangs, servers - 1) > target


def test_no_load_is_never_blocked_unless_there_is_nothing() -> None:
    assert (blocking(0, 3), blocking(0, 0), log_blocking(0, 3)) == (0.0, 1.0, -math.inf)


@pytest.mark.parametrize(("erlangs", "servers"), [(-1, 3), (1, -1), (math.nan, 2), (math.inf, 2)])
def test_impossible_loads_are_refused(erlangs: float, servers: int) -> None:
    with pytest.raises(ValueError, match="negative"):
        blocking(erlangs, servers)


fleets = st.builds(
    Fleet,
    demand=st.one_of(
        st.builds(FleetDemand, erlangs=st.floats(0.5, 5000)),
        st.builds(FleetDemand, peak=st.integers(1, 5000)),
    ),
    per_gpu=st.integers(1, 200),
    target=st.floats(1e-4, 0.2),
    headroom=st.floats(0, 0.4),
    gpus_per_node=st.integers(1, 8),
)


@given(fleets.filter(lambda fleet: fleet.slots_per_gpu > 0))
@settings(max_examples=80, deadline=None)
def test_the_fewest_gpus_keep_the_target_and_a_spare_node_survives(fleet: Fleet) -> None:
    assert fleet.size(fleet.needed).blocking <= fleet.target
    smaller = fleet.needed - fleet.gpus_per_node
    assert smaller == 0 or fleet.size(smaller).blocking > fleet.target
    spare = fleet.needed_with_spare
    assert spare % fleet.gpus_per_node == 0
    assert fleet.size(spare).node_down_blocking <= fleet.target + 1e-12


@given(fleets.filter(lambda fleet: fleet.slots_per_gpu > 0))
@settings(max_examples=80, deadline=None)
def test_rows_are_shares_and_blind_dealing_never_helps(fleet: Fleet) -> None:
    for row in fleet.table():
        for share in (
            row.utilisation,
            row.blocking,
            row.random_routing_blocking,
            row.node_down_blocking,
            row.readmitted_share,
        ):
            assert -1e-9 <= share <= 1 + 1e-9
        assert row.random_routing_blocking >= row.blocking - 1e-9
        assert row.node_down_blocking >= row.blocking - 1e-9


def test_headroom_keeps_slots_free() -> None:
    assert Fleet(FleetDemand(erlangs=10), 100, 0.01, headroom=0.1).slots_per_gpu == 90


def test_sessions_of_a_failed_node_need_free_slots_elsewhere() -> None:
    tight = Fleet(FleetDemand(peak=400), 100, 0.01)
    assert tight.size(4).readmitted_share == 0.0
    assert tight.size(8).readmitted_share == 1.0
    assert tight.size(5).readmitted_share == pytest.approx((400 - 320) / 80)


@pytest.mark.parametrize(
    ("peak", "gpus", "each"), [(700, 69, 10), (700, 70, 10), (12, 1, 10), (40, 3, 20), (9, 4, 9)]
)
def test_a_peak_dealt_out_at_random_is_binomial(peak: int, gpus: int, each: int) -> None:
    above = binom.pmf(np.arange(peak + 1), peak, 1 / gpus) @ np.maximum(0, np.arange(peak + 1) - each)
    assert FleetDemand(peak=peak).blocked_at_random(gpus, each) == pytest.approx(
        above * gpus / peak, abs=1e-12
    )


def test_a_peak_dealt_out_at_random_loses_less_with_every_further_gpu() -> None:
    lost = [FleetDemand(peak=700).blocked_at_random(gpus, 10) for gpus in range(60, 90)]
    assert lost == sorted(lost, reverse=True)
    assert 0.1 < lost[10] < 0.14


@pytest.mark.parametrize(("erlangs", "servers"), [
    (0.5, 400), (30.0, 900), (5_000.0, 4_900), (5_000.0, 5_600), (1e6, 1_001_000), (3e9, 3 * 10**9),
    (1e-3, 10**9),
])  # fmt: skip
def test_any_size_is_computed_at_once_and_equals_the_truncated_poisson(erlangs: float, servers: int) -> None:
    """B(n) is the share of a Poisson's mass up to n that lies at n."""
    expected = float(poisson.logpmf(servers, erlangs) - poisson.logcdf(servers, erlangs))
    got = log_blocking(erlangs, servers)
    assert got == pytest.approx(expected, rel=1e-6, abs=1e-4) or (expected == -math.inf and got < -700)


def test_far_below_the_load_all_beyond_the_slots_are_rejected() -> None:
    assert blocking(3e9, 10**9) == pytest.approx(2 / 3, rel=1e-6)
