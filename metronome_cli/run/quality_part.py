"""What a sweep saw, as the report has it."""

from __future__ import annotations

from metronome_cli.quality.advice import Judged, age_tested, judge_variant, recommend
from metronome_cli.quality.breaking import Break
from metronome_cli.quality.interval import Estimate
from metronome_cli.quality.subject import Subject
from metronome_cli.quality.sweep import Comparison, Prober, Seen, compare
from metronome_cli.report.quality import (
    AgedPerplexity,
    AnsweredTurns,
    Broke,
    Measured,
    Quality,
    QualityVariant,
    Recommended,
    SpokenStretch,
)


def quality_part(prober: Prober, text: str, margin: float) -> Quality:
    """Every variant that was measured, each beside the first, and the recommendation."""
    subject, sweep = prober.subject, prober.sweep
    compared = [compare(seen, prober.baseline, subject.context) for seen in prober.seen]
    judged = [judge_variant(*pair, margin) for pair in zip(prober.seen, compared, strict=True)]
    bounded = [one for one in judged if one.variant.bounded]
    best = recommend(bounded)
    return Quality(
        model=subject.name,
        text=text if sweep.texts else None,
        text_tokens=sum(map(len, sweep.texts)),
        streams=len(sweep.texts),
        questions=len(sweep.questions),
        sessions=sweep.sessions,
        context=subject.context,
        stretch=sweep.stretch,
        margin=margin,
        variants=[
            _variant(prober, seen, beside, one)
            for seen, beside, one in zip(prober.seen, compared, judged, strict=True)
        ],
        recommended=None if best is None else recommended(best, compared[judged.index(best)], subject),
    )


def recommended(best: Judged, beside: Comparison, subject: Subject) -> Recommended:
    """The recommendation as the report has it."""
    return Recommended(
        name=str(best.variant),
        bytes_per_session=subject.bytes_per_session(best.variant),
        tested=best.tested,
        compared_to=beside.compared_to,
        why=best.why,
    )


def _variant(prober: Prober, seen: Seen, beside: Comparison, judged: Judged) -> QualityVariant:
    variant, bounded = seen.variant, seen.variant.bounded
    stop = min(max(0, seen.read - 1), prober.subject.context)
    return QualityVariant(
        name=str(variant),
        policy=str(variant.policy),
        window=variant.policy.window,
        sinks=variant.policy.sinks,
        sink_positions=variant.sink_positions,
        bytes_per_session=prober.subject.bytes_per_session(variant),
        tested=age_tested(seen),
        perplexity=seen.perplexity(0, stop),
        excess=measured(beside.excess),
        compared=beside.compared,
        by_age=_by_age(prober, seen),
        text_broke=_broke(seen.text_break),
        turns=turns_part(seen, beside) if seen.turns else None,
        spoken=[
            SpokenStretch(
                age=one.start,
                repetition=one.repetition,
                distinct_1=one.distinct_1,
                distinct_2=one.distinct_2,
                entropy=one.entropy,
                echo=one.echo,
            )
            for one in seen.said
        ],
        spoken_broke=_broke(seen.speech_break),
        sample=seen.sample,
        standing=judged.standing if bounded else "baseline",
        why=judged.why if bounded else _baseline_why(seen, prober.subject.context),
    )


def _by_age(prober: Prober, seen: Seen) -> list[AgedPerplexity]:
    size = prober.sweep.stretch
    starts, _ = prober.stretch_losses(seen)
    found = []
    for start in starts:
        perplexity = seen.perplexity(start, start + size)
        if perplexity is not None:
            found.append(AgedPerplexity(age=start, tokens=size, perplexity=perplexity))
    return found


def _baseline_why(seen: Seen, context: int) -> str:
    if seen.text_break is not None:
        return f"past its trained context of {context:,} it breaks too, at {seen.text_break.age:,} tokens"
    return ""


def turns_part(seen: Seen, beside: Comparison) -> AnsweredTurns:
    """The turn-based regime."""
    return AnsweredTurns(
        turns=len(seen.turns),
        keywords=measured(beside.keywords),
        ended=measured(beside.ended),
        agreement=measured(beside.agreement),
        reference_loss=measured(beside.reference_loss),
        excess=measured(beside.turn_excess),
        dropped_frames=seen.dropped,
        late_steps=seen.late,
    )


def measured(estimate: Estimate | None) -> Measured | None:
    return None if estimate is None else Measured(value=estimate.value, low=estimate.low, high=estimate.high)


def _broke(found: Break | None) -> Broke | None:
    return None if found is None else Broke(age=found.age, how=found.how)
