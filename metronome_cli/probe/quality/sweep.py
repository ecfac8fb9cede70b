"""The sweep: every (W, S) and both places of sinks, against the unbounded model, on one code path.

The unbounded model is the baseline. S = 0 of every W is the control: the same path, the same window, nothing
pinned. A baseline is measured first, so each later variant can be compared as it comes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from metronome_cli.config.cache_policy import CachePolicySpec, SinkPositions
from metronome_cli.probe.quality.breakdown import Breakdown, broke_in_speech, broke_on_text
from metronome_cli.probe.quality.conversations import (
    ConversationTurn,
    agreement,
    ask_questions,
    conversations,
)
from metronome_cli.probe.quality.free_running import STRETCH, AgeBucket, GeneratedText, age_buckets, free_run
from metronome_cli.probe.quality.interval import Estimate, mean_of, mean_of_stretches, share_of
from metronome_cli.probe.quality.material import Question
from metronome_cli.probe.quality.subject import UNBOUNDED, CacheVariant, ProbedModel, refuse_untrained
from metronome_cli.probe.quality.text_stream import Losses, ProgressCheck, stream_losses

WINDOWS = (256, 1024)
SINKS = (0, 1, 4, 16, 32, 64)
MARGIN = math.log(1.05)  # nats a token: 5 % of perplexity
PINNED_PROMPT = "Tell me a long story about a village by the sea, and do not stop."

ProgressCallback = Callable[
    [str, float], bool
]  # what is under way, share of the whole done -> whether to go on


@dataclass(frozen=True, slots=True)
class QualitySweep:
    """What is measured. No `texts`, or 0 of `turns` or `spoken`, leaves that regime out.

    texts: tokens of each text, read by a session of its own from the text's beginning. turns: of each session.
    spoken: tokens of free decoding. margin: nats a token above unbounded that count as nothing; a variant that
    is twice its interval beyond it reads no further text.
    """

    variants: Sequence[CacheVariant]
    texts: Sequence[Sequence[int]] = ()
    stretch: int = 1024
    questions: Sequence[Question] = ()
    turns: int = 0
    sessions: int = 4
    spoken: int = 0
    temperature: float = 0.8
    seed: int = 0
    margin: float = MARGIN


def grid(
    windows: Sequence[int] = WINDOWS,
    sinks: Sequence[int] = SINKS,
    positions: Sequence[SinkPositions] = ("rolling", "absolute"),
) -> list[CacheVariant]:
    """Unbounded first, then every (W, S), S = 0 of each W always among them. Sinks have no place where
    there are none."""
    found = [UNBOUNDED]
    for window in sorted(set(windows)):
        for count in sorted({0, *sinks}):
            kinds = positions if count else ("rolling",)
            found += [CacheVariant(CachePolicySpec("window", window, count), kind) for kind in kinds]
    return found


@dataclass(slots=True)
class VariantResult:
    """What was measured of one variant. losses: of each text, nats of every token but the first."""

    variant: CacheVariant
    losses: list[Losses] = field(default_factory=list)
    turns: list[ConversationTurn] = field(default_factory=list)
    said: list[AgeBucket] = field(default_factory=list)
    sample: str = ""
    text_break: Breakdown | None = None
    speech_break: Breakdown | None = None
    dropped: int | None = None  # frames of sound that found no room
    late: float | None = None  # share of frame steps beyond the deadline

    def perplexity(self, start: int, stop: int) -> float | None:
        """Of tokens [start, stop) of the texts that are that long; None where none is."""
        parts = [losses[start:stop] for losses in self.losses if start < stop <= len(losses)]
        return float(np.exp(np.concatenate(parts).mean())) if parts else None

    @property
    def read(self) -> int:
        """Tokens of the longest text that was read; 0 without one."""
        return max((len(losses) + 1 for losses in self.losses), default=0)


@dataclass(slots=True)
class VariantComparison:
    """One variant beside the unbounded model, as measured so far."""

    excess: Estimate | None = None  # nats a token of text, where both can be compared
    compared: int = 0  # tokens
    compared_to: int = 0  # age in tokens up to which
    turn_excess: Estimate | None = None  # nats a token of reference answers
    agreement: Estimate | None = None
    keywords: Estimate | None = None
    ended: Estimate | None = None
    reference_loss: Estimate | None = None


class QualityProbe:
    """Runs a sweep on one subject."""

    def __init__(
        self, subject: ProbedModel, sweep: QualitySweep, progress: ProgressCallback = lambda what, done: True
    ) -> None:
        self.subject = subject
        self.sweep = sweep
        self.seen: list[VariantResult] = []
        self.stopped = False
        self._progress = progress
        self._talks = conversations(sweep.questions, sweep.sessions, sweep.turns) if sweep.turns else []
        self._whole = len(sweep.variants) * max(1, self._weight())
        self._before = 0

    def run(self) -> list[VariantResult]:
        """Every variant that was reached before a stop. Raises UsageError for weights that are untrained."""
        for variant in self.sweep.variants:
            seen = VariantResult(variant)
            self._measure(seen)
            if self.stopped:
                break
            self.seen.append(seen)
        return self.seen

    @property
    def baseline(self) -> VariantResult:
        return self.seen[0]

    def _measure(self, seen: VariantResult) -> None:
        sweep, variant = self.sweep, seen.variant
        for number, text in enumerate(sweep.texts, start=1):
            if not self.stopped and not self._lost(seen):
                self._read(seen, text, f"text {number} of {len(sweep.texts)}")
            self._before += len(text)
        if self._talks and not self.stopped:
            self._ask(seen, self._watch(variant, "questions", 60))
            self._before += 60 * sweep.turns * sweep.sessions
            if not self.seen and not seen.losses and not self.stopped:
                self._refuse_by_answers(seen)
        if sweep.spoken and not self.stopped:
            self._speak(seen)
            self._before += 10 * sweep.spoken
        if not self.stopped:
            self._find_breaks(seen)

    def _read(self, seen: VariantResult, text: Sequence[int], what: str) -> None:
        seen.losses.append(
            stream_losses(self.subject, seen.variant, text, self._watch(seen.variant, what, 1))
        )
        if not self.seen and len(seen.losses) == 1 and not self.stopped:
            refuse_untrained(float(seen.losses[0].mean()), self.subject)

    def _lost(self, seen: VariantResult) -> bool:
        """Whether what was read shows so surely that it is worse that no more text could change it."""
        if not self.seen or not seen.losses:
            return False
        excess = compare(seen, self.baseline, self.subject.context).excess
        return excess is not None and 2 * excess.low - excess.value > self.sweep.margin

    def _refuse_by_answers(self, seen: VariantResult) -> None:
        """Where no text was read, the reference answers say whether the weights are trained."""
        losses = [turn.loss for turn in seen.turns if turn.loss is not None]
        if losses:
            refuse_untrained(sum(losses) / len(losses), self.subject)

    def _ask(self, seen: VariantResult, watch: ProgressCheck) -> None:
        """Fill in the turn-based regime."""
        seen.turns = ask_questions(self.subject, seen.variant, self._talks, watch)

    def _speak(self, seen: VariantResult) -> None:
        sweep, variant = self.sweep, seen.variant
        prompt = self.subject.tokens.turn(PINNED_PROMPT, first=True)
        said = free_run(
            self.subject,
            variant,
            prompt,
            sweep.spoken,
            sessions=2,
            temperature=sweep.temperature,
            seed=sweep.seed,
            watch=self._watch(variant, "free speech", 10),
        )
        seen.said = age_buckets(said, pinned_of(variant, prompt, said), STRETCH)
        seen.sample = self.subject.tokens.decode(said[0].tokens[-48:])

    def _find_breaks(self, seen: VariantResult) -> None:
        starts, losses = self.stretch_losses(seen)
        first = self.seen[0] if self.seen else seen
        found = broke_on_text(losses, self.stretch_losses(first)[1], starts, self.subject.context)
        if found is not None:  # nothing can break before the window slides
            seen.text_break = replace(found, age=max(found.age, seen.variant.resident))
        seen.speech_break = broke_in_speech(seen.said, len(self.subject.vocabulary.embedding))

    def stretch_losses(self, seen: VariantResult) -> tuple[list[int], list[float]]:
        """Starts and mean losses of the whole stretches, over all texts that reach so far."""
        size = self.sweep.stretch
        starts = list(range(0, seen.read - size, size))
        aged = [
            [losses[at : at + size] for losses in seen.losses if len(losses) >= at + size] for at in starts
        ]
        return starts, [float(np.concatenate(parts).mean()) for parts in aged]

    def _watch(self, variant: CacheVariant, what: str, weight: int) -> Callable[[int], bool]:
        def watch(done: int) -> bool:
            share = (self._before + weight * done) / self._whole
            go_on = self._progress(f"{variant}: {what}", min(1.0, share))
            self.stopped = self.stopped or not go_on
            return go_on

        return watch

    def _weight(self) -> int:
        sweep = self.sweep
        return sum(map(len, sweep.texts)) + 60 * sweep.turns * sweep.sessions + 10 * sweep.spoken


def pinned_of(variant: CacheVariant, prompt: Sequence[int], said: Sequence[GeneratedText]) -> Sequence[int]:
    """The tokens that sinks keep: the head of the prompt, and beyond it what the first session said."""
    return [*prompt, *(said[0].tokens if said else ())][: variant.policy.sinks]


def compare(seen: VariantResult, baseline: VariantResult, context: int) -> VariantComparison:
    """One variant beside the unbounded model.

    On the texts: from the token at which the window first slides, where the two begin to differ, to the end
    of the trained context, past which the unbounded model is no measure. Pairs of the same tokens, and of
    the same turns, those from which the window had slid away.
    """
    found = VariantComparison()
    if seen.variant.bounded:
        ages = slice(seen.variant.resident, context)
        pairs = zip(seen.losses, baseline.losses, strict=False)
        excess = [one[ages] - other[ages] for one, other in pairs if len(one) == len(other)]
        found.excess = mean_of_stretches(excess)
        found.compared = sum(map(len, excess))
        reached = max((len(one) + ages.start + 1 for one in excess if len(one)), default=0)
        found.compared_to = min(reached, context)
    if seen.turns:
        _compare_turns(found, seen, baseline)
    return found


def _compare_turns(found: VariantComparison, seen: VariantResult, baseline: VariantResult) -> None:
    turns = seen.turns
    found.keywords = share_of(sum(turn.keywords for turn in turns), len(turns))
    found.ended = share_of(sum(turn.ended for turn in turns), len(turns))
    found.reference_loss = mean_of([turn.loss for turn in turns if turn.loss is not None])
    pairs = [pair for pair in zip(turns, baseline.turns, strict=False) if pair[0].age > seen.variant.resident]
    if seen.variant.bounded:
        losses = [(one.loss, other.loss) for one, other in pairs]
        both = [one - other for one, other in losses if one is not None and other is not None]
        found.turn_excess = mean_of(both)
        found.agreement = mean_of([agreement(one.answer, other.answer) for one, other in pairs])
