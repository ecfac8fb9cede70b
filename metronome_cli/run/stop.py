"""Stopping in good order: the first Ctrl-C (or SIGTERM) asks, the second one leaves at once."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

from metronome_cli.errors import ExitCode


class Stop:
    """A request to stop, looked at between steps."""

    def __init__(self) -> None:
        self.signum: int | None = None

    def __call__(self) -> bool:
        return self.signum is not None

    def request(self, signum: int) -> None:
        """Ask. A second request ends the process without further ado."""
        if self.signum is not None:
            if sys.stderr.isatty():
                os.write(2, b"\x1b[?25h\n")  # a live view may have hidden the cursor
            os._exit(ExitCode.SIGTERM if signum == signal.SIGTERM else ExitCode.SIGINT)
        self.signum = signum

    @contextmanager
    def on_signals(self) -> Iterator[Stop]:
        """SIGINT and SIGTERM call `request` while this is open; nothing changes off the main thread."""
        if threading.current_thread() is not threading.main_thread():
            yield self
            return

        def handle(signum: int, frame: FrameType | None) -> None:
            self.request(signum)
            with suppress(OSError, ValueError):  # straight to the descriptor: a handler may not print
                os.write(sys.stderr.fileno(), b"\nstopping in good order; once more leaves at once\n")

        before = {signum: signal.signal(signum, handle) for signum in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield self
        finally:
            for signum, handler in before.items():
                signal.signal(signum, handler)
