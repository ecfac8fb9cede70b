"""The sweep on a small model: the control is always there, and the recommendation follows its test."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from metronome_cli.config.cache_policy import CachePolicySpec
from metronome_cli.core.errors import UsageError
from metronome_cli.probe.quality.breakdown import Breakdown
from metronome_cli.probe.quality.interval import Estimate
from metronome_cli.probe.quality.material import bundled_questions
from metronome_cli.probe.quality.recommend import judge_variant, recommend
from metronome_cli.probe.quality.subject import UNBOUNDED, CacheVariant
from metronome_cli.probe.quality.sweep import (
    QualityProbe,
    QualitySweep,
    VariantComparison,
    VariantResult,
    compare,
    grid,
)
from metronome_cli.probe.quality_part import quality_part
from metronome_cli.probe.quality_report import split_text
from tests.probe.toy import stream_of, toy_subject

SUBJECT = toy_subject()
STREAM = stream_of(SUBJECT, 420)


def window(tokens: int, sinks: int = 0, positions: str = "rolling") -> CacheVariant:
    return CacheVariant(CachePolicySpec("window", tokens, sinks), positions)  # type: ignore[arg-type]


def test_unbounded_is_first_and_every_window_has_its_control() -> None:
    found = grid([256, 64], [4, 16])
    assert found[0] == UNBOUNDED
    assert {window(64), window(256)} < set(found)
    assert window(64, 4, "absolute") in found
    assert len(found) == len(set(found)) == 1 + 2 * (1 + 2 * 2)
    assert not any(one.sink_positions == "absolute" for one in found if not one.policy.sinks)


def test_a_sweep_fills_every_regime() -> None:
    sweep = QualitySweep(grid([32], [4]), [STREAM], 100, bundled_questions(), turns=3, sessions=2, spoken=256)
    part = quality_part(QualityProbe(SUBJECT, sweep), "toy", math.log(1.05))
    assert part.variants == []  # nothing was run yet
    prober = QualityProbe(SUBJECT, sweep)
    prober.run()
    part = quality_part(prober, "toy", math.log(1.05))
    assert [one.standing == "baseline" for one in part.variants] == [True] + [False] * 3
    for one in part.variants:
        assert [stretch.age for stretch in one.by_age] == [0, 100, 200, 300]
        assert one.turns is not None
        assert one.turns.turns == 6
        assert [stretch.age for stretch in one.free_run] == [0, 128]
    narrow = next(one for one in part.variants if one.policy == "window(32, 0)")
    assert narrow.compared_tokens == len(STREAM) - 1 - 32
    assert narrow.excess_loss_nats is not None


def test_progress_never_goes_back_and_a_stop_keeps_whole_variants() -> None:
    shares: list[float] = []

    def watch(what: str, share: float) -> bool:
        shares.append(share)
        return share < 0.5

    prober = QualityProbe(SUBJECT, QualitySweep(grid([32], [4]), [STREAM]), watch)
    seen = prober.run()
    assert shares == sorted(shares)
    assert prober.stopped
    assert 0 < len(seen) < 4
    assert all([len(losses) for losses in one.losses] == [len(STREAM) - 1] for one in seen)


def test_untrained_weights_are_refused() -> None:
    dull = toy_subject(sharpness=0.05)
    with pytest.raises(UsageError, match="real weights"):
        QualityProbe(dull, QualitySweep(grid([32], [4]), [STREAM])).run()


def seen_with(variant: CacheVariant, losses: float | None = None) -> VariantResult:
    seen = VariantResult(variant)
    if losses is not None:
        seen.losses = [np.full(2000, losses)]
    return seen


@pytest.mark.parametrize(
    ("excess", "standing"),
    [((0.0, -0.01, 0.01), "equivalent"), ((0.2, 0.1, 0.3), "worse"), ((0.04, 0.01, 0.07), "inconclusive")],
)
def test_the_standing_follows_the_interval(excess: tuple[float, float, float], standing: str) -> None:
    compared = VariantComparison(excess=Estimate(*excess))
    assert judge_variant(seen_with(window(256)), compared).standing == standing


def test_one_bad_regime_spoils_a_good_one_and_no_data_is_open() -> None:
    good, bad = Estimate(0.0, -0.01, 0.01), Estimate(0.5, 0.4, 0.6)
    assert (
        judge_variant(seen_with(window(256)), VariantComparison(excess=good, turn_excess=bad)).standing
        == "worse"
    )
    assert judge_variant(seen_with(window(256)), VariantComparison()).standing == "inconclusive"


def test_what_broke_is_never_recommended() -> None:
    good = VariantComparison(excess=Estimate(0.0, -0.01, 0.01))
    broken = seen_with(window(64, 4, "absolute"))
    broken.text_break = Breakdown(9000, "predicts the text half as well as before")
    judged = [judge_variant(broken, good)]
    assert judged[0].standing == "breaks_down"
    assert recommend(judged) is None
    judged += [judge_variant(seen_with(one), good) for one in (window(512), window(256, 16), window(256, 4))]
    best = recommend(judged)
    assert best is not None
    assert best.variant == window(256, 4)


def test_past_the_trained_context_unbounded_is_no_measure() -> None:
    base, bounded = seen_with(UNBOUNDED, 3.0), seen_with(window(256, 4), 3.0)
    base.losses[0][1000:] = 9.0
    found = compare(bounded, base, context=1000)
    assert found.excess is not None
    assert found.excess.value == pytest.approx(0)
    assert found.compared == 1000 - 260
    assert found.compared_to == 1000


def test_streams_are_compared_each_with_its_own() -> None:
    """One more session that loses nothing halves the mean excess; none of its tokens meet another's."""
    base, bounded = seen_with(UNBOUNDED, 3.0), seen_with(window(256, 4), 3.2)
    base.losses.append(np.full(2000, 1.0))
    bounded.losses.append(np.full(2000, 1.0))
    found = compare(bounded, base, context=8192)
    assert found.excess is not None
    assert found.excess.value == pytest.approx(0.1)
    assert found.compared == 2 * (2000 - 260)
    assert found.compared_to == 2001


