"""Offers sessions to one run of a backend and counts their outcomes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from types import TracebackType

from metronome_cli.backends.interface import BackendRun
from metronome_cli.core.session import SessionSpec
from metronome_cli.core.types import SessionRefused
from metronome_cli.measure.recorder import Recorder
from metronome_cli.measure.stall import StallDetector, Still

Admission = Callable[[SessionSpec], bool]  # whether a session may be opened
TakeDown = Callable[[SessionSpec], None]  # takes the session for a load trace
READY_POLL_S = 0.1


def admit_all(session: SessionSpec) -> bool:
    """Open every session."""
    return True


class OfferedLoad:
    """Planned sessions in front of one run. offered = opened + shed (by admission) + rejected (by the backend)."""

    def __init__(
        self,
        run: BackendRun,
        recorder: Recorder,
        stop: Callable[[], bool],
        stalls: StallDetector | Still,
        *,
        arrivals: Iterable[SessionSpec] = (),
        admission: Admission = admit_all,
        take_down: TakeDown | None = None,
    ) -> None:
        self.run = run
        self.recorder = recorder
        self.offered = 0
        self.shed = 0
        self.rejected = 0
        self.begun = False
        self._stop = stop
        self._stalls = stalls
        self._stalled_s = stalls.beat()
        self._arrivals = iter(arrivals)
        self._next = next(self._arrivals, None)
        self._admission = admission
        self._take_down = take_down
        self._replaced = 0
        self._closed = False

    def __len__(self) -> int:
        """Sessions that are open."""
        return len(self.recorder.active)

    @property
    def preparing(self) -> int:
        """Sessions that are open and not ready yet."""
        return self.recorder.preparing

    @property
    def next_s(self) -> float:
        """When the next planned session starts; infinity without one."""
        return math.inf if self._next is None else self._next.start_s

    @property
    def rejections(self) -> int:
        """Sessions that the backend rejected, at once or later."""
        return self.rejected + self.recorder.ended["rejected"] + self.recorder.ended["queue_timeout"]

    def begin(self) -> None:
        """Open all sessions that start at 0, then start the clock, so that opening them does not count as lateness."""
        while self._next is not None and self._next.start_s <= 0.0 and not self._stop():
            self._offer_next()
        self.run.begin()
        self.begun = True
        self._stalled_s = self._stalls.beat()

    def run_until(self, t_s: float) -> None:
        """Serve frames, and open the sessions that start on the way."""
        clock = self.run.clock
        while self._next is not None and self._next.start_s < t_s and not self._stop():
            if self._next.start_s > clock.now():
                self.run.run_until(self._next.start_s)
            self._offer_next()
        self.run.run_until(t_s)
        stalled_s = self._stalls.beat()
        self.recorder.stalled_s += stalled_s - self._stalled_s
        self._stalled_s = stalled_s

    def _offer_next(self) -> None:
        session = self._next
        assert session is not None
        self._next = next(self._arrivals, None)
        session = self._numbered(session)
        if not self._admission(session):
            self.shed += 1
            return
        self._open(session)

    def open(self, age_s: float = 0.0, lifetime_s: float = math.inf) -> bool:
        """Offer one more session now. False if the backend rejects it, or has rejected one before."""
        now_s = self.run.clock.now() if self.begun else 0.0
        return self._open(self._numbered(SessionSpec(now_s, age_s, lifetime_s)))

    def replace_finished(self, lifetime_s: float) -> None:
        """Replace each session that has finished with a new one."""
        while self._replaced < self.recorder.ended["completed"]:
            self._replaced += 1
            self.open(0.0, lifetime_s)

    def _numbered(self, session: SessionSpec) -> SessionSpec:
        """The session under the next index. A rejected session has one too: it selects audio and turns."""
        session = replace(session, index=self.offered)
        self.offered += 1
        if self._take_down is not None:
            self._take_down(session)
        return session

    def _open(self, session: SessionSpec) -> bool:
        self.recorder.opened(session)
        try:
            self.run.open(session)
        except SessionRefused as error:
            del self.recorder.active[session.index]
            self.recorder.rejected[error.binding] += 1
            self.rejected += 1
            return False
        return True

    def wait_ready(self) -> None:
        """Serve until every open session is ready or was rejected."""
        while self.preparing and not self._stop():
            self.run_until(self.run.clock.now() + READY_POLL_S)

    def close_newest(self, count: int) -> None:
        """Close the sessions that were opened last."""
        self.run.close_newest(max(0, count))

    def close(self) -> None:
        """End the run. Raises EngineError if the system under test is no longer available."""
        if not self._closed:
            self._closed = True
            self.run.close()

    def __enter__(self) -> OfferedLoad:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
