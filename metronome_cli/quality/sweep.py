"""The sweep: every (W, S) and both places of sinks, against the unbounded model, on one code path.

The unbounded model is the baseline. S = 0 of every W is the control: the same path, the same window, nothing
pinned. A baseline is measured first, so each later variant can be compared as it comes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from metronome_cli.config.policy import PolicySpec, SinkPositions
from metronome_cli.quality.breaking import Break, broke_in_speech, broke_on_text
from metronome_cli.quality.generation import STRETCH, Said, Stretch, speak_freely, stretches
from metronome_cli.quality.interval import Estimate, mean_of, share_of
from metronome_cli.quality.material import Question
from metronome_cli.quality.stream import Losses, Watch, stream_losses
from metronome_cli.quality.subject import UNBOUNDED, Subject, Variant, refuse_untrained
from metronome_cli.quality.turns import Turn, agreement, conversations, talk_in_turns

WINDOWS = (256, 1024)
SINKS = (0, 1, 4, 16, 32, 64)
PINNED_PROMPT = "Tell me a long story about a village by the sea, and do not stop."

Progress = Callable[[str, float], bool]  # what is under way, share of the whole done -> whether to go on


@dataclass(frozen=True, slots=True)
class Sweep:
    """What is measured. 0 of `stream`, `turns` or `spoken` leaves that regime out.

    stream: tokens of the text. turns: of each session. spoken: tokens of free decoding.
    """

    variants: Sequence[Variant]
    text: Sequence[int] = ()
    stretch: int = 1024
    questions: Sequence[Question] = ()
    turns: int = 0
    sessions: int = 4
    spoken: int = 0
    temperature: float = 0.8
    seed: int = 0


def grid(
    windows: Sequence[int] = WINDOWS,
    sinks: Sequence[int] = SINKS,
    positions: Sequence[SinkPositions] = ("rolling", "absolute"),
) -> list[Variant]:
    """Unbounded first, then every (W, S), S = 0 of each W always among them. Sinks have no place where
    there are none."""
    found = [UNBOUNDED]
    for window in sorted(set(windows)):
        for count in sorted({0, *sinks}):
            kinds = positions if count else ("rolling",)
            found += [Variant(PolicySpec("window", window, count), kind) for kind in kinds]
    return found


@dataclass(slots=True)
class Seen:
    """What was measured of one variant. losses: nats of every token of the text but the first."""

    variant: Variant
    losses: Losses | None = None
    turns: list[Turn] = field(default_factory=list)
    said: list[Stretch] = field(default_factory=list)
    sample: str = ""
    text_break: Break | None = None
    speech_break: Break | None = None
    dropped: int | None = None  # frames of sound that found no room
    late: float | None = None  # share of frame steps beyond the deadline

    def perplexity(self, start: int, stop: int) -> float | None:
        """Of tokens [start, stop) of the losses; None where they were not all measured."""
        if self.losses is None or stop > len(self.losses) or stop <= start:
            return None
        return float(np.exp(self.losses[start:stop].mean()))


@dataclass(slots=True)
class Comparison:
    """One variant beside the unbounded model, as measured so far."""

    excess: Estimate | None = None  # nats a token of text, where both can be compared
    compared: int = 0  # tokens
    turn_excess: Estimate | None = None  # nats a token of reference answers
    agreement: Estimate | None = None
    keywords: Estimate | None = None
    ended: Estimate | None = None
    reference_loss: Estimate | None = None


class Prober:
    """Runs a sweep on one subject."""

    def __init__(self, subject: Subject, sweep: Sweep, progress: Progress = lambda what, done: True) -> None:
        self.subject = subject
        self.sweep = sweep
        self.seen: list[Seen] = []
        self.stopped = False
        self._progress = progress
        self._talks = conversations(sweep.questions, sweep.sessions, sweep.turns) if sweep.turns else []
        self._whole = len(sweep.variants) * max(1, self._weight())
        self._before = 0

    def run(self) -> list[Seen]:
        """Every variant that was reached before a stop. Raises UsageError for weights that are untrained."""
        for variant in self.sweep.variants:
            seen = Seen(variant)
            self._measure(seen)
            if self.stopped:
                break
            self.seen.append(seen)
        return self.seen

    @property
    def baseline(self) -> Seen:
        return self.seen[0]

    def _measure(self, seen: Seen) -> None:
        sweep, variant = self.sweep, seen.variant
        if len(sweep.text) > 1:
            seen.losses = stream_losses(self.subject, variant, sweep.text, self._watch(variant, "text", 1))
            self._before += len(sweep.text)
            if not self.seen and not self.stopped:
                refuse_untrained(float(seen.losses.mean()), self.subject)
        if self._talks and not self.stopped:
            self._ask(seen, self._watch(variant, "questions", 60))
            self._before += 60 * sweep.turns * sweep.sessions
            if not self.seen and seen.losses is None and not self.stopped:
                self._refuse_by_answers(seen)
        if sweep.spoken and not self.stopped:
            self._speak(seen)
            self._before += 10 * sweep.spoken
        if not self.stopped:
            self._find_breaks(seen)

    def _refuse_by_answers(self, seen: Seen) -> None:
        """Where no text was read, the reference answers say whether the weights are trained."""
        losses = [turn.loss for turn in seen.turns if turn.loss is not None]
        if losses:
            refuse_untrained(sum(losses) / len(losses), self.subject)

    def _ask(self, seen: Seen, watch: Watch) -> None:
        """Fill in the turn-based regime."""
        seen.turns = talk_in_turns(self.subject, seen.variant, self._talks, watch)

    def _speak(self, seen: Seen) -> None:
        sweep, variant = self.sweep, seen.variant
        prompt = self.subject.tokens.turn(PINNED_PROMPT, first=True)
        said = speak_freely(
            self.subject,
            variant,
            prompt,
            sweep.spoken,
            sessions=2,
            temperature=sweep.temperature,
            seed=sweep.seed,
            watch=self._watch(variant, "free speech", 10),
        )
        seen.said = stretches(said, pinned_of(variant, prompt, said), STRETCH)
        seen.sample = self.subject.tokens.decode(said[0].tokens[-48:])

    def _find_breaks(self, seen: Seen) -> None:
        starts, losses = self.stretch_losses(seen)
        first = self.seen[0] if self.seen else seen
        found = broke_on_text(losses, self.stretch_losses(first)[1], starts, self.subject.context)
        if found is not None:  # nothing can break before the window slides
            seen.text_break = replace(found, age=max(found.age, seen.variant.resident))
        seen.speech_break = broke_in_speech(seen.said, len(self.subject.words.embedding))

    def stretch_losses(self, seen: Seen) -> tuple[list[int], list[float]]:
        """Starts and mean losses of the whole stretches of the text."""
        if seen.losses is None:
            return [], []
        size = self.sweep.stretch
        starts = list(range(0, len(seen.losses) - size + 1, size))
        return starts, [float(seen.losses[start : start + size].mean()) for start in starts]

    def _watch(self, variant: Variant, what: str, weight: int) -> Callable[[int], bool]:
        def watch(done: int) -> bool:
            share = (self._before + weight * done) / self._whole
            go_on = self._progress(f"{variant}: {what}", min(1.0, share))
            self.stopped = self.stopped or not go_on
            return go_on

        return watch

    def _weight(self) -> int:
        sweep = self.sweep
        return len(sweep.text) + 60 * sweep.turns * sweep.sessions + 10 * sweep.spoken


def pinned_of(variant: Variant, prompt: Sequence[int], said: Sequence[Said]) -> Sequence[int]:
    """The tokens that sinks keep: the head of the prompt, and beyond it what the first session said."""
    return [*prompt, *(said[0].tokens if said else ())][: variant.policy.sinks]


def compare(seen: Seen, baseline: Seen, context: int) -> Comparison:
    """One variant beside the unbounded model.

    On the text: from the token at which the window first slides, where the two begin to differ, to the end
    of the trained context, past which the unbounded model is no measure. Pairs of the same tokens, and of
    the same turns, those from which the window had slid away.
    """
    found = Comparison()
    if seen.losses is not None and baseline.losses is not None:
        start, stop = seen.variant.resident, min(len(seen.losses), len(baseline.losses), context)
        if seen.variant.bounded and stop > start:
            found.excess = mean_of(seen.losses[start:stop] - baseline.losses[start:stop])
            found.compared = stop - start
    if seen.turns:
        _compare_turns(found, seen, baseline)
    return found


def _compare_turns(found: Comparison, seen: Seen, baseline: Seen) -> None:
    turns = seen.turns
    found.keywords = share_of(sum(turn.keywords for turn in turns), len(turns))
    found.ended = share_of(sum(turn.ended for turn in turns), len(turns))
    found.reference_loss = mean_of([turn.loss for turn in turns if turn.loss is not None], block=1)
    pairs = [pair for pair in zip(turns, baseline.turns, strict=False) if pair[0].age > seen.variant.resident]
    if seen.variant.bounded:
        losses = [(one.loss, other.loss) for one, other in pairs]
        both = [one - other for one, other in losses if one is not None and other is not None]
        found.turn_excess = mean_of(both, block=1)
        found.agreement = mean_of([agreement(one.answer, other.answer) for one, other in pairs], block=1)
