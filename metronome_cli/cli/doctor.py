"""`metronome doctor`: one look at the machine, printed."""

from __future__ import annotations

from metronome_cli.cli import options

EPILOG = """Examples:

  metronome doctor

  metronome doctor --json
"""


def doctor(
    json_: options.PlainJson = False,
) -> int:
    """What this machine can do, what is missing, and what would spoil a measurement now."""
    import json
    import sys

    from metronome_cli.cli.console import print_text, write
    from metronome_cli.commands.checkup import examine
    from metronome_cli.report.doctor_text import checkup_json, render_checkup
    from metronome_cli.report.plain_text import stdout_width
    from metronome_cli.ui.choose import can_redraw
    from metronome_cli.ui.status_line import status_line

    with status_line("looking at this machine", expected_s=4.0):
        checkup = examine(sys.stderr, redraws=can_redraw(sys.stderr))
    if json_:
        write(json.dumps(checkup_json(checkup), indent=2, allow_nan=False))
    else:
        print_text(render_checkup(checkup, stdout_width()))
    return checkup.exit_code
