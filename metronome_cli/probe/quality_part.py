"""What a sweep saw, as the report has it."""

from __future__ import annotations

from metronome_cli.probe.quality.breakdown import Breakdown
from metronome_cli.probe.quality.interval import Estimate
from metronome_cli.probe.quality.recommend import VariantVerdict, age_tested, judge_variant, recommend
from metronome_cli.probe.quality.subject import ProbedModel
from metronome_cli.probe.quality.sweep import QualityProbe, VariantComparison, VariantResult, compare
from metronome_cli.results.quality_result import (
    AnsweredTurns,
    BreakdownResult,
    EstimateResult,
    FreeRunByAge,
    PerplexityByAge,
    QualityResult,
    QualityVariant,
    Recommended,
)


def quality_part(prober: QualityProbe, text: str, margin: float) -> QualityResult:
    """Every variant that was measured, each beside the first, and the recommendation."""
    subject, sweep = prober.subject, prober.sweep
    compared = [compare(seen, prober.baseline, subject.context) for seen in prober.seen]
    judged = [judge_variant(*pair, margin) for pair in zip(prober.seen, compared, strict=True)]
    bounded = [one for one in judged if one.variant.bounded]
    best = recommend(bounded)
    return QualityResult(
        model=subject.name,
        text=text if sweep.texts else None,
        text_tokens=sum(map(len, sweep.texts)),
        text_sessions=len(sweep.texts),
        questions=len(sweep.questions),
        sessions=sweep.sessions,
        context=subject.context,
        age_bucket_tokens=sweep.stretch,
        margin=margin,
        variants=[
            _variant(prober, seen, beside, one)
            for seen, beside, one in zip(prober.seen, compared, judged, strict=True)
        ],
        recommended=None if best is None else recommended(best, compared[judged.index(best)], subject),
    )


def recommended(best: VariantVerdict, beside: VariantComparison, subject: ProbedModel) -> Recommended:
    """The recommendation as the report has it."""
    return Recommended(
        name=str(best.variant),
        bytes_per_session=subject.bytes_per_session(best.variant),
        tested_up_to_tokens=best.tested,
        compared_up_to_tokens=beside.compared_to,
        why=best.why,
    )


def _variant(
    prober: QualityProbe, seen: VariantResult, beside: VariantComparison, judged: VariantVerdict
) -> QualityVariant:
    variant, bounded = seen.variant, seen.variant.bounded
    stop = min(max(0, seen.read - 1), prober.subject.context)
    return QualityVariant(
        name=str(variant),
        policy=str(variant.policy),
        window=variant.policy.window,
        sinks=variant.policy.sinks,
        sink_positions=variant.sink_positions,
        bytes_per_session=prober.subject.bytes_per_session(variant),
        tested_up_to_tokens=age_tested(seen),
        perplexity=seen.perplexity(0, stop),
        excess_loss_nats=measured(beside.excess),
        compared_tokens=beside.compared,
        by_age=_by_age(prober, seen),
        text_breakdown=_broke(seen.text_break),
        turns=turns_part(seen, beside) if seen.turns else None,
        free_run=[
            FreeRunByAge(
                age=one.start,
                repetition=one.repetition,
                distinct_1=one.distinct_1,
                distinct_2=one.distinct_2,
                entropy=one.entropy,
                pinned_repetition=one.echo,
            )
            for one in seen.said
        ],
        free_run_breakdown=_broke(seen.speech_break),
        sample=seen.sample,
        standing=judged.standing if bounded else "baseline",
        why=judged.why if bounded else _baseline_why(seen, prober.subject.context),
    )


def _by_age(prober: QualityProbe, seen: VariantResult) -> list[PerplexityByAge]:
    size = prober.sweep.stretch
    starts, _ = prober.stretch_losses(seen)
    found = []
    for start in starts:
        perplexity = seen.perplexity(start, start + size)
        if perplexity is not None:
            found.append(PerplexityByAge(age=start, tokens=size, perplexity=perplexity))
    return found


def _baseline_why(seen: VariantResult, context: int) -> str:
    if seen.text_break is not None:
        return f"past its trained context of {context:,} it breaks too, at {seen.text_break.age:,} tokens"
    return ""


def turns_part(seen: VariantResult, beside: VariantComparison) -> AnsweredTurns:
    """The turn-based regime."""
    return AnsweredTurns(
        turns=len(seen.turns),
        keywords=measured(beside.keywords),
        ended=measured(beside.ended),
        agreement=measured(beside.agreement),
        reference_loss=measured(beside.reference_loss),
        excess_loss_nats=measured(beside.turn_excess),
        dropped_frames=seen.dropped,
        late_step_share=seen.late,
    )


def measured(estimate: Estimate | None) -> EstimateResult | None:
    return (
        None
        if estimate is None
        else EstimateResult(value=estimate.value, low=estimate.low, high=estimate.high)
    )


def _broke(found: Breakdown | None) -> BreakdownResult | None:
    return None if found is None else BreakdownResult(age=found.age, how=found.how)
