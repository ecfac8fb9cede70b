"""Finds the model that a server serves, from its list at `/v1/models` (OpenAI's API, also implemented by vLLM)."""

from __future__ import annotations

import json
import urllib.parse

from metronome_cli.backends.websocket.endpoint import Endpoint
from metronome_cli.core.http_get import http_get

MOST_BYTES = 1 << 20


def served_model(found: Endpoint) -> str | None:
    """Return the first model of the list; None if there is no list."""
    parts = urllib.parse.urlsplit(found.url)
    secure = parts.scheme == "wss"
    address = urllib.parse.urlunsplit(("https" if secure else "http", parts.netloc, "/v1/models", "", ""))
    try:
        answer = http_get(
            address,
            headers=found.headers,
            ca_file=found.ca_file,
            timeout_s=found.limits.connect_s,
            most_bytes=MOST_BYTES,
        )
    except (OSError, ValueError):
        return None
    return _first(answer.text) if answer.status == 200 else None


def _first(body: str) -> str | None:
    try:
        name = json.loads(body)["data"][0]["id"]
    except (ValueError, LookupError, TypeError):
        return None
    return name if isinstance(name, str) else None
