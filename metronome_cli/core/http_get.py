"""One bounded HTTP GET: no redirect, no proxy, a limit on its size, and one deadline for all of it.

The deadline covers the name, the connection, the headers and the body, so a server that sends a byte a second
cannot hold a command up. Headers go to the given address alone.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from metronome_cli.core.tls import tls_context, untrusted

if TYPE_CHECKING:
    import httpx

TIMEOUT_S = 5.0
MOST_BYTES = 4 * 2**20


class BadAnswerError(OSError):
    """The server answered, but not with a complete HTTP response of allowed size."""


class TooLargeError(BadAnswerError):
    """The response is larger than allowed."""


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """Status code, body as text, and value of the Content-Type header."""

    status: int
    text: str
    content_type: str


def http_get(
    address: str,
    *,
    accept: str = "*/*",
    headers: Mapping[str, str] | None = None,
    ca_file: Path | None = None,
    timeout_s: float = TIMEOUT_S,
    most_bytes: int = MOST_BYTES,
) -> HttpAnswer:
    """GET an address. `ca_file`: certificate authorities trusted besides the system's.

    Raises OSError if there is no answer in `timeout_s`, BadAnswerError if the answer is not HTTP or does not end in
    time, TooLargeError beyond `most_bytes`, ValueError if the address is not valid, UsageError for `ca_file`.
    """
    import httpx

    verify = tls_context(ca_file) if address.startswith("https:") else False
    answered: list[bool] = []

    async def run() -> HttpAnswer:
        async with (
            httpx.AsyncClient(verify=verify, trust_env=False, timeout=timeout_s) as client,
            asyncio.timeout(timeout_s),
            client.stream("GET", address, headers={"Accept": accept, **(headers or {})}) as response,
        ):
            answered.append(True)
            return await _read(response, most_bytes)

    try:
        return asyncio.run(run())
    except TimeoutError:
        if answered:
            raise BadAnswerError(f"the answer did not end within {timeout_s:g} s") from None
        raise OSError(f"no answer within {timeout_s:g} s") from None
    except (httpx.InvalidURL, httpx.UnsupportedProtocol) as error:
        raise ValueError(str(error)) from None
    except httpx.ConnectError as error:
        raise OSError(untrusted(error) or _cause(error)) from None
    except httpx.TimeoutException:
        raise OSError(f"no answer within {timeout_s:g} s") from None
    except httpx.RemoteProtocolError as error:
        if "without sending" in str(error):
            raise OSError("the server closed the connection without an answer") from None
        raise BadAnswerError("the answer is not HTTP") from None
    except httpx.HTTPError as error:
        raise BadAnswerError(_cause(error)) from None


async def _read(response: httpx.Response, most_bytes: int) -> HttpAnswer:
    body = b""
    async for part in response.aiter_bytes():
        body += part
        if len(body) > most_bytes:
            raise TooLargeError(f"more than {most_bytes >> 20} MiB")
    return HttpAnswer(
        response.status_code, body.decode("utf-8", "replace"), response.headers.get("content-type", "")
    )


def _cause(error: BaseException) -> str:
    """The message of the operating system's error that an exception came from, else its own."""
    at: BaseException | None = error
    while at is not None:
        if isinstance(at, OSError) and at.errno and at.errno > 0:
            return os.strerror(at.errno)
        at = at.__cause__ or at.__context__
    return str(error) or type(error).__name__
