"""One line for work that takes some seconds and has no view of its own: what, for how long, about how long still."""

from __future__ import annotations

import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

from metronome_cli.ui.choose import can_redraw

QUIET_S = 1.0  # work that ends sooner shows no line
_REDRAW_S = 0.25


@contextmanager
def status_line(
    what: str,
    expected_s: float | None = None,
    stream: TextIO | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[None]:
    """Show the line on stderr while this is open, if stderr is a terminal that can erase it.

    `expected_s`: how long it usually takes. The line is gone when the work is done.
    """
    stream = sys.stderr if stream is None else stream
    if not can_redraw(stream):
        yield
        return
    done = threading.Event()
    began_s = clock()
    teller = threading.Thread(
        target=_tell, args=(stream, done, lambda: line(what, clock() - began_s, expected_s)), daemon=True
    )
    teller.start()
    try:
        yield
    finally:
        done.set()
        teller.join()


def line(what: str, elapsed_s: float, expected_s: float | None) -> str:
    """ "looking at this machine  2 s, about 1 s left"; past what was expected only the time so far."""
    left_s = (expected_s or 0.0) - elapsed_s
    left = f", about {left_s:.0f} s left" if left_s >= 0.5 else ""
    return f"{what}  {elapsed_s:.0f} s{left}"


def _tell(stream: TextIO, done: threading.Event, text: Callable[[], str]) -> None:
    wait_s, shown = QUIET_S, False
    while not done.wait(wait_s):
        width = max(20, shutil.get_terminal_size().columns - 1)
        shown = _write(stream, f"\r\x1b[K{text()[:width]}")
        wait_s = _REDRAW_S
    if shown:
        _write(stream, "\r\x1b[K")


def _write(stream: TextIO, text: str) -> bool:
    try:
        stream.write(text)
        stream.flush()
    except (OSError, ValueError):  # the terminal is closed; the work continues
        return False
    return True
