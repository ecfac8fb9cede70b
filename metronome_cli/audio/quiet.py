"""Suppresses what audio decoders print to the terminal.

The MP3 decoder of the audio library writes warnings to file descriptor 2 directly, past `sys.stderr`, which would
disturb a live view. Inside the block everything written to that descriptor is dropped. A refresh of the view in
these milliseconds is lost; the next refresh draws the same content.
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
    """Redirect file descriptor 2 to the null device inside the block. One thread at a time."""
    with _LOCK:
        with suppress(AttributeError, ValueError, OSError):
            sys.stderr.flush()
        try:
            saved = os.dup(_STDERR_FD)
        except OSError:  # already closed, so nothing can be printed
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
