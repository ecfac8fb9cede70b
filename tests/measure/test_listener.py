"""All calls of a trial: evidence by periods against a schedule that is known, and the outcomes of turns."""

from __future__ import annotations

import pytest

from metronome_cli.core.call_events import CallEvent, CallEventKind
from metronome_cli.measure.listener import Listener, ListenerSetup

K = CallEventKind


def steady(period_s: float = 0.08, delay_s: float = 0.0) -> Listener:
    return Listener(ListenerSetup(period_s, steady=True, delay_s=delay_s))


def test_calls_on_time_starve_in_no_period() -> None:
    listener = steady()
    for k in range(500):
        for session in range(3):
            listener.take(CallEvent(session, 0.08 * k + 0.01 * session, K.SOUND, 0.08))
        listener.look(0.08 * k + 0.05)
    listener.close(40.0)
    underrun = listener.share("underrun")
    assert underrun.bad == 0
    assert underrun.units == pytest.approx(3 * 500, abs=5)
    assert underrun.effective()[1] == pytest.approx(500, abs=3)


def test_one_stall_of_one_call_is_counted_in_the_periods_that_it_spans() -> None:
    listener = steady()
    for k in range(100):
        for session in range(2):
            late_s = 0.4 if session == 0 and 50 <= k < 55 else 0.0
            listener.take(
                CallEvent(session, max(0.08 * k, 0.08 * 50 + 0.4) if late_s else 0.08 * k, K.SOUND, 0.08)
            )
        listener.look(0.08 * k)
    listener.close(8.0)
    assert listener.share("underrun").bad == 5
    assert listener.longest_gap_s == pytest.approx(0.4)
    assert listener.calls[0].playback.need_s == pytest.approx(0.4)
    assert listener.calls[1].playback.need_s == pytest.approx(0.0)


def test_a_delay_hides_a_stall_that_is_no_longer() -> None:
    listener = steady(delay_s=0.4)
    for k in range(100):
        at_s = max(0.08 * k, 4.4) if 50 <= k < 55 else 0.08 * k
        listener.take(CallEvent(0, at_s, K.SOUND, 0.08))
        listener.look(at_s)
    listener.close(8.0)
    assert listener.share("underrun").bad == 0


def test_every_delay_that_is_asked_for_has_its_evidence() -> None:
    listener = Listener(ListenerSetup(0.08, delay_s=0.0, other_delays_s=(0.2, 0.4)))
    for k in range(100):
        at_s = max(0.08 * k, 4.4) if 50 <= k < 55 else 0.08 * k
        listener.take(CallEvent(0, at_s, K.SOUND, 0.08))
        listener.look(at_s)
    listener.close(8.0)
    bad = [listener.delays[delay_s].share.bad for delay_s in (0.0, 0.2, 0.4)]
    assert bad[0] == 5
    assert 0 < bad[1] < 5
    assert bad[2] == 0


def test_a_stream_that_stops_starves_until_the_last_look() -> None:
    listener = steady()
    listener.take(CallEvent(0, 0.0, K.SOUND, 0.08))
    for tick in range(1, 41):
        listener.look(tick * 0.08)
    assert listener.share("underrun").bad == 39
    assert listener.share("underrun").units == 40


def test_silence_between_answers_is_not_listened_to() -> None:
    listener = Listener(ListenerSetup(0.08, steady=False))
    for start_s in (1.0, 11.0):
        listener.take(CallEvent(0, start_s, K.ANSWER_BEGAN))
        listener.take(CallEvent(0, start_s, K.SOUND, 2.0))
        listener.take(CallEvent(0, start_s + 0.1, K.ANSWER_DONE))
    listener.look(20.0)
    listener.close(20.0)
    assert listener.share("underrun").bad == 0
    assert listener.share("underrun").units == pytest.approx(50, abs=2)
    assert listener.shares["gappy"].units == 2
    assert listener.shares["broken"].units == 2


def test_an_answer_that_breaks_off_is_broken_and_starves() -> None:
    listener = Listener(ListenerSetup(0.08, steady=False))
    listener.take(CallEvent(0, 1.0, K.ANSWER_BEGAN))
    listener.take(CallEvent(0, 1.0, K.SOUND, 0.08))
    listener.look(2.0)
    listener.take(CallEvent(0, 3.0, K.ANSWER_BROKEN))
    listener.close(4.0)
    assert listener.shares["broken"].bad == 1
    assert listener.longest_gap_s == pytest.approx(1.92)


def test_turns_of_a_scripted_call() -> None:
    listener = Listener(ListenerSetup(0.08, steady=False, delay_s=0.1, limits={"reply": (1200.0,)}))
    script = [(0.0, 3.0, 3.9), (11.0, 14.0, 15.2), (22.0, 25.0, None)]
    for starts_s, ends_s, sound_s in script:
        listener.take(CallEvent(0, starts_s, K.TURN, ends_s))
        if sound_s is not None:
            listener.take(CallEvent(0, sound_s - 0.4, K.USER_ENDED))
            listener.take(CallEvent(0, sound_s - 0.1, K.ANSWER_BEGAN))
            listener.take(CallEvent(0, sound_s, K.SOUND, 1.0))
            listener.take(CallEvent(0, sound_s + 0.2, K.ANSWER_DONE))
    listener.look(36.0)
    assert listener.asked == 3
    assert listener.shares["unanswered"].bad == 1
    assert listener.unheard == 1
    assert listener.times["reply"].histogram.max_ms == pytest.approx(1300.0)
    assert listener.times["reply"].over[1200.0].bad == 2, "the slow one and the one that never came"
    assert listener.times["think"].histogram.max_ms == pytest.approx(400.0)


def test_what_came_before_a_restart_counts_nowhere() -> None:
    listener = steady()
    listener.take(CallEvent(0, 0.0, K.SOUND, 0.08))
    listener.take(CallEvent(0, 1.0, K.SOUND, 0.08))
    listener.look(1.04)
    listener.restart()
    for k in range(1, 50):
        listener.take(CallEvent(0, 1.0 + 0.08 * k, K.SOUND, 0.08))
    listener.close(5.0)
    assert listener.share("underrun").bad == 0
    assert listener.longest_gap_s == 0.0


def test_the_speed_of_the_uneven_answer_is_one() -> None:
    listener = Listener(ListenerSetup(0.08, steady=False))
    listener.take(CallEvent(0, 0.0, K.ANSWER_BEGAN))
    for at_s in (0.0, 0.150, 0.430, 0.700, 0.800):
        listener.take(CallEvent(0, at_s, K.SOUND, 0.2))
    listener.take(CallEvent(0, 0.8, K.ANSWER_DONE))
    assert listener.times["rtf"].histogram.max_ms == pytest.approx(1000.0)
    assert listener.shares["gappy"].bad == 0
