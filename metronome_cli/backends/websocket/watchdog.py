"""What a session on a socket does not put up with: what does not happen in time, and more than anyone can say."""

from __future__ import annotations

from metronome_cli.backends.streaming.pacing import Pacing
from metronome_cli.backends.websocket.answers import AnswerMatcher
from metronome_cli.backends.websocket.connection import SessionConnection
from metronome_cli.backends.websocket.endpoint import SessionTimeouts
from metronome_cli.backends.websocket.playback_answers import PlaybackMatcher
from metronome_cli.core.types import EndReason

EndCause = tuple[EndReason, str]
RIGHTFUL_SILENCE = (
    6  # times the idle timeout, if no answer is owed: a model that listens may have nothing to say
)


class SessionWatchdog:
    """Of one session. Says why it ends, None where it goes on. Times in seconds of the run's clock."""

    def __init__(self, limits: SessionTimeouts, beat: Pacing) -> None:
        self._limits = limits
        self._beat = beat
        self._second_s = 0.0  # when the count of messages began
        self.renew()

    def renew(self) -> None:
        """Another connection."""
        self._stuck_since: float | None = None
        self._messages = 0

    def start(self, now: float) -> None:
        """Audio starts."""
        self._second_s, self._messages = now, 0

    def message(self, now: float) -> EndCause | None:
        """One more came."""
        most = self._limits.messages_per_s
        self._messages += 1
        if self._messages > most:
            if now - self._second_s < 1.0:
                return "excess_output", f"more than {most} messages a second"
            self._second_s, self._messages = now, 0
        return None

    def look(
        self, line: SessionConnection, answers: AnswerMatcher | PlaybackMatcher, since_s: float, now: float
    ) -> EndCause | None:
        """What does not happen on a connection whose audio began at `since_s`."""
        limits, beat = self._limits, self._beat
        if not line.stuck:
            self._stuck_since = None
        elif self._stuck_since is None:
            self._stuck_since = now
        elif now - self._stuck_since > limits.stall_s:
            return "send_blocked", f"nothing was taken in {limits.stall_s:g} s"
        quiet_s = now - max(answers.last_output_s or 0.0, since_s)
        idle_s = limits.idle_s if answers.owes else RIGHTFUL_SILENCE * limits.idle_s
        if answers.sent_frames and quiet_s > idle_s:
            return "no_output", f"no output for {idle_s:g} s"
        if answers.behind_frames > beat.backlog_limit and quiet_s < beat.give_up_s:
            return "fell_behind", f"{answers.behind_frames} frames of output behind"
        if answers.heard_s > 4 * answers.sent_frames * beat.period_s + 60.0:
            return "excess_output", f"{answers.heard_s:.0f} s of output to less than a quarter of input"
        return None
