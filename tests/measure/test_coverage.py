"""Simulated trials of known truth: at 99 % at most 1.5 % of verdicts are wrong, however often they are asked for.

The true share of late frames is exactly what the objective allows, which is the hardest case for both sides: neither a
pass nor a failure is right there. Each trial is judged every two seconds until it passes, fails, or has spent the
batches that a confirmation is given.
"""

import numpy as np
import pytest

from metronome_cli.measure.objective import Objective
from metronome_cli.measure.recorder import Recorder, SecondCounts
from metronome_cli.measure.verdict import judge

TRIALS, BATCHES, PER_SECOND = 1500, 1008, 12
P99 = Objective.parse("p99<80ms")


def simulated(rng, sizes, together):
    """Frames and late frames of each batch; with probability `together` all frames of a batch share one fate."""
    frames = rng.choice(sizes, BATCHES)
    all_late = rng.random(BATCHES) < 0.01
    alone = rng.binomial(frames, 0.01)
    return frames, np.where(rng.random(BATCHES) < together, all_late * frames, alone)


def verdict_of(frames, late):
    """The first verdict that is not inconclusive."""
    recorder = Recorder(80.0, [80.0])
    total, entries = recorder.total, recorder.seconds.entries
    for second in range(BATCHES // PER_SECOND):
        m, x = (each[second * PER_SECOND : (second + 1) * PER_SECOND] for each in (frames, late))
        counts = (int(m.sum()), int((m**2).sum()), int(x.sum()))
        entries.append(SecondCounts(float(second), PER_SECOND, *counts, [counts[2]]))
        total.batches += PER_SECOND
        total.frames += counts[0]
        total.frames_sq += counts[1]
        total.misses = total.over[0] = total.misses + counts[2]
        if second % 2 and worth_asking(total):
            found = judge(P99, recorder, None).verdict
            if found != "inconclusive":
                return found
    return "inconclusive"


def worth_asking(total):
    """Whether a verdict can be anything else than inconclusive: spares what would only cost time."""
    share = total.misses / total.frames
    effective = total.frames**2 / total.frames_sq
    return share > 0.015 or (effective > 450 and share * effective < 3)


@pytest.mark.parametrize(
    ("sizes", "together"), [([1], 0.0), ([8], 1.0), (range(1, 81), 1.0), (range(1, 81), 0.0)]
)
def test_at_the_limit_few_trials_pass_or_fail(sizes, together):
    rng = np.random.default_rng(20)
    verdicts = [verdict_of(*simulated(rng, list(sizes), together)) for _ in range(TRIALS)]
    assert verdicts.count("pass") <= 0.015 * TRIALS
    assert verdicts.count("fail") <= 0.015 * TRIALS


def test_half_the_limit_never_fails_and_twice_the_limit_never_passes():
    rng = np.random.default_rng(21)
    for share, wrong in ((0.005, "fail"), (0.02, "pass")):
        late = (rng.random((300, BATCHES)) < share).astype(int)
        found = [verdict_of(np.ones(BATCHES, dtype=int), row) for row in late]
        assert found.count(wrong) <= 1
