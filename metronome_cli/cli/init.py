"""`metronome init`: a profile of one's own model, written to a file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

EPILOG = """Examples:

  metronome init checkpoint/  # writes the model's name with .yaml

  metronome init config.json --output mine.yaml

  metronome init checkpoint/ --output -  # prints it
"""


def init(
    model: Annotated[
        Path, typer.Argument(metavar="DIR_OR_CONFIG", help="A checkpoint directory, or its config.json.")
    ],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="File to write; NAME.yaml here; - prints.", metavar="FILE"),
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="Name of the profile; the model's otherwise.", metavar="NAME")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Write over a file that is there.")] = False,
) -> None:
    """A commented profile of your model, from its config.json."""
    from metronome_cli.cli.console import print_text, write
    from metronome_cli.commands.init_profile import draft_profile, write_draft

    draft = draft_profile(model, name)
    if output is not None and str(output) == "-":
        write(draft.text.rstrip("\n"))
        return
    file = output or Path(f"{draft.profile.name}.yaml")
    write_draft(draft, file, force=force)
    are = "line marked CHECK is" if draft.open_lines == 1 else "lines marked CHECK are"
    print_text(f"{file}: profile {draft.profile.name}; {draft.open_lines} {are} not settled")
