"""The controller settles near what a latency curve allows, and learns nothing from silence."""

from metronome_cli.capacity.aimd import AimdController, AimdGains

GAINS = AimdGains(target=0.7, increase=4, decrease=0.8, start=4, slow_start=1.0)


def settle(latency_of, windows=300):
    controller = AimdController(GAINS, deadline_ms=80.0)
    seen = []
    for _ in range(windows):
        started = int(controller.cap)
        controller.update(latency_of(started), missed=False, started=started)
        seen.append(started)
    return seen


def test_it_saws_around_the_concurrency_that_meets_the_target():
    tail = settle(lambda n: 1.0 * n)[-100:]
    assert min(tail) >= 0.75 * 56
    assert max(tail) <= 56 + GAINS.increase + 1


def test_silence_on_time_looks_like_health_and_it_over_admits():
    assert settle(lambda n: 5.0)[-1] > 1000


def test_without_frames_there_is_nothing_to_learn():
    controller = AimdController(GAINS, 80.0)
    assert controller.update(None, missed=False, started=4).action == "hold"
    assert controller.cap == GAINS.start


def test_room_that_nothing_uses_does_not_grow():
    controller = AimdController(GAINS, 80.0)
    assert controller.update(5.0, missed=False, started=2).action == "hold"


def test_a_miss_shrinks_the_cap_to_a_share_of_those_admitted():
    controller = AimdController(GAINS, 80.0)
    controller.cap = 100
    decision = controller.update(20.0, missed=True, started=50)
    assert decision.action == "decrease"
    assert controller.cap == 40


def test_far_below_the_target_the_cap_grows_by_a_factor_until_the_first_decrease():
    controller = AimdController(AimdGains(target=0.5, increase=4, start=16, slow_start=1.5), 80.0)
    controller.update(10.0, missed=False, started=16)
    assert controller.cap == 24
    controller.update(30.0, missed=False, started=24)  # under the target, over half of it
    assert controller.cap == 28
    controller.update(50.0, missed=False, started=28)
    low = controller.cap
    controller.update(10.0, missed=False, started=int(low))
    assert controller.cap == low + 4


def test_slow_start_is_never_slower_than_the_constant():
    controller = AimdController(AimdGains(start=2, increase=4, slow_start=1.5), 80.0)
    assert controller.update(1.0, missed=False, started=2).cap == 6
