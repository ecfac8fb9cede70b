"""Orderly stop: the first Ctrl-C (or SIGTERM) requests it, the second ends the process at once.

A signal handler runs between two steps of the interpreter. Loading a model can delay it for seconds, and several
signals of that time arrive as one. So a thread reads each signal, acknowledges the first and acts on the second.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

from metronome_cli.core.errors import ExitCode

SIGNALS = (signal.SIGINT, signal.SIGTERM)
LOAD_LIMIT_S = 2.0  # wall time from the first signal to the end of a load
ACKNOWLEDGED = "stopping in good order; once more leaves at once"
Notify = Callable[[str], object]


def _on_stderr(line: str) -> None:
    with suppress(OSError, ValueError):
        os.write(sys.stderr.fileno(), f"\n{line}\n".encode())


class LoadInterrupted(Exception):  # noqa: N818 - not an error, but what was asked for
    """A stop was requested while a model was loaded: nothing was measured yet."""


class StopRequest:
    """A request to stop, which is checked between steps.

    `tell` acknowledges the first signal from its own thread, because code that draws on the terminal must know of
    the line. Without `tell` the line goes to stderr.
    """

    def __init__(self, tell: Notify = _on_stderr) -> None:
        self.signum: int | None = None
        self._acknowledge = tell
        self._loading = False

    def __call__(self) -> bool:
        return self.signum is not None

    def request(self, signum: int) -> None:
        """Request the stop. A second request ends the process at once."""
        if self.signum is not None:
            _leave(signum)
        self.signum = signum

    @contextmanager
    def during_load(self) -> Iterator[None]:
        """While this is open, the first signal raises LoadInterrupted in the main thread.

        A native call that lasts longer than LOAD_LIMIT_S after the signal ends the process.
        """
        self._loading = True
        try:
            yield
        finally:
            self._loading = False

    def _leave_if_loading(self, signum: int) -> None:
        if self._loading:
            _leave(signum)

    @contextmanager
    def on_signals(self) -> Iterator[StopRequest]:
        """SIGINT and SIGTERM call `request` while this is open; nothing changes off the main thread."""
        if threading.current_thread() is not threading.main_thread():
            yield self
            return

        def handle(signum: int, frame: FrameType | None) -> None:
            self.request(signum)
            if self._loading:
                raise LoadInterrupted

        before = {signum: signal.signal(signum, handle) for signum in SIGNALS}
        try:
            with _watched(self._acknowledge, self._leave_if_loading):
                yield self
        finally:
            for signum, handler in before.items():
                signal.signal(signum, handler)


@contextmanager
def _watched(tell: Notify, end_load: Callable[[int], None]) -> Iterator[None]:
    """A thread reads each signal as it comes, while this is open."""
    coming, told = os.pipe()
    os.set_blocking(told, False)
    before = signal.set_wakeup_fd(told, warn_on_full_buffer=False)
    thread = threading.Thread(target=_watch, args=(coming, tell, end_load), name="signals", daemon=True)
    thread.start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        os.close(told)
        thread.join()
        os.close(coming)


def _watch(coming: int, tell: Notify, end_load: Callable[[int], None]) -> None:
    asked = False
    while number := os.read(coming, 1):
        if number[0] not in SIGNALS:
            continue
        if asked:
            _leave(number[0])
        asked = True
        timer = threading.Timer(LOAD_LIMIT_S, end_load, (number[0],))
        timer.daemon = True
        timer.start()
        with suppress(Exception):  # even if the view failed, the next signal must be read
            tell(ACKNOWLEDGED)


_at_leave: list[Callable[[], object]] = []


def at_leave(restore: Callable[[], object]) -> None:
    """Call `restore` if a second signal ends the process at once: `atexit` is not run then."""
    _at_leave.append(restore)


def _leave(signum: int) -> None:
    for restore in _at_leave:
        with suppress(Exception):
            restore()
    with suppress(OSError, ValueError):
        if sys.stderr.isatty():
            os.write(sys.stderr.fileno(), b"\x1b[?1049l\x1b[?25h\n")  # a live view fills the other screen
    os._exit(ExitCode.SIGTERM if signum == signal.SIGTERM else ExitCode.SIGINT)


def _forget_in_a_fork() -> None:
    """A forked child gets a terminal's Ctrl-C too, and would report it through its parent's pipe."""
    with suppress(ValueError):
        signal.set_wakeup_fd(-1)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_in_a_fork)
