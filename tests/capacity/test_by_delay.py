"""Answers by playback delay, and which number of sessions is tried next at one."""

from metronome_cli.capacity.by_delay import by_delay, in_words
from metronome_cli.capacity.delay_search import next_sessions
from metronome_cli.results.capacity_result import TrialResult
from metronome_cli.results.listener_result import DelayVerdict, Playback


def trial(sessions, verdict, at_120=None, delay_ms=0.0, purpose="confirm"):
    other = [] if at_120 is None else [DelayVerdict(delay_ms=120.0, verdict=at_120)]
    playback = Playback(delay_ms=delay_ms, at_delays=other)
    return TrialResult(sessions=sessions, verdict=verdict, purpose=purpose, playback=playback)


TRIALS = [
    trial(24, "pass", "pass"),
    trial(25, "fail", "pass"),
    trial(99, "fail", "fail", purpose="screen"),
    trial(36, "pass", delay_ms=120.0),
    trial(40, "fail", delay_ms=120.0),
]


def test_each_delay_has_its_answer_from_the_same_trials():
    found = by_delay((0.0, 0.12), TRIALS)
    assert [(one.delay_ms, one.safe_sessions, one.first_failing) for one in found] == [
        (0, 24, 25),
        (120, 36, 40),
    ]
    assert in_words(found) == " By playback delay: 24 at 0 ms, 36 at 120 ms."


def test_one_delay_is_no_comparison():
    assert by_delay((0.0,), TRIALS) == []
    assert in_words([]) == ""


def test_the_next_trial_grows_until_one_fails_and_then_halves():
    assert next_sessions(0.12, TRIALS[:2], 4096) == 31
    assert next_sessions(0.12, TRIALS[:2], 26) == 26
    assert next_sessions(0.12, TRIALS, 4096) == 38
    assert next_sessions(0.0, TRIALS, 4096) is None, "24 held and 25 failed"
    assert next_sessions(0.12, [], 4096) is None


def test_a_delay_at_which_nothing_was_judged_has_no_answer():
    (_, other) = by_delay((0.0, 0.5), TRIALS)
    assert other.safe_sessions is None
    assert other.first_failing is None
