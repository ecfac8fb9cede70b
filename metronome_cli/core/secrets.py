"""Removes secrets from text that is shown or stored: parts of addresses, secret arguments, environment values."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from typing import Any

from metronome_cli.core.http import shown

HIDDEN = "(hidden)"
_LEAST = 6  # characters; a shorter value would be found in words that are no secret
_SECRET_NAME = re.compile(
    r"(^|[_-])(api[_-]?key|key|token|secret|password|passwd|headers|authorization)$", re.I
)
_TOKEN = re.compile(r"[^\s'\"]+")
_ASSIGNED = re.compile(r"(--?)?([A-Za-z_][\w-]*)([=:])(?!//)(.+)", re.DOTALL)


def scrub(text: str, environ: Mapping[str, str] | None = None) -> str:
    """Return `text` without user names, passwords, queries and fragments of addresses, and without secret values.

    A value is secret if its `KEY=VALUE` or its environment variable has a name such as HF_TOKEN or API_KEY.
    """
    for secret in _secret_values(os.environ if environ is None else environ):
        text = text.replace(secret, HIDDEN)
    return _TOKEN.sub(lambda found: _scrub_token(found[0]), text)


def scrub_all(value: Any) -> Any:
    """The same for every text in dictionaries, lists and tuples."""
    if isinstance(value, str):
        return scrub(value)
    if isinstance(value, dict):
        return {key: scrub_all(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(scrub_all(each) for each in value)
    return value


def _scrub_token(token: str) -> str:
    assigned = _ASSIGNED.fullmatch(token)
    if assigned:
        dashes, name, sign, value = assigned[1] or "", assigned[2], assigned[3], assigned[4]
        if sign == "=" and _SECRET_NAME.search(name):
            return f"{dashes}{name}={HIDDEN}"
        if sign == "=" and "?" not in name:
            return f"{dashes}{name}={_scrub_token(value)}"
    query = token.partition("?")[2]
    user = re.search(r"[^/\s:@]+:[^/\s@]*@", token)
    return shown(token) if "://" in token or "=" in query or user else token


def _secret_values(environ: Mapping[str, str]) -> Iterator[str]:
    """Values of environment variables whose names say that they are secret; for headers, each header's value."""
    for name, value in environ.items():
        if _SECRET_NAME.search(name):
            for line in value.splitlines() if name.endswith("HEADERS") else [value]:
                secret = (line.partition(":")[2] if name.endswith("HEADERS") else line).strip()
                if len(secret) >= _LEAST:
                    yield secret
