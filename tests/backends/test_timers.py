"""Acts happen at their instants, in their order."""

import asyncio
import time

from hypothesis import given, settings
from hypothesis import strategies as st

from metronome_cli.backends.websocket.timers import MAX_PER_TURN, TimerQueue


@settings(max_examples=20, deadline=None)
@given(st.lists(st.floats(-0.01, 0.02), max_size=150))
def test_none_comes_early_and_due_times_keep_their_order(instants):
    done = []

    async def turn():
        zero = time.perf_counter()
        timers = TimerQueue(lambda: time.perf_counter() - zero)
        for instant in instants:
            timers.at(instant, lambda instant=instant: done.append((instant, time.perf_counter() - zero)))
        while len(done) < len(instants):
            await asyncio.sleep(0.001)

    asyncio.run(asyncio.wait_for(turn(), 10))
    assert all(at >= instant for instant, at in done)
    late = [instant for instant, _ in done if instant > 0.015]
    assert late == sorted(late)


def test_a_crowd_of_acts_lets_others_run_in_between():
    async def turn():
        timers = TimerQueue(lambda: 1.0)
        acts, seen = [], []
        for _ in range(3 * MAX_PER_TURN):
            timers.at(0.0, lambda: acts.append(0))
        while len(acts) < 3 * MAX_PER_TURN:
            await asyncio.sleep(0)
            seen.append(len(acts))
        return seen

    assert MAX_PER_TURN in asyncio.run(asyncio.wait_for(turn(), 10))


def test_an_act_may_plan_the_next():
    async def turn():
        zero, done = time.perf_counter(), []
        timers = TimerQueue(lambda: time.perf_counter() - zero)

        def act(k=0):
            done.append(k)
            if k < 5:
                timers.at(0.001 * k, lambda: act(k + 1))

        timers.at(0.0, act)
        while len(done) < 6:
            await asyncio.sleep(0.001)
        return done

    assert asyncio.run(asyncio.wait_for(turn(), 10)) == [0, 1, 2, 3, 4, 5]


def test_an_act_that_raises_stops_no_other():
    """Ten acts of ten sessions, of which every third fails: the others come, and each failure is reported."""
    done, reported = [], []

    def fail(number):
        raise ValueError(f"act {number}")

    async def turn():
        asyncio.get_running_loop().set_exception_handler(
            lambda loop, about: reported.append(about["exception"])
        )
        zero = time.perf_counter()
        timers = TimerQueue(lambda: time.perf_counter() - zero)
        for number in range(10):
            act = (lambda n=number: fail(n)) if number % 3 == 0 else (lambda n=number: done.append(n))
            timers.at(0.001 * number, act)
        while len(done) < 6:
            await asyncio.sleep(0.001)

    asyncio.run(asyncio.wait_for(turn(), 10))
    assert done == [1, 2, 4, 5, 7, 8]
    assert [str(error) for error in reported] == ["act 0", "act 3", "act 6", "act 9"][: len(reported)]
    assert len(reported) >= 3
