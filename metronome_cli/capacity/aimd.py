"""Admission by additive increase, multiplicative decrease on measured frame latency (arXiv:2607.02640).

Each window the controller compares a latency quantile with a target, a fraction of the frame budget. Below it the
limit on sessions grows by a constant; above it, or after a miss, it becomes a fraction of the open sessions.
As in TCP's slow start (RFC 5681) the limit may grow by a factor until the first decrease, here while latency is under
half the target. Sessions beyond the limit are rejected; open sessions are never closed. The controller sees only
latency, so it cannot detect a pool that fills.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Literal

Action = Literal["increase", "hold", "decrease"]


@dataclass(frozen=True, slots=True)
class AimdGains:
    """Gains of the controller. `target`: fraction of the deadline; `increase`: sessions per window; `decrease`: factor.

    `slow_start`: the limit's growth factor before the first decrease, far below the target; 1.0 for none.
    """

    target: float = 0.7
    increase: float = 4.0
    decrease: float = 0.85
    quantile: float = 0.95
    window_s: float = 0.5
    start: float = 4.0
    ceiling: float = 4096.0
    slow_start: float = 1.5

    def as_dict(self) -> dict[str, float]:
        """Return the gains for the report."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class AimdDecision:
    """Decision of the controller after one window."""

    cap: float
    action: Action
    latency_ms: float | None


class AimdController:
    """The controller. `cap` is the session limit."""

    def __init__(self, gains: AimdGains, deadline_ms: float) -> None:
        self.gains = gains
        self.cap = gains.start
        self.decreases = 0
        self._target_ms = gains.target * deadline_ms

    def update(self, latency_ms: float | None, missed: bool, started: int) -> AimdDecision:
        """Update the limit after a window with `started` open sessions. A window without frames changes nothing."""
        if latency_ms is None:
            return AimdDecision(self.cap, "hold", None)
        if missed or latency_ms > self._target_ms:
            self.cap = max(1.0, started * self.gains.decrease)
            self.decreases += 1
            return AimdDecision(self.cap, "decrease", latency_ms)
        if started < int(self.cap):  # the limit was not reached
            return AimdDecision(self.cap, "hold", latency_ms)
        slow_start = self.decreases == 0 and latency_ms < self._target_ms / 2
        grown = self.cap * self.gains.slow_start if slow_start else 0.0
        self.cap = min(max(self.cap + self.gains.increase, grown), self.gains.ceiling)
        return AimdDecision(self.cap, "increase", latency_ms)
