"""Which view a run gets: live on an interactive terminal, plain lines elsewhere."""

from __future__ import annotations

import os
import sys
from typing import TextIO

from metronome_cli.core.errors import UsageError
from metronome_cli.results.events import Observer, ObserverGroup

MODES = ("auto", "live", "plain", "none")


def make_observer(mode: str = "auto", stream: TextIO | None = None, *, title: str = "metronome") -> Observer:
    """The view for a mode on a stream (stderr). Raises UsageError for an unknown mode.

    `auto` is live on an interactive terminal, plain otherwise. `live` where no terminal can show it is
    plain, and says so. `none` shows nothing.
    """
    from metronome_cli.ui.plain import PlainLines

    stream = sys.stderr if stream is None else stream
    if mode not in MODES:
        raise UsageError(f"--ui {mode!r} is not a view", hint=f"one of: {', '.join(MODES)}")
    if mode == "none":
        return ObserverGroup()
    if mode != "plain" and can_redraw(stream):
        from metronome_cli.ui.live import LiveView

        return LiveView(stream, title=title)
    view = PlainLines(stream)
    if mode == "live":
        view.notice("no terminal that can redraw here: plain lines instead of the live view")
    return view


def make_watch_view(mode: str, stream: TextIO) -> Observer:
    """The view of a watched server: curves on an interactive terminal, one line per scrape elsewhere."""
    from metronome_cli.ui.countdown import Countdown

    return (
        make_observer("live", stream, title="predict")
        if mode != "plain" and can_redraw(stream)
        else Countdown(stream)
    )


def can_redraw(stream: TextIO) -> bool:
    """Whether the stream is a terminal that moves its cursor when told to."""
    try:
        interactive = stream.isatty()
    except (OSError, ValueError, AttributeError):
        return False
    return interactive and os.environ.get("TERM", "") not in ("", "dumb", "unknown")
