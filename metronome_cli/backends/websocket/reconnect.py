"""Whether and when a session reconnects after its connection ended."""

from __future__ import annotations

from metronome_cli.backends.websocket.endpoint import ReconnectPolicy
from metronome_cli.core.types import EndReason

DELAYS_S = (
    0.5,
    1.0,
    2.0,
    4.0,
    8.0,
)  # s, before each attempt after a failed one; the last value repeats
BROKEN_OFF: frozenset[EndReason] = frozenset({"connection_closed", "send_blocked"})
CONNECTION_FAILED: frozenset[EndReason] = BROKEN_OFF | {"unreachable", "rejected", "queue_timeout"}


def should_reconnect(policy: ReconnectPolicy, reason: EndReason, *, ready: bool, returned: bool) -> bool:
    """Return True if the policy allows a new connection. `returned`: the session has reconnected before."""
    if policy == "none" or (policy == "once" and returned):
        return False
    return reason in (BROKEN_OFF if ready else CONNECTION_FAILED)


def reconnect_delay_s(failed_attempts: int) -> float:
    """Return the delay before the next attempt, s."""
    return DELAYS_S[min(failed_attempts, len(DELAYS_S)) - 1] if failed_attempts else 0.0
