"""When a session whose connection ended knocks again, and how soon."""

from __future__ import annotations

from metronome_cli.backends.websocket.endpoint import ReconnectPolicy
from metronome_cli.core.types import EndReason

PAUSES_S = (0.5, 1.0, 2.0, 4.0, 8.0)  # before a knock that follows one in vain; the last from then on
BROKEN_OFF: frozenset[EndReason] = frozenset({"connection_closed", "send_blocked"})
IN_VAIN: frozenset[EndReason] = BROKEN_OFF | {"unreachable", "rejected", "queue_timeout"}


def should_reconnect(policy: ReconnectPolicy, reason: EndReason, *, seated: bool, returned: bool) -> bool:
    """Whether the policy lets it, after that end of a connection. `returned`: it did before."""
    if policy == "none" or (policy == "once" and returned):
        return False
    return reason in (BROKEN_OFF if seated else IN_VAIN)


def reconnect_delay_s(vain: int) -> float:
    """Before the next knock, after so many in vain."""
    return PAUSES_S[min(vain, len(PAUSES_S)) - 1] if vain else 0.0
