"""Single keys from the terminal while a view is open; the terminal is as before when it closes."""

from __future__ import annotations

import os
import select
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from metronome_cli.core.stop import at_leave

POLL_S = 0.2


class KeyReader:
    """Calls `pressed` with each character, in a thread. Does nothing if stdin is not this group's terminal."""

    def __init__(self, pressed: Callable[[str], None]) -> None:
        self._pressed = pressed
        self._closed = threading.Event()
        self._before: Any = None
        self._thread: threading.Thread | None = None
        with suppress(Exception):  # no terminal, no termios, or a stdin without a file
            self._open()

    def _open(self) -> None:
        import termios
        import tty

        fd = sys.stdin.fileno()
        if not os.isatty(fd) or os.tcgetpgrp(fd) != os.getpgrp():
            return
        self._before = termios.tcgetattr(fd)
        tty.setcbreak(fd)
        at_leave(self.close)
        self._thread = threading.Thread(target=self._read, args=(fd,), name="keys", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Give the terminal back. May be called again."""
        self._closed.set()
        before, self._before = self._before, None
        if before is None:
            return
        import termios

        with suppress(termios.error, OSError, ValueError):
            termios.tcsetattr(sys.stdin.fileno(), termios.TCSADRAIN, before)

    def _read(self, fd: int) -> None:
        with suppress(OSError, ValueError):
            while not self._closed.is_set():
                if select.select([fd], [], [], POLL_S)[0]:
                    text = os.read(fd, 16).decode("ascii", "ignore")
                    if not text:
                        return
                    self._pressed(text[0])
