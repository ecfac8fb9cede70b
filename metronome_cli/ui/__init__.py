"""Views of a run on stderr: live (Rich) and plain lines."""

from metronome_cli.ui.choose import make_observer

__all__ = ["make_observer"]
