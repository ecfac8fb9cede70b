"""Timeouts and output limits of a session on a socket."""

from __future__ import annotations

from metronome_cli.backends.streaming.pacing import Pacing
from metronome_cli.backends.websocket.answers import AnswerMatcher
from metronome_cli.backends.websocket.connection import SessionConnection
from metronome_cli.backends.websocket.endpoint import SessionTimeouts
from metronome_cli.backends.websocket.playback_answers import PlaybackMatcher
from metronome_cli.core.types import EndReason

EndCause = tuple[EndReason, str]
RIGHTFUL_SILENCE = 6  # times the idle timeout, if no answer is owed: a listening model may be silent


class SessionWatchdog:
    """Limits of one session. Checks return the cause of its end, or None. Times in s on the trial clock."""

    def __init__(self, limits: SessionTimeouts, pacing: Pacing) -> None:
        self._limits = limits
        self._pacing = pacing
        self._second_s = 0.0  # start of the second in which messages are counted
        self.reset()

    def reset(self) -> None:
        """Start over for a new connection."""
        self._blocked_since: float | None = None
        self._messages = 0

    def start(self, now: float) -> None:
        """Note that audio starts."""
        self._second_s, self._messages = now, 0

    def message(self, now: float) -> EndCause | None:
        """Count a message."""
        most = self._limits.messages_per_s
        self._messages += 1
        if self._messages > most:
            if now - self._second_s < 1.0:
                return "excess_output", f"more than {most} messages per second"
            self._second_s, self._messages = now, 0
        return None

    def check(
        self, line: SessionConnection, answers: AnswerMatcher | PlaybackMatcher, since_s: float, now: float
    ) -> EndCause | None:
        """Check the timeouts of a connection whose audio began at `since_s`."""
        limits, pacing = self._limits, self._pacing
        if not line.write_blocked:
            self._blocked_since = None
        elif self._blocked_since is None:
            self._blocked_since = now
        elif now - self._blocked_since > limits.stall_s:
            return "send_blocked", f"the server accepted no data for {limits.stall_s:g} s"
        quiet_s = now - max(answers.last_output_s or 0.0, since_s)
        idle_s = limits.idle_s if answers.owes else RIGHTFUL_SILENCE * limits.idle_s
        if answers.sent_frames and quiet_s > idle_s:
            return "no_output", f"no output for {idle_s:g} s"
        if answers.behind_frames > pacing.backlog_limit and quiet_s < pacing.give_up_s:
            return "fell_behind", f"{answers.behind_frames} frames of output behind"
        if answers.heard_s > 4 * answers.sent_frames * pacing.period_s + 60.0:
            return "excess_output", f"{answers.heard_s:.0f} s of output, more than 4 times the input"
        return None
