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

    from metronome_cli.cli.console import say, write
    from metronome_cli.report.doctor_text import checkup_json, render_checkup
    from metronome_cli.report.text import stdout_width
    from metronome_cli.run.doctor import examine
    from metronome_cli.ui.working import working

    with working("looking at this machine", expected_s=4.0):
        checkup = examine()
    if json_:
        write(json.dumps(checkup_json(checkup), indent=2, allow_nan=False))
    else:
        say(render_checkup(checkup, stdout_width()))
    return checkup.exit_code
