"""When missing output is called a silent collapse: frames on time, and nothing in them.

A collapse is declared if, for the silence timeout on the trial clock, every frame that owed output came back empty
(`Recorder.collapsed`). It counts from the due time of the first such frame, so listening is no silence. Neither
lateness nor the counts of running and waiting sessions take part: a stalled engine misses no deadline.
"""

from __future__ import annotations


def silence_timeout_s(period_s: float) -> float:
    """How long nothing but empty frames may come before it is a silence: 2 s, and 10 periods at the least."""
    return max(2.0, 10 * period_s)