def test_streams_of_a_sweep_read_parts_of_their_own() -> None:
    half = len(STREAM) // 2
    prober = QualityProbe(SUBJECT, QualitySweep(grid([32], [4]), [STREAM[:half], STREAM[half:]], 100))
    prober.run()
    alone = QualityProbe(SUBJECT, QualitySweep(grid([32], [4]), [STREAM[half:]], 100))
    alone.run()
    np.testing.assert_allclose(prober.seen[1].losses[1], alone.seen[1].losses[0], atol=1e-5)
    part = quality_part(prober, "toy", math.log(1.05))
    assert part.text_sessions == 2
    assert part.text_tokens == len(STREAM)
    assert [stretch.age for stretch in part.variants[1].by_age] == [0, 100]


def test_what_is_surely_worse_reads_no_further() -> None:
    """The control without sinks of a narrow window loses at once; what is within the margin reads it all."""
    texts = [STREAM[at : at + 200] for at in (0, 100, 200)]
    wide = CacheVariant(CachePolicySpec("window", 128, 4))
    shares: list[float] = []

    def watch(what: str, share: float) -> bool:
        shares.append(share)
        return True

    sweep = QualitySweep([UNBOUNDED, window(8), wide], texts, 100, margin=1e-6)
    prober = QualityProbe(SUBJECT, sweep, watch)
    prober.run()
    unbounded, narrow, _ = prober.seen
    assert len(unbounded.losses) == 3
    assert len(narrow.losses) < 3
    assert judge_variant(narrow, compare(narrow, unbounded, 512), sweep.margin).standing == "worse"
    assert shares == sorted(shares)
    assert shares[-1] == pytest.approx(1.0, abs=0.02)
    generous = QualityProbe(SUBJECT, replace(sweep, margin=100.0))
    generous.run()
    assert [len(seen.losses) for seen in generous.seen] == [3, 3, 3]


def test_a_text_is_cut_evenly_or_refused() -> None:
    ids = list(range(1000))
    assert [part[0] for part in split_text(ids, 4, 200, "a.txt")] == [0, 250, 500, 750]
    assert {len(part) for part in split_text(ids, 4, 200, "a.txt")} == {200}
    assert [len(part) for part in split_text(ids, 2, 0, "a.txt")] == [500, 500]
    assert [len(part) for part in split_text(ids, 1, 5000, "a.txt")] == [1000]  # one takes what there is
    with pytest.raises(UsageError, match=r"a\.txt has 1,000 tokens, 250 for each stream of 300"):
        split_text(ids, 4, 300, "a.txt")
