"""Sessions that come and go: their number stays what was asked for, their lengths what the distribution says."""

from __future__ import annotations

import numpy as np
import pytest

from metronome_cli.core.errors import UsageError
from metronome_cli.load.churn import Churn


@pytest.mark.parametrize("text", ["exp:30s", "lognormal:30s,0.8", "fixed:30s"])
def test_as_many_sessions_as_asked_are_open_at_any_time(text: str) -> None:
    """Mean over 40 seeds at three instants, against the number asked for; a Poisson number varies by its root."""
    seen = []
    for seed in range(40):
        sessions = list(Churn.parse(text).sessions(20, 120.0, seed))
        for t_s in (1.0, 40.0, 110.0):
            seen.append(sum(s.start_s <= t_s < s.start_s + s.lifetime_s for s in sessions))
    assert np.mean(seen) == pytest.approx(20, abs=4 * (20 / len(seen)) ** 0.5 + 0.5)


@pytest.mark.parametrize("text", ["exp:30s", "lognormal:30s,0.8", "fixed:30s"])
def test_lengths_have_the_mean_that_was_asked_for(text: str) -> None:
    lengths = Churn.parse(text).lengths_s(np.random.default_rng(0), 20_000)
    assert np.mean(lengths) == pytest.approx(30, rel=0.03)


def test_arrivals_are_in_order_and_the_same_for_a_seed() -> None:
    first, again = (list(Churn.parse("exp:5s").sessions(8, 60.0, 3)) for _ in range(2))
    assert first == again
    assert [s.start_s for s in first] == sorted(s.start_s for s in first)
    assert [s.index for s in first] == list(range(len(first)))


@pytest.mark.parametrize(
    "text", ["", "exp", "exp:0s", "lognormal:3m", "exp:3m,2", "lognormal:3m,x", "weibull:3m"]
)
def test_what_is_no_distribution_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        Churn.parse(text)
