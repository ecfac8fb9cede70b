"""A metrics page over HTTP: one GET, bounded, without credentials."""

from __future__ import annotations

import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable

from metronome_cli.errors import UsageError

MOST_BYTES = 4 * 2**20
TIMEOUT_S = 5.0

Fetch = Callable[[str], str]


def fetch(address: str) -> str:
    """The text of a scrape. Raises OSError when the server does not answer, UsageError when it answers
    nonsense.
    """
    request = urllib.request.Request(address, headers={"Accept": "text/plain"})
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
            body: bytes = answer.read(MOST_BYTES + 1)
    except urllib.error.HTTPError as error:
        if error.code in (401, 403, 404, 405):
            raise UsageError(
                f"{shown(address)}: HTTP {error.code}", hint="is this the metrics address?"
            ) from None
        raise OSError(f"HTTP {error.code}") from None
    except ValueError as error:
        raise UsageError(f"{shown(address)}: {error}", hint="such as http://host:8000/metrics") from None
    if len(body) > MOST_BYTES:
        raise UsageError(
            f"{shown(address)}: more than {MOST_BYTES >> 20} MiB", hint="is this a metrics address?"
        )
    return body.decode("utf-8", "replace")


def shown(address: str) -> str:
    """The address without what may be secret in it."""
    parts = urllib.parse.urlsplit(address)
    host = parts.netloc.rpartition("@")[2]
    return parts._replace(netloc=host, query="", fragment="").geturl()
