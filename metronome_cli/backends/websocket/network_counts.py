"""What only sockets tell of a run: handshakes, pacing, what the server says, why sessions were lost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from metronome_cli.core.types import EndReason
from metronome_cli.measure.histogram import LatencyHistogram

NOT_LOST: frozenset[EndReason] = frozenset({"completed", "shed"})


@dataclass(slots=True)
class NetworkCounts:
    """Of one driver."""

    handshake: LatencyHistogram = field(default_factory=LatencyHistogram)  # ms
    pacing: LatencyHistogram = field(default_factory=LatencyHistogram)  # ms late, each frame
    workers: int = 0
    cpu_share: float | None = None  # of one core, the busiest process with callers
    server_backlog: LatencyHistogram = field(default_factory=LatencyHistogram)  # ms, as the server says
    returns: int = 0  # of sessions whose connection broke off
    sent_s: float = 0.0
    heard_s: float = 0.0
    reasons: dict[str, str] = field(default_factory=dict)  # by reason, what the first one said


def reasons_in_words(ended: Counter[EndReason], said: dict[str, str]) -> str:
    """ "3 sessions were refused (HTTP 503), 1 closed (...)", the most frequent first; empty when none was lost."""
    parts: Sequence[str] = [
        f"{count} {reason}" + (f" ({said[reason]})" if said.get(reason) else "")
        for reason, count in ended.most_common()
        if reason not in NOT_LOST and count
    ]
    return ", ".join(parts)
