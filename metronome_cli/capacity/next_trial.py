"""Which trial to run next: the one that narrows the answer most per second that it takes.

Two kinds: a confirmation, long enough to prove the objectives, of a number that probably holds; and a screening
trial of fixed length at a number that probably fails. Both are worth the log of the range that they close, times the
chance that they do, per second.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from metronome_cli.capacity.estimate import Estimator
from metronome_cli.capacity.trial_plan import LEAST_CONFIRM_S

LOOK_BATCHES, LOOK_S = 60, 2.0  # of a look, at the least
MARGIN = 1.02  # times N must probably hold as well, for N to be confirmed
TWO = 2.1  # confirmations that looks leave time for: one that passes, after one that does not
LIKELY = 0.6  # the same, once there is time for one confirmation alone
SURE_ENOUGH = 0.9  # chance that N holds, from which it is worth a confirmation
FLOOR = 1.5  # a safe number below N* / 1.5 is worth nothing
BELOW_S = 8.0  # of a look far below the load that the machine was expected to hold
CLOSE = 1.06  # failing / safe at which the answer is narrow enough
WORTH = 2e-3  # log range per second below which a trial is not worth its time
ONE_BAD = 1.5  # times the batches of a clean proof: what a confirmation may take


@dataclass(frozen=True, slots=True)
class NextTrial:
    """`confirm`: until proved or refuted, at least LEAST_CONFIRM_S; `look`: `length_s` whatever it shows."""

    kind: Literal["confirm", "look"]
    sessions: int
    length_s: float


@dataclass(frozen=True, slots=True)
class Tried:
    """Numbers of sessions that need no further confirmation, and all that were tried."""

    confirmed: set[int]
    all: set[int]
    confirmed_once: bool


class TrialChooser:
    """Chooses from an estimator's evidence. `needed`: batches of a clean proof; `setup_s`: of a trial, so far."""

    def __init__(self, evidence: Estimator, needed: int, confirm_s: float | None = None) -> None:
        self.evidence, self.needed, self._confirm_s = evidence, needed, confirm_s
        self.setup_s = 0.5

    def seconds_per_batch(self) -> NDArray[np.float64]:
        """For each N of the grid, from the trials nearest to it."""
        trials = [one for one in self.evidence.trials if len(one) > 1]
        if not trials:
            return np.full(len(self.evidence.grid), 0.05)
        each = {
            n: np.median([t.duration_s / len(t) for t in trials if t.sessions == n])
            for n in {t.sessions for t in trials}
        }
        at = sorted(each)
        found: NDArray[np.float64] = np.interp(np.log(self.evidence.grid), np.log(at), [each[n] for n in at])
        return found

    def confirm_seconds(self) -> NDArray[np.float64]:
        """How long a confirmation takes that passes, for each N."""
        if self._confirm_s is not None:
            return np.full(len(self.evidence.grid), self._confirm_s)
        kish = np.array([t.effective / len(t) for t in self.evidence.trials if len(t) >= 20] or [1.0])
        return np.maximum(
            LEAST_CONFIRM_S, 1.05 * self.needed / float(np.median(kish)) * self.seconds_per_batch()
        )

    def look(self, sessions: int) -> NextTrial:
        """A look at that number."""
        at = int(np.searchsorted(self.evidence.grid, sessions))
        each = self.seconds_per_batch()[min(at, len(self.evidence.grid) - 1)]
        return NextTrial("look", sessions, max(LOOK_S, LOOK_BATCHES * float(each)))

    def batches(self, trial: NextTrial) -> int:
        """As many as it has in its time."""
        at = min(int(np.searchsorted(self.evidence.grid, trial.sessions)), len(self.evidence.grid) - 1)
        return math.ceil(trial.length_s / float(self.seconds_per_batch()[at]))

    def confirm(self, sessions: int, left_s: float) -> NextTrial:
        """A confirmation of that number, with room for a bad batch if the time allows."""
        at = min(int(np.searchsorted(self.evidence.grid, sessions)), len(self.evidence.grid) - 1)
        clean_s = float(self.confirm_seconds()[at])
        return NextTrial("confirm", sessions, max(clean_s, min(ONE_BAD * clean_s, left_s)))

    def choose(self, safe: int | None, failing: int | None, done: Tried, left_s: float) -> NextTrial | None:
        """None if no trial that fits into `left_s` is worth its time."""
        evidence, grid = self.evidence, self.evidence.grid
        if safe and failing and failing <= max(safe + 1, CLOSE * safe):
            return None
        interval = evidence.interval
        if interval.sessions == 0:
            return self._below(done.all, left_s)
        likely = interval.sessions if failing is None else min(interval.sessions, failing - 1)
        floor = safe or max(0.5, likely / FLOOR)
        roof = failing or 1.5 * max(1, interval.high)
        clean_s = self.confirm_seconds()
        passes, fails = evidence.passes(self.needed), evidence.fails()
        open_to = (grid > (safe or 0)) & (grid < (failing or math.inf))
        above = np.array([evidence.chance(min(int(grid[-1]), MARGIN * n)) for n in grid])
        kept_s = float(np.interp(max(1, interval.sessions), grid, clean_s)) + self.setup_s
        kept_one_s = kept_s
        last = not safe and not done.confirmed_once and left_s < TWO * kept_s  # better a likely one than none
        fits = (
            (clean_s + self.setup_s <= left_s)
            & (above >= (LIKELY if last else SURE_ENOUGH))
            & (passes > 0.05)
        )
        new = ~np.isin(grid, list(done.confirmed))
        takes_s = clean_s * (0.4 + 0.6 * passes) + self.setup_s
        confirm = np.where(open_to & fits & new, passes * np.log(np.maximum(grid / floor, 1)) / takes_s, 0)
        look_s = np.maximum(LOOK_S, LOOK_BATCHES * self.seconds_per_batch()) + self.setup_s
        kept_s *= 0.0 if safe else 1.1 if done.confirmed_once else TWO
        tried = (
            (grid >= max(1, interval.sessions))
            & (grid < roof)
            & (grid > (safe or 0))
            & (look_s + kept_s <= left_s)
        )
        look = np.where(tried, fails * np.log(np.maximum(roof / grid, 1)) / look_s, 0)
        i, j = int(np.argmax(confirm)), int(np.argmax(look))
        if max(confirm[i], look[j]) < WORTH:
            return self._to_know_more(failing, left_s - (0.0 if safe or done.confirmed_once else kept_one_s))
        return self.confirm(int(grid[i]), left_s) if confirm[i] >= look[j] else self.look(int(grid[j]))

    def _below(self, looked_at: set[int], left_s: float) -> NextTrial | None:
        """If no number seems to hold: whether the load or the machine is to blame is seen far below, or at one."""
        sessions = max(1, self.evidence.undisturbed.sessions // 4)
        if sessions in looked_at or BELOW_S + self.setup_s > left_s:
            return None
        return NextTrial("look", sessions, BELOW_S) if sessions > 1 else self.confirm(1, left_s)

    def _to_know_more(self, failing: int | None, left_s: float) -> NextTrial | None:
        """A look at the estimate while its interval is wide, unless that number is known to fail."""
        interval = self.evidence.interval
        if failing is not None and interval.sessions >= failing:
            return None
        look = self.look(interval.sessions)
        wide = interval.high > 1.1 * interval.low
        return look if wide and look.length_s + self.setup_s <= left_s else None
