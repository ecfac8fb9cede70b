"""What a transcript under load lost against the transcript of the same audio by the same server alone.

No true transcript is needed: the reference is the idle pass. Words are compared without case and punctuation and
aligned by edit distance within an utterance. dropped = deletions / words of the reference. Words on which two idle
passes disagree are unstable and left out. The delay of a word with a time is arrival - (start of the call's audio + end
of the word); of one without, `added` only: the same word's arrival under load minus alone, each from its call's start.
Known error: a word that is corrected later counts from when it stands for good.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Step = Literal["same", "changed", "dropped", "added"]
_WORD = re.compile(r"[^\W_]+(?:['\u2019][^\W_]+)*")


def words_of(text: str) -> list[str]:
    """Words in lower case, without punctuation."""
    return _WORD.findall(text.casefold())


@dataclass(frozen=True, slots=True)
class AlignedWord:
    """One step of an alignment; the index is None on the side that lacks the word."""

    step: Step
    reference: int | None
    heard: int | None


def align(reference: Sequence[str], heard: Sequence[str]) -> list[AlignedWord]:
    """The fewest changes that turn `reference` into `heard`; of equally few, the one with the most words the same."""
    n, m = len(reference), len(heard)
    best: list[list[tuple[int, int, Step]]] = [[(0, 0, "same")] * (m + 1) for _ in range(n + 1)]
    for i in range(n + 1):
        for j in range(m + 1):
            if i or j:
                best[i][j] = min(_options(best, reference, heard, i, j), key=lambda option: option[:2])
    return _trace_back(best, n, m)


def _options(
    best: list[list[tuple[int, int, Step]]], reference: Sequence[str], heard: Sequence[str], i: int, j: int
) -> list[tuple[int, int, Step]]:
    """(changes, minus words the same, last step) of each way to get to (i, j)."""
    options: list[tuple[int, int, Step]] = []
    if i and j:
        cost, same, _ = best[i - 1][j - 1]
        equal = reference[i - 1] == heard[j - 1]
        options.append((cost, same - 1, "same") if equal else (cost + 1, same, "changed"))
    if i:
        cost, same, _ = best[i - 1][j]
        options.append((cost + 1, same, "dropped"))
    if j:
        cost, same, _ = best[i][j - 1]
        options.append((cost + 1, same, "added"))
    return options


def _trace_back(best: list[list[tuple[int, int, Step]]], i: int, j: int) -> list[AlignedWord]:
    path: list[AlignedWord] = []
    while i or j:
        step = best[i][j][2]
        i, j = i - (step != "added"), j - (step != "dropped")
        path.append(AlignedWord(step, None if step == "added" else i, None if step == "dropped" else j))
    return path[::-1]


@dataclass(frozen=True, slots=True)
class WordCounts:
    """Words of one utterance, or of several together."""

    same: int = 0
    changed: int = 0
    dropped: int = 0
    added: int = 0
    unstable: int = 0

    @property
    def reference(self) -> int:
        """Words of the reference that count."""
        return self.same + self.changed + self.dropped

    @property
    def dropped_share(self) -> float | None:
        """None without a word."""
        return self.dropped / self.reference if self.reference else None


def compare_words(reference: str, heard: str, again: str | None = None) -> WordCounts:
    """`heard` under load against `reference` alone; `again`: a second pass alone, which tells the unstable words."""
    words = words_of(reference)
    unstable = set() if again is None else _unstable(words, words_of(again))
    steps = [
        one for one in align(words, words_of(heard)) if one.reference is None or one.reference not in unstable
    ]
    count = {name: sum(one.step == name for one in steps) for name in ("same", "changed", "dropped", "added")}
    return WordCounts(**count, unstable=len(unstable))


def _unstable(first: Sequence[str], second: Sequence[str]) -> set[int]:
    """Places of `first` whose word the second pass does not repeat."""
    return {one.reference for one in align(first, second) if one.reference is not None and one.step != "same"}


def word_delays(reference: Sequence[tuple[str, float]], heard: Sequence[tuple[str, float]]) -> list[float]:
    """Delay added to each word that is the same: (word, arrival since the call's first sample, s) of both passes."""
    steps = align([word for word, _ in reference], [word for word, _ in heard])
    return [
        heard[one.heard][1] - reference[one.reference][1]
        for one in steps
        if one.step == "same" and one.reference is not None and one.heard is not None
    ]
