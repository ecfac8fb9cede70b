"""A metrics page over HTTP: one GET, bounded, without credentials."""

from __future__ import annotations

import http.client
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import IO

from metronome_cli.core.errors import UsageError
from metronome_cli.core.http import shown
from metronome_cli.core.tls import tls_context, untrusted

MOST_BYTES = 4 * 2**20
TIMEOUT_S = 5.0

Fetch = Callable[[str], str]


class NoPageError(OSError):
    """It answered, with something that is no page."""


def why_none(error: OSError) -> str:
    """Why there is no page, in words: "no answer (Connection refused)"."""
    reason = untrusted(error) or getattr(error, "reason", None) or error.strerror or error
    return f"{'no metrics' if isinstance(error, NoPageError) else 'no answer'} ({reason})"


def fetch(address: str, ca_file: Path | None = None) -> str:
    """The text of a scrape. Raises OSError when the server does not answer (NoPageError: with no page), UsageError
    when it answers nonsense. `ca_file`: authorities that are trusted besides the system's.
    """
    request = urllib.request.Request(address, headers={"Accept": "text/plain"})
    try:
        context = tls_context(ca_file) if address.startswith("https:") else None
        with urllib.request.urlopen(request, timeout=TIMEOUT_S, context=context) as answer:
            body = _read(answer, time.monotonic() + TIMEOUT_S)
    except urllib.error.HTTPError as error:
        if error.code < 400 or error.code in (401, 403, 404, 405):
            raise UsageError(
                f"{shown(address)}: HTTP {error.code}", hint="is this the metrics address?"
            ) from None
        raise NoPageError(f"HTTP {error.code}") from None
    except http.client.RemoteDisconnected:
        raise OSError("it hung up without an answer") from None
    except http.client.HTTPException:
        raise NoPageError("what it answers is not HTTP") from None
    except ValueError as error:
        raise UsageError(f"{shown(address)}: {error}", hint="such as http://host:8000/metrics") from None
    if len(body) > MOST_BYTES:
        raise UsageError(
            f"{shown(address)}: more than {MOST_BYTES >> 20} MiB", hint="is this a metrics address?"
        )
    return body.decode("utf-8", "replace")


def _read(answer: IO[bytes], until_s: float) -> bytes:
    """The body, up to a byte more than is allowed. Raises NoPageError where it does not end in time."""
    body = b""
    while len(body) <= MOST_BYTES and (more := answer.read1(1 << 16)):  # type: ignore[attr-defined]
        body += more
        if time.monotonic() > until_s:
            raise NoPageError(f"its answer did not end within {TIMEOUT_S:g} s")
    return body
