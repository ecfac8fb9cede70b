"""Which certificates to trust behind `wss:` and `https:` the system's authorities,
and those of a file where one is given.

A certificate is always checked. One that no known authority signed, such as a server's own, is trusted
by naming its file.
"""

from __future__ import annotations

import functools
import ssl
from pathlib import Path

from metronome_cli.core.errors import UsageError


@functools.lru_cache(maxsize=8)
def tls_context(ca_file: Path | None) -> ssl.SSLContext:
    """Reads the file once. Raises UsageError for one that holds no certificates."""
    context = ssl.create_default_context()
    if ca_file is not None:
        try:
            context.load_verify_locations(ca_file)
        except OSError as error:  # of which ssl.SSLError is one
            why = "no certificate in it" if isinstance(error, ssl.SSLError) else error.strerror
            raise UsageError(f"--ca-file {ca_file}: {why}", hint="a file of certificates, PEM") from None
    return context


def untrusted(error: BaseException | None) -> str | None:
    """Why a certificate was not trusted, where that is what failed."""
    while error is not None:
        if isinstance(error, ssl.SSLCertVerificationError):
            return error.verify_message
        reason = getattr(error, "reason", None)
        error = reason if isinstance(reason, BaseException) else error.__cause__
    return None
