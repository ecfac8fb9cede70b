"""A Prometheus metrics page: one GET, bounded, without credentials."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from metronome_cli.core.errors import UsageError
from metronome_cli.core.http import parts_of, shown
from metronome_cli.core.http_get import TIMEOUT_S, BadAnswerError, TooLargeError, http_get
from metronome_cli.core.tls import untrusted

ACCEPT = "application/openmetrics-text;version=1.0.0;q=0.8,text/plain;version=0.0.4;q=1.0"
Fetch = Callable[[str], str]


class NoPageError(OSError):
    """The server answered, but not with a metrics page."""


def metrics_address(url: str) -> str:
    """The address of a metrics page. Raises UsageError for one that is not HTTP."""
    parts = parts_of(url, "metrics URL", ("http", "https"), "such as http://host:8000/metrics")
    if "@" in parts.netloc:
        raise UsageError("the metrics URL takes no user and password", hint="give the address alone")
    return parts._replace(path=parts.path if parts.path not in ("", "/") else "/metrics").geturl()


def why_none(error: OSError) -> str:
    """Return why there is no page: "no answer (Connection refused)"."""
    reason = untrusted(error) or getattr(error, "reason", None) or error.strerror or error
    return f"{'no metrics' if isinstance(error, NoPageError) else 'no answer'} ({reason})"


def fetch(address: str, ca_file: Path | None = None) -> str:
    """Return the text of a scrape. `ca_file`: certificate authorities trusted besides the system's.

    Raises OSError if the server does not answer, NoPageError if it answers without a page, and UsageError if the
    address cannot be a metrics address.
    """
    try:
        answer = http_get(address, accept=ACCEPT, ca_file=ca_file, timeout_s=TIMEOUT_S)
    except TooLargeError as error:
        raise UsageError(f"{shown(address)}: {error}", hint="is this a metrics address?") from None
    except BadAnswerError as error:
        raise NoPageError(str(error)) from None
    except ValueError as error:
        raise UsageError(f"{shown(address)}: {error}", hint="such as http://host:8000/metrics") from None
    if 300 <= answer.status < 400 or answer.status in (401, 403, 404, 405):
        raise UsageError(f"{shown(address)}: HTTP {answer.status}", hint="is this the metrics address?")
    if answer.status >= 400:
        raise NoPageError(f"HTTP {answer.status}")
    return answer.text
