"""Batches of one trial, as arrays."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Protocol, Self

import numpy as np
from numpy.typing import NDArray


class MeasuredBatch(Protocol):
    """One engine step, or the frames due in one period."""

    @property
    def t_s(self) -> float: ...
    @property
    def frames(self) -> int: ...
    @property
    def worst_ms(self) -> float: ...
    @property
    def median_ms(self) -> float: ...


@dataclass(frozen=True, slots=True)
class Samples:
    """`t_s`: when each batch was done, on the trial clock. `worst_ms`, `median_ms`: latency over its frames.

    `began_s`: when the trial began, in the search.
    """

    sessions: int
    t_s: NDArray[np.float64]
    frames: NDArray[np.float64]
    worst_ms: NDArray[np.float64]
    median_ms: NDArray[np.float64]
    began_s: float = 0.0

    @classmethod
    def of(cls, sessions: int, batches: Iterable[MeasuredBatch], began_s: float = 0.0) -> Self:
        """Batches without frames are left out."""
        rows = [(b.t_s, b.frames, b.worst_ms, b.median_ms) for b in batches if b.frames]
        columns = np.array(rows, dtype=np.float64).reshape(-1, 4).T
        latency = np.maximum(columns[2:], 1e-3)
        return cls(sessions, columns[0], columns[1], latency[0], latency[1], began_s)

    def __len__(self) -> int:
        return len(self.t_s)

    def only(self, keep: NDArray[np.bool_]) -> Self:
        """The batches that `keep` marks."""
        columns = {name: getattr(self, name)[keep] for name in ("t_s", "frames", "worst_ms", "median_ms")}
        return replace(self, **columns)

    @property
    def busy_ms(self) -> NDArray[np.float64]:
        """How long each step took: since the batch before it was done, or since its oldest frame was due.

        NaN for the first one, since when the one before it was done is not known.
        """
        return np.maximum(1e-3, np.minimum(np.diff(self.t_s, prepend=np.nan) * 1e3, self.worst_ms))

    @property
    def effective(self) -> float:
        """Kish's effective number of batches: a batch with more frames says more of the share of frames."""
        return float(self.frames.sum() ** 2 / (self.frames @ self.frames)) if len(self) else 0.0

    @property
    def duration_s(self) -> float:
        """From the first batch to the last, with one batch more for the time before the first."""
        count = len(self)
        return float(self.t_s[-1] - self.t_s[0]) * count / (count - 1) if count > 1 else 0.0
