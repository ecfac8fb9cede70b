"""Playback arithmetic: worked examples, and properties against a player simulated in small steps of time."""

from __future__ import annotations

import math
import random

import pytest

from metronome_cli.measure.playback import DELAYS_S, CallPlayback

UNEVEN = [(0.0, 0.2), (0.150, 0.2), (0.430, 0.2), (0.700, 0.2), (0.800, 0.2)]


def play(
    chunks: list[tuple[float, float]], delay_s: float = 0.0, headroom_s: float = math.inf
) -> CallPlayback:
    call = CallPlayback(delay_s, headroom_s)
    for at_s, seconds in chunks:
        call.sound(at_s, seconds)
    return call


def held_up() -> list[tuple[float, float]]:
    """80 ms frames of a full-duplex stream; two times seven of them are held up by 500 ms and sent at once."""
    arrivals = [0.08 * k for k in range(40)]
    for first in (3, 20):
        for k in range(first, first + 7):
            arrivals[k] = max(arrivals[k], 0.08 * first + 0.5 + 0.001 * (k - first))
    return [(at, 0.08) for at in arrivals]


def test_the_worked_example_of_an_uneven_answer() -> None:
    call = play(UNEVEN)
    assert call.player.gaps == 2
    assert call.player.longest_s == pytest.approx(0.070)
    assert call.player.starved_s == pytest.approx(0.100)
    assert call.need_s == pytest.approx(0.100)
    assert call.underrun() == pytest.approx(0.1 / 1.1)
    assert call.enough(0.08)
    assert not call.enough(0.04)


@pytest.mark.parametrize(("delay_s", "starved_s"), [(0.04, 0.060), (0.08, 0.020), (0.1, 0.0)])
def test_a_playback_delay_takes_its_length_off_the_gaps(delay_s: float, starved_s: float) -> None:
    assert play(UNEVEN, delay_s).player.starved_s == pytest.approx(starved_s, abs=1e-9)


def test_a_long_pause_late_in_an_answer_is_its_need() -> None:
    arrivals = [0.360 + 0.153 * k for k in range(10)] + [1.894, 2.054, 3.496]
    call = play(list(zip(arrivals, [0.16] * 12 + [8689 / 48000], strict=True)))
    assert call.need_s == pytest.approx(1.216)
    assert call.player.longest_s == pytest.approx(1.216)


def test_a_full_duplex_player_that_keeps_its_delay_hears_both_stalls() -> None:
    keeping, patient = play(held_up(), 0.0, 0.08), play(held_up())
    assert keeping.player.gaps == 2
    assert keeping.player.starved_s == pytest.approx(0.92, abs=0.01)
    assert patient.player.gaps == 1
    assert keeping.need_s == pytest.approx(0.5)
    assert patient.need_s == pytest.approx(0.5)


def test_a_stream_that_stops_for_good_starves_its_listener() -> None:
    call = play([(0.0, 0.08), (0.08, 0.08)], 0.0, 0.08)
    assert call.look(3.0) == pytest.approx(2.84)
    call.end(5.0, owing=True)
    assert call.player.longest_s == pytest.approx(4.84)
    assert call.player.gaps == 1


def test_a_complete_answer_that_is_played_out_has_no_gap() -> None:
    call = play([(0.0, 20.0)])
    call.end(1.0)
    assert call.underrun() == 0.0
    assert call.need_s == 0.0
    assert call.gappy == 0


def test_without_sound_nothing_is_known() -> None:
    call = CallPlayback()
    call.end(3.0, owing=True)
    assert call.need_s is None
    assert call.underrun() is None
    assert not call.enough(1.0)


def test_sound_thrown_away_at_an_interruption_is_not_starved() -> None:
    call = play([(0.0, 2.0)])
    assert call.interrupt(0.5) == pytest.approx(1.5)
    call.sound(4.0, 0.1)
    call.end(4.1)
    assert call.player.starved_s == 0.0
    assert call.answers == 2


def test_what_is_told_adds_up_to_what_is_counted() -> None:
    starved: list[tuple[float, float]] = []
    listened: list[tuple[float, float]] = []
    call = CallPlayback(
        0.0, math.inf, lambda a, b: starved.append((a, b)), lambda a, b: listened.append((a, b))
    )
    for at_s, seconds in UNEVEN:
        call.look(at_s - 0.01)
        call.sound(at_s, seconds)
    call.end(0.8)
    assert sum(b - a for a, b in starved) == pytest.approx(0.100)
    assert sum(b - a for a, b in listened) == pytest.approx(1.100)
    assert listened[-1][1] == pytest.approx(1.100)


def simulated_starvation(chunks: list[tuple[float, float]], delay_s: float, headroom_s: float) -> float:
    """Starved milliseconds of a player with a queue, advanced 1 ms at a time; chunks at whole milliseconds."""
    arrivals = [(round(at * 1000), round(m * 1000)) for at, m in chunks]
    start = arrivals[0][0] + round(delay_s * 1000)
    queue = starved = 0
    now, last = arrivals[0][0], arrivals[-1][0]
    waiting = list(arrivals)
    while now <= last:
        while waiting and waiting[0][0] == now:
            ahead = queue + (start - now if now < start else 0)
            queue += waiting.pop(0)[1]
            most = (delay_s + headroom_s) * 1000
            if ahead > most:
                queue -= round(ahead - most)
        if now >= start:
            if queue:
                queue -= 1
            elif now < last:
                starved += 1
        now += 1
    return starved


@pytest.mark.parametrize("headroom_s", [0.08, math.inf])
@pytest.mark.parametrize("seed", range(8))
def test_a_player_with_a_queue_starves_for_as_long(seed: int, headroom_s: float) -> None:
    rng = random.Random(seed)
    at, chunks = 0, []
    for _ in range(60):
        chunks.append((at / 1000, 0.08))
        at += rng.choice([0, 20, 80, 80, 80, 80, 140, 300])
    for delay_s in (0.0, 0.08):
        exact = play(chunks, delay_s, headroom_s).player.starved_s
        assert exact * 1000 == pytest.approx(simulated_starvation(chunks, delay_s, headroom_s), abs=1.01)


@pytest.mark.parametrize("headroom_s", [0.08, math.inf])
@pytest.mark.parametrize("seed", range(20))
def test_more_delay_never_starves_longer_and_need_is_the_least_that_leaves_no_gap(
    seed: int, headroom_s: float
) -> None:
    rng = random.Random(seed)
    at, chunks = 0.0, []
    for _ in range(50):
        chunks.append((at, 0.08))
        at += rng.expovariate(1 / 0.08)
    call = play(chunks, 0.0, headroom_s)
    starved = [player.starved_s for player in sorted(call.players, key=lambda one: one.delay_s)]
    assert starved == sorted(starved, reverse=True)
    assert len(call.players) == len(DELAYS_S)
    assert call.need_s is not None
    assert play(chunks, call.need_s + 1e-9, headroom_s).player.starved_s == pytest.approx(0.0, abs=1e-6)
    if call.need_s > 0.01:
        assert play(chunks, call.need_s - 0.005, headroom_s).player.starved_s > 0.004
