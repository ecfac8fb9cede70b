"""The age at which a session broke, if it did.

On a text: the first stretch whose loss is more than ln 2 nats a token above what it should be (perplexity
twice as high), if the next stretch is too or there is none. What it should be: the unbounded model's
loss on the same stretch while that is within the trained context; past it the unbounded model is no measure,
and the variant's own mean loss over the stretches before is taken.

In free decoding: the first stretch that is a loop (repetition at least half), an echo of what is pinned (echo
at least half) or noise (entropy at least half of an even guess's), and stays so to the end.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from metronome_cli.probe.quality.free_running import AgeBucket

TWICE = math.log(2)
HALF = 0.5


@dataclass(frozen=True, slots=True)
class Breakdown:
    """`age`: tokens that the session had seen where it began."""

    age: int
    how: str


def broke_on_text(
    losses: Sequence[float], baseline: Sequence[float], starts: Sequence[int], context: int
) -> Breakdown | None:
    """losses, baseline: mean nats a token of each stretch, equally long, beginning at `starts`.

    `baseline` may be shorter; it is not read where a stretch passes `context`.
    """
    length = starts[1] - starts[0] if len(starts) > 1 else 0
    high = []
    for at, (start, loss) in enumerate(zip(starts, losses, strict=True)):
        if start + length <= context and at < len(baseline):
            high.append(loss - baseline[at] > TWICE)
        else:
            healthy = [one for one, bad in zip(losses[:at], high, strict=True) if not bad]
            high.append(bool(healthy) and loss - statistics.fmean(healthy) > TWICE)
    for at, bad in enumerate(high):
        if bad and all(high[at : at + 2]):
            return Breakdown(starts[at], "predicts the text half as well as before")
    return None


def broke_in_speech(found: Sequence[AgeBucket], vocabulary: int) -> Breakdown | None:
    """The stretch from which every later one is broken, and in which way the first of them is."""
    kinds = [_kind(stretch, vocabulary) for stretch in found]
    first = len(kinds)
    while first > 0 and kinds[first - 1] is not None:
        first -= 1
    if first == len(kinds):
        return None
    return Breakdown(found[first].start, str(kinds[first]))


def _kind(stretch: AgeBucket, vocabulary: int) -> str | None:
    if stretch.echo is not None and stretch.echo >= HALF:
        return "echoes what is pinned"
    if stretch.repetition >= HALF:
        return "loops"
    return "noise" if stretch.entropy >= HALF * math.log(vocabulary) else None
