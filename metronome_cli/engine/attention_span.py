"""Which keys a query attends, as the cache policy and the model's own window leave it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Int64 = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class AttentionSpan:
    """Which keys a query at t attends: [0, sinks) and [t - window, t]; rolling sinks or absolute ones."""

    sinks: int
    window: int
    rolling: bool

    def shift(self, newest: Int64) -> Int64:
        """How far the sinks have rolled when the newest token is there: their distance stays as it was when
        the window filled, sinks + window for position 0.
        """
        return np.maximum(0, newest - (self.sinks + self.window))
