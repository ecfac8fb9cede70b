"""`metronome profiles`: the shipped ones, one of them in full, and a check of the user's own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from metronome_cli.cli import options
from metronome_cli.cli.command_table import Command, DefaultGroup
from metronome_cli.cli.completion import complete_profile

EPILOG = """Examples:

  metronome profiles list

  metronome profiles show moshi --device-memory 96GiB

  metronome profiles check mine.yaml
"""


class ProfilesGroup(DefaultGroup):
    """`metronome profiles` means `metronome profiles list`."""

    default = "list"


profiles = typer.Typer(
    cls=ProfilesGroup,
    no_args_is_help=False,
    help="The models that are known, and your own.",
    epilog=EPILOG,
)


@profiles.command("list", cls=Command, epilog="Examples:\n\n  metronome profiles list --json")
def list_(json_: options.PlainJson = False) -> None:
    """All shipped profiles, one a line."""
    from metronome_cli.cli.console import write
    from metronome_cli.commands.describe_profile import profile_card
    from metronome_cli.config.profile_files import list_profiles
    from metronome_cli.report.profile_text import render_list

    cards = [profile_card(profile) for profile in list_profiles()]
    write(_json([card.model_dump(mode="json") for card in cards]) if json_ else render_list(cards))


@profiles.command(
    cls=Command,
    epilog="Examples:\n\n  metronome profiles show qwen3-omni-30b --device-memory 96GiB --session-length 10m",
)
def show(
    name: Annotated[
        str, typer.Argument(help="Profile by name, or a YAML file.", autocompletion=complete_profile)
    ],
    device_memory: Annotated[
        str | None,
        typer.Option(help="Memory of the device, such as 96GiB: how many sessions fit?", metavar="SIZE"),
    ] = None,
    session_length: Annotated[
        str | None,
        typer.Option(
            help="How old the sessions get, such as 10m; the profile's own otherwise.", metavar="TIME"
        ),
    ] = None,
    policy: Annotated[
        str | None, typer.Option(help="Another policy, such as 'window(1024, 16)'.", metavar="POLICY")
    ] = None,
    json_: options.PlainJson = False,
) -> None:
    """Shape, growth, limits, memory and sources of one profile."""
    from metronome_cli.cli.console import write
    from metronome_cli.commands.describe_profile import profile_card
    from metronome_cli.config.settings import resolve
    from metronome_cli.report.profile_text import render_card

    settings = resolve(
        {"profile": name, "device_memory": device_memory, "session_length": session_length, "policy": policy},
        {},
    )
    profile = settings.profile
    card = profile_card(profile, settings["device_memory"], settings["session_length"])
    if json_:
        write(_json(card.model_dump(mode="json") | {"profile": profile.model_dump(mode="json")}))
    else:
        write(render_card(profile, card))


@profiles.command(cls=Command, epilog="Examples:\n\n  metronome profiles check mine.yaml")
def check(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="YAML files.")],
    json_: options.PlainJson = False,
) -> int:
    """Whether files are valid profiles; every mistake with its key, and what is allowed."""
    from metronome_cli.cli.console import print_error, print_text, write
    from metronome_cli.config.profile_files import load_profile
    from metronome_cli.core.errors import ExitCode, UsageError

    results: list[dict[str, object]] = []
    for file in files:
        try:
            profile = load_profile(file)
        except UsageError as error:
            print_error(error.message, error.hint)
            results.append({"file": str(file), "valid": False, "error": error.message, "hint": error.hint})
        else:
            results.append({"file": str(file), "valid": True, "name": profile.name})
            if not json_:
                print_text(f"{file}: valid, profile {profile.name}")
    if json_:
        write(_json(results))
    return ExitCode.OK if all(result["valid"] for result in results) else ExitCode.USAGE


def _json(data: object) -> str:
    import json

    return json.dumps(data, indent=2, allow_nan=False, ensure_ascii=True)
