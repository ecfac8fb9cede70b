"""Where callers come in: each has a number, whether he is let in or not, and those who leave are counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from metronome_cli.core.types import EndReason
from metronome_cli.load.arrivals import Arrival

Note = Callable[[int, Arrival], None]  # takes down a caller at the door, by index


class Door:
    """Of one population. `ended`: how those ended who were let in; `refused`: those who were not."""

    def __init__(self, note: Note | None = None) -> None:
        self.ended: Counter[EndReason] = Counter()
        self.refused = 0
        self._note = note
        self._next_index = 0

    def knock(self, arrival: Arrival) -> int:
        """A caller is at the door, whether he is let in or not: his index, which decides what he says and hears."""
        index = self._next_index
        self._next_index += 1
        if self._note is not None:
            self._note(index, arrival)
        return index
