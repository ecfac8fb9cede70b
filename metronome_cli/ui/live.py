"""The live view: a dashboard that redraws itself in place on an interactive terminal.

It draws when it is told something, at most a few times a second, in the thread that measures. A ticker keeps the
elapsed time moving while nothing is measured yet (audio, loading), and where nothing was told for seconds. The cursor
is never hidden, so there is no state of the terminal that a crash or a kill could leave behind but a half-drawn line,
which `close` finishes. A terminal that goes away ends the view, not the run.
"""

from __future__ import annotations

import atexit
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TextIO

from rich.console import Console
from rich.live import Live
from rich.text import Text

from metronome_cli.core.formatting import collapse_line
from metronome_cli.results.events import Snapshot
from metronome_cli.ui.dashboard import DashboardState, dashboard
from metronome_cli.ui.glyphs import glyphs_for, printable

LEAST_INTERVAL_S = 0.25
TICK_S = 1.0
QUIET_S = (
    3.0  # without news while something is measured: frames are so far apart that a drawing is in nobody's way
)
ROOM_FOR_ECHO = 2  # a terminal echoes Ctrl-C as ^C behind the last line, which must not wrap for it
IDLE_PHASES = ("knock", "audio", "load")  # nothing is timed in these, so the ticker disturbs nothing


class LiveView:
    """An observer on a terminal. `width` overrides the terminal's, `now` its time."""

    def __init__(
        self,
        stream: TextIO,
        *,
        title: str = "metronome",
        width: int | None = None,
        now: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._stream = stream
        self._glyphs = glyphs_for(stream)
        self._console = QuietConsole(file=stream, force_terminal=True, highlight=False, width=width)
        self._view = DashboardState(title=title)
        self._now = now
        self._began_s = now()
        self._drawn_s = -LEAST_INTERVAL_S
        self._told_s = self._began_s
        self._live = Live(
            console=self._console, auto_refresh=False, redirect_stdout=False, get_renderable=self._draw
        )
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._measuring = threading.Event()
        self._guarded(self._live.start)
        atexit.register(self.close)
        threading.Thread(target=self._tick, name="metronome-ticker", daemon=True).start()

    # -- what an observer is told ------------------------------------------------------------------

    def phase(self, name: str, detail: str) -> None:
        """A new phase began."""
        self._told_s = self._now()
        self._view.phase, self._view.detail = name, detail
        if name not in IDLE_PHASES:
            self._measuring.set()
        self._refresh(force=True)

    def snapshot(self, snapshot: Snapshot) -> None:
        """A few times a second; drawn when the last drawing is old enough."""
        self._measuring.set()
        self._told_s = self._now()
        self._view.snapshot = snapshot
        self._view.phase, self._view.detail = snapshot.phase, snapshot.detail
        self._refresh()

    def event(self, kind: str, data: dict[str, Any]) -> None:
        """A judged point joins the list; a collapse is said at once."""
        if kind == "trial":
            self._view.points.append((int(data.get("sessions", 0)), str(data.get("verdict", ""))))
        elif kind == "collapse":
            self.notice(collapse_line(data))

    def notice(self, message: str) -> None:
        """One line above the dashboard."""
        text = Text(printable(message, self._stream), overflow="fold")
        self._guarded(lambda: self._console.print(text, soft_wrap=False))

    def close(self) -> None:
        """Leave the last view on the screen and the terminal as it was. May be called again."""
        if self._closed.is_set():
            return
        self._closed.set()
        atexit.unregister(self.close)
        self._guarded(self._live.refresh)
        self._guarded(self._live.stop)

    # -- drawing -----------------------------------------------------------------------------------

    def _draw(self) -> Text:
        self._view.elapsed_s = self._now() - self._began_s
        size = self._console.size
        width = size.width - ROOM_FOR_ECHO
        return dashboard(self._view, width, self._glyphs, max(1, size.height - 1))

    def _refresh(self, *, force: bool = False) -> None:
        now = self._now()
        if self._closed.is_set() or (not force and now - self._drawn_s < LEAST_INTERVAL_S):
            return
        self._drawn_s = now
        self._guarded(self._live.refresh)

    def _tick(self) -> None:
        while not self._closed.wait(TICK_S):
            if not self._measuring.is_set() or self._now() - self._told_s >= QUIET_S:
                self._refresh(force=True)

    def _guarded(self, draw: Callable[[], object]) -> None:
        """Draw; a stream that fails is not written to again."""
        with self._lock:
            try:
                draw()
            except (OSError, ValueError):
                self._console.quiet = True
                self._closed.set()
                with suppress(OSError, ValueError):
                    self._live.stop()


class QuietConsole(Console):
    """Never hides the cursor, and never ends the process because a reader went away."""

    def show_cursor(self, show: bool = True) -> bool:
        """Leave it as it is."""
        return False

    def on_broken_pipe(self) -> None:
        """Write nothing more."""
        self.quiet = True
