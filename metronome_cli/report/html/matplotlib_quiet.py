"""Keeps Matplotlib quiet, from its import on: its words about caches and fonts are of no use to a user here."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def matplotlib_quiet() -> Iterator[None]:
    """No log lines below an error, no warnings. The page's font has the characters that the measuring font lacks."""
    logger = logging.getLogger("matplotlib")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(before)
