"""Settings and command line as a report keeps them: addresses without what may be secret in them."""

from __future__ import annotations

import sys

from metronome_cli.config.settings import Settings
from metronome_cli.core.http import shown

ADDRESSES = ("url", "metrics_url")


def settings_of(settings: Settings) -> dict[str, object]:
    """Every setting that has a value, and where it came from."""
    kept = settings.as_dict()
    for key in ADDRESSES:
        if key in kept:
            kept[key] = {"value": shown(settings[key]), "from": settings.values[key].origin}
    return kept


def argv_of(settings: Settings) -> tuple[str, ...]:
    """The command line."""
    secrets = [settings[key] for key in ADDRESSES if settings[key] is not None]
    return tuple(_plain(argument, secrets) for argument in sys.argv[1:])


def _plain(argument: str, addresses: list[str]) -> str:
    for address in addresses:
        argument = argument.replace(address, shown(address))
    return argument
