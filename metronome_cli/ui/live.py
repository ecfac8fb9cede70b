"""The live view: a dashboard on the terminal's other screen, which is gone when it ends.

It draws on an event, at most a few times per second, in the thread that measures. A ticker keeps the
elapsed time moving while nothing is measured yet (audio, loading), and if no event came for seconds. `close`,
the end of the process and a second signal bring the terminal back as it was. A terminal that goes away ends the
view, not the run.
"""

from __future__ import annotations

import atexit
import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TextIO

from rich.console import Console
from rich.live import Live
from rich.text import Text

from metronome_cli.core.formatting import collapse_line, plural
from metronome_cli.measure.environment import usable_cores
from metronome_cli.measure.machine_load import CpuLoadSampler
from metronome_cli.results.events import Snapshot
from metronome_cli.ui.dashboard import DashboardState, dashboard
from metronome_cli.ui.glyphs import glyphs_for, printable
from metronome_cli.ui.history import Sample
from metronome_cli.ui.keys import KeyReader
from metronome_cli.ui.panels import VERDICT_STYLES

LEAST_INTERVAL_S = 0.25
TICK_S = 1.0
QUIET_S = 3.0  # s without an event during a measurement; frames are so far apart that drawing delays none
BUSY_EVERY_S = 5.0
BUSY_SHARE = 0.2  # of all cores, from which on other programs are named
ROOM_FOR_ECHO = 2  # a terminal echoes Ctrl-C as ^C behind the last line, which must not wrap for it
IDLE_PHASES = ("connect", "audio", "load")  # nothing is timed in these, so the ticker disturbs nothing


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
            console=self._console,
            auto_refresh=False,
            redirect_stdout=False,
            redirect_stderr=False,
            screen=True,
            get_renderable=self._draw,
        )
        self._load, self._load_s = CpuLoadSampler(), self._began_s
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._measuring = threading.Event()
        self._guarded(self._live.start)
        atexit.register(self.close)
        self._keys = KeyReader(self._pressed)
        threading.Thread(target=self._tick, name="metronome-ticker", daemon=True).start()

    # -- the observer's events ---------------------------------------------------------------------

    def phase(self, name: str, detail: str) -> None:
        """A new phase began."""
        self._told_s = self._now()
        self._view.phase, self._view.detail = name, detail
        self._view.history.new_phase()
        self._view.collapse = ""
        self._say(f"{name}: {detail}" if detail else name, "dim")
        if name not in IDLE_PHASES:
            self._measuring.set()
        self._refresh(force=True)

    def snapshot(self, snapshot: Snapshot) -> None:
        """A few times a second; drawn when the last drawing is old enough."""
        self._measuring.set()
        self._told_s = self._now()
        self._view.snapshot = snapshot
        self._view.phase, self._view.detail = snapshot.phase, snapshot.detail
        if snapshot.has_sessions:
            self._view.history.add(snapshot)
        self._look_at_machine()
        self._refresh()

    def event(self, kind: str, data: dict[str, Any]) -> None:
        """A judged trial joins the ladder; a collapse is announced at once."""
        history = self._view.history
        if kind in ("point", "trial"):
            sessions, verdict = int(data.get("sessions", 0)), str(data.get("verdict", ""))
            self._view.points.append((sessions, verdict))
            history.trials.append(data)
            reason = f" ({data['reason']})" if data.get("reason") else ""
            self._say(f"{plural(sessions, 'session')}: {verdict}{reason}", VERDICT_STYLES.get(verdict, ""))
        elif kind == "collapse":
            self._view.collapse = collapse_line(data)
            self._say(self._view.collapse, "bold red")
            self._refresh(force=True)
        elif kind == "cell" and data.get("median_ms") is not None:
            history.probed.append(data)
        elif kind == "scrape":
            self._scraped(data)

    def _scraped(self, data: dict[str, Any]) -> None:
        self._view.watched = str(data["line"])
        left_s = data.get("remaining_s")
        self._view.history.fill_t_s = None if left_s is None else float(data["t_s"]) + float(left_s)
        self._view.history.sample(Sample(float(data["t_s"]), None, data.get("occupancy")))
        self._refresh(force=True)

    def notice(self, message: str) -> None:
        """One line of the event log."""
        self._say(printable(message, self._stream), "yellow")
        self._refresh(force=True)

    def _say(self, text: str, style: str = "") -> None:
        self._view.history.say(self._now() - self._began_s, text, style)

    def _look_at_machine(self) -> None:
        """Name what other programs use, about every BUSY_EVERY_S."""
        now = self._now()
        if now - self._load_s < BUSY_EVERY_S:
            return
        others, self._load, self._load_s = self._load.others(), CpuLoadSampler(), now
        cores = usable_cores()
        busy = others is not None and others > BUSY_SHARE * cores
        self._view.busy = f"BUSY: other programs use {others:.1f} of {cores:g} cores" if busy else ""

    def _pressed(self, key: str) -> None:
        if key == "q":
            os.kill(os.getpid(), signal.SIGINT)
        elif key == "p":
            self._view.paused = not self._view.paused
        elif key == "?":
            self._view.help = not self._view.help
        self._refresh(force=True, paused=False)

    def close(self) -> None:
        """Bring the terminal back as it was. May be called again."""
        if self._closed.is_set():
            return
        self._closed.set()
        atexit.unregister(self.close)
        self._keys.close()
        self._guarded(self._live.stop)

    # -- drawing -----------------------------------------------------------------------------------

    def _draw(self) -> Text:
        self._view.elapsed_s = self._now() - self._began_s
        size = self._console.size
        width = size.width - ROOM_FOR_ECHO
        return dashboard(self._view, width, self._glyphs, size.height)

    def _refresh(self, *, force: bool = False, paused: bool | None = None) -> None:
        now = self._now()
        if self._view.paused if paused is None else paused:
            return
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
