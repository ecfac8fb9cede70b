"""Keeps a decoder's own words off the user's terminal.

The MP3 decoder inside the audio library writes its warnings straight to file descriptor 2, past
`sys.stderr`, in the middle of a live view. While muted, whatever anyone in this process writes to that
descriptor is dropped: a refresh of a view that falls into these milliseconds is lost whole, and the next
one draws the same.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_STDERR_FD = 2
_LOCK = threading.Lock()


@contextmanager
def decoder_muted() -> Iterator[None]:
    """File descriptor 2 leads nowhere inside this block. One thread at a time."""
    with _LOCK:
        with suppress(AttributeError, ValueError, OSError):
            sys.stderr.flush()
        try:
            saved = os.dup(_STDERR_FD)
        except OSError:  # closed already: nothing to keep clean
            yield
            return
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, _STDERR_FD)
        try:
            yield
        finally:
            os.dup2(saved, _STDERR_FD)
            os.close(saved)
            os.close(nowhere)
