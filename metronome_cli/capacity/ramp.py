"""The first stage of a search: sessions are added on one engine until latency comes near the limit.

Under `ramp` an AIMD controller says how many; under `bisect` trials double from one session. What is seen on the way
feeds the estimate, up to the controller's first decrease: after it, latency is the backlog of a larger number.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from metronome_cli.capacity.aimd import AimdController, AimdGains
from metronome_cli.capacity.context import TrialContext
from metronome_cli.capacity.offered_load import OfferedLoad
from metronome_cli.capacity.samples import Samples
from metronome_cli.capacity.windows import Windows
from metronome_cli.core.errors import DeviceMemoryError
from metronome_cli.results.measured import Window
from metronome_cli.results.timeline import WindowTimeline

SearchMethod = Literal["ramp", "bisect"]
GOLDEN = 0.6180339887498949  # spreads the ages evenly for any number of sessions
RAMP_WINDOWS = 200  # at the most
RAMP_WINDOW_PERIODS = 6  # of a window, at the least
SETTLED = 0.2  # of a window, in which sessions are still being opened


@dataclass(slots=True)
class Ramp:
    """One ramp. `healthy`: the largest number of sessions below the controller's target; `slots`: of a full server."""

    context: TrialContext
    gains: AimdGains
    ceiling: int
    healthy: int = 0
    slots: int | None = None
    timeline: WindowTimeline = field(default_factory=WindowTimeline)
    samples: list[Samples] = field(default_factory=list)

    def run(self) -> None:
        """Until the controller has decreased once, or there is no room for more."""
        gains, context = self.gains, self.context
        controller = AimdController(gains, self._limit_ms)
        window_s = max(gains.window_s, RAMP_WINDOW_PERIODS * context.period_s)
        with context.open_load(self.ceiling) as load:
            windows = Windows(context, load, "ramp", f"AIMD, target {gains.target:.0%} of the deadline")
            self.timeline = windows.timeline
            for _ in range(RAMP_WINDOWS):
                if self._window(controller, load, windows, window_s):
                    break

    def _window(
        self, controller: AimdController, load: OfferedLoad, windows: Windows, window_s: float
    ) -> bool:
        """One window; whether the ramp ends after it."""
        context, began_s = self.context, load.run.clock.now() if load.begun else 0.0
        try:
            room = self._open(load, min(int(controller.cap), self.ceiling))
            windows.session_limit = controller.cap
            load.run_until(load.run.clock.now() + window_s)
        except DeviceMemoryError as error:
            context.observer.notice(f"the ramp ends here: {error.message}")
            return True
        counts, _ = windows.close()
        open_now, limit_ms = len(load), self._limit_ms
        missed = counts.misses > 0 and limit_ms <= context.deadline_ms
        decision = controller.update(counts.latency.percentile(self.gains.quantile), missed, open_now)
        now_s = load.run.clock.now()
        context.observer.event("admission", {"t_s": now_s, "limit": decision.cap, "action": decision.action})
        self._keep(load, open_now, began_s + SETTLED * (now_s - began_s))
        if decision.action != "decrease":
            self.healthy = max(self.healthy, open_now)
        ended = controller.decreases > 0 or not room or open_now >= self.ceiling or open_now == 0
        return ended or context.stop()

    def _keep(self, load: OfferedLoad, sessions: int, since_s: float) -> None:
        batches = [batch for batch in load.recorder.batches if batch.t_s > since_s]
        if sessions and batches:
            self.samples.append(Samples.of(sessions, batches))

    @property
    def windows(self) -> list[Window]:
        """The controller's windows so far."""
        return self.timeline.windows

    @property
    def _limit_ms(self) -> float:
        """The tightest latency that an objective asks for; the deadline if none does."""
        limits = (o.limit for o in self.context.objectives if o.unit == "ms")
        return min(limits, default=self.context.deadline_ms)

    def _open(self, load: OfferedLoad, wanted: int) -> bool:
        """Open sessions up to `wanted`, each at an age of its own; False if the backend has no more room."""
        room = True
        while len(load) < wanted and room:
            room = load.open((len(load) * GOLDEN % 1.0) * self.context.session_length_s)
        if not load.begun:
            load.begin()
        load.wait_ready()
        if load.recorder.ended["rejected"] or load.recorder.ended["queue_timeout"]:
            self.slots = max(1, len(load))
            return False
        return room
