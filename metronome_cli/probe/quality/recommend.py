"""The recommendation: the smallest (W, S) whose quality cannot be distinguished from unbounded.

The test is one of non-inferiority. A variant is "equivalent" when the upper end of the interval of its excess
loss over the unbounded model, on the same tokens, is within the margin (5 % of perplexity, ln 1.05 nats,
unless another was given), in every regime that was measured, and it broke at no age tested. It is "worse"
when a lower end lies above the margin, "breaks_down" when it broke,
and "inconclusive" in between: more text would settle
it. Free decoding has no reference; it only counts as broken or not.

Smallest: fewest tokens kept, then fewest sinks, rolling before absolute.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from metronome_cli.probe.quality.breakdown import Breakdown
from metronome_cli.probe.quality.interval import Estimate
from metronome_cli.probe.quality.subject import CacheVariant
from metronome_cli.probe.quality.sweep import MARGIN, VariantComparison, VariantResult

VariantStanding = Literal["equivalent", "worse", "breaks_down", "inconclusive"]


@dataclass(frozen=True, slots=True)
class VariantVerdict:
    """One variant's standing, and why. `tested`: the age in tokens up to which it was looked at."""

    variant: CacheVariant
    standing: VariantStanding
    why: str
    tested: int


def judge_variant(seen: VariantResult, compared: VariantComparison, margin: float = MARGIN) -> VariantVerdict:
    """The standing of a bounded variant."""
    tested = age_tested(seen)
    broke = _first(seen.text_break, seen.speech_break)
    if broke is not None:
        return VariantVerdict(seen.variant, "breaks_down", f"at {broke.age:,} tokens it {broke.how}", tested)
    known = [("text", compared.excess), ("answers", compared.turn_excess)]
    regimes = [(name, excess) for name, excess in known if excess is not None]
    if not regimes:
        return VariantVerdict(
            seen.variant, "inconclusive", "the window never slid: too little was read", tested
        )
    for name, excess in regimes:
        if excess.low > margin:
            return VariantVerdict(seen.variant, "worse", f"{name}: perplexity {_percent(excess)}", tested)
    for name, excess in regimes:
        if excess.high > margin:
            return VariantVerdict(
                seen.variant, "inconclusive", f"{name}: perplexity {_percent(excess)}", tested
            )
    name, excess = regimes[0]
    return VariantVerdict(seen.variant, "equivalent", f"{name}: perplexity {_percent(excess)}", tested)


def recommend(judged: Sequence[VariantVerdict]) -> VariantVerdict | None:
    """Return the smallest variant of equal quality; None if none was shown to be equal."""
    good = [one for one in judged if one.standing == "equivalent"]
    return min(good, key=_size, default=None)


def age_tested(seen: VariantResult) -> int:
    """Tokens of the longest session of this variant."""
    ages = [seen.read]
    ages += [turn.age for turn in seen.turns]
    ages += [stretch.start for stretch in seen.said]
    return max(ages)


def _size(one: VariantVerdict) -> tuple[int, int, bool]:
    return one.variant.resident, one.variant.policy.sinks, one.variant.sink_positions == "absolute"


def _first(*breaks: Breakdown | None) -> Breakdown | None:
    return min((one for one in breaks if one is not None), key=lambda one: one.age, default=None)


def _percent(excess: Estimate) -> str:
    low, value, high = (100 * math.expm1(x) for x in (excess.low, excess.value, excess.high))
    return f"{value:+.1f} % ({low:+.1f} to {high:+.1f})"
