"""Settings and command line for a report, without secrets."""

from __future__ import annotations

import sys

from metronome_cli.config.settings import Settings
from metronome_cli.core.http import shown
from metronome_cli.core.secrets import scrub, scrub_all

ADDRESSES = ("url", "metrics_url")


def settings_of(settings: Settings) -> dict[str, object]:
    """Return all settings that have a value, with their origin."""
    kept: dict[str, object] = scrub_all(settings.as_dict())
    for key in ADDRESSES:
        if key in kept:
            kept[key] = {"value": shown(settings[key]), "from": settings.values[key].origin}
    return kept


def argv_of(settings: Settings) -> tuple[str, ...]:
    """Return the command line."""
    addresses = [settings[key] for key in ADDRESSES if settings[key] is not None]
    return tuple(_clean(argument, addresses) for argument in sys.argv[1:])


def _clean(argument: str, addresses: list[str]) -> str:
    for address in addresses:
        argument = argument.replace(address, shown(address))
    return scrub(argument)
