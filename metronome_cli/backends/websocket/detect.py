"""Which model a server serves, by its own list at `/v1/models` (OpenAI's API, which vLLM speaks)."""

from __future__ import annotations

import json
import urllib.error
import urllib.parse
import urllib.request
from typing import Any

from metronome_cli.backends.websocket.endpoint import Endpoint
from metronome_cli.core.tls import tls_context

MOST_BYTES = 1 << 20


class _Stay(urllib.request.HTTPRedirectHandler):
    """Follows no redirect: the headers are for the address that was given."""

    def redirect_request(self, *_: Any) -> None:
        return None


def served_model(found: Endpoint) -> str | None:
    """The first model of the list; None where there is no list."""
    parts = urllib.parse.urlsplit(found.url)
    secure = parts.scheme == "wss"
    address = urllib.parse.urlunsplit(("https" if secure else "http", parts.netloc, "/v1/models", "", ""))
    handlers: list[urllib.request.BaseHandler] = [urllib.request.ProxyHandler({}), _Stay()]
    if secure:
        handlers.append(urllib.request.HTTPSHandler(context=tls_context(found.ca_file)))
    request = urllib.request.Request(address, headers=dict(found.headers))
    try:
        with urllib.request.build_opener(*handlers).open(request, timeout=found.limits.connect_s) as answer:
            return _first(answer.read(MOST_BYTES))
    except urllib.error.HTTPError as error:
        error.close()
    except OSError:
        pass
    return None


def _first(body: bytes) -> str | None:
    try:
        name = json.loads(body)["data"][0]["id"]
    except (ValueError, LookupError, TypeError):
        return None
    return name if isinstance(name, str) else None
