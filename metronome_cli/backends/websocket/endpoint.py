"""A server's address and how to connect: protocol, TLS, headers, keys, timeouts and connection errors.

Keys come only from the environment: METRONOME_API_KEY, sent in the header that the protocol requires, and
METRONOME_HEADERS, "Name: value" lines. Neither is printed, stored or reported.
"""

from __future__ import annotations

import asyncio
import os
import re
import urllib.parse
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from socket import EAI_AGAIN, gaierror
from typing import Literal, cast

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidMessage, InvalidStatus
from websockets.typing import Subprotocol

from metronome_cli.core.errors import EngineError, UsageError
from metronome_cli.core.http import parts_of, shown
from metronome_cli.core.tls import tls_context, untrusted
from metronome_cli.core.types import EndReason, SessionOver
from metronome_cli.protocols.interface import AnswerRule, ClientCodec, ProtocolTraits
from metronome_cli.protocols.messages import clipped
from metronome_cli.protocols.pcm import unpack
from metronome_cli.protocols.registry import PROTOCOLS, client_codec
from metronome_cli.protocols.turn_end import TurnEnd

KEY_VARIABLE = "METRONOME_API_KEY"
HEADERS_VARIABLE = "METRONOME_HEADERS"
MOST_BYTES = 16 << 20  # of one message: 5 min of PCM16 in base64
ReconnectPolicy = Literal["none", "once", "always"]
SHORTEST_SECRET = 4  # characters; a shorter value would blank out ordinary words
_SCHEMES = {"ws": "ws", "http": "ws", "wss": "wss", "https": "wss"}
_BY_PATH = {"/api/chat": "moshi", "/api/asr-streaming": "moshi-server"}
_TRIED = ("realtime", "moshi-server", "moshi")  # most specific first: some servers open any path


@dataclass(frozen=True, slots=True)
class SessionTimeouts:
    """How long to wait, in seconds, before a session ends with a reason."""

    connect_s: float = 10.0  # for the websocket upgrade
    ready_s: float = 10.0  # from the upgrade until the session is ready; then it ends as a queue timeout
    idle_s: float = 10.0  # without any output
    stall_s: float = 5.0  # for the server to accept one message
    messages_per_s: int = 2000  # more ends the session as excess output
    reconnect: ReconnectPolicy = "none"  # what a session does after its connection was lost


class ConnectError(SessionOver):
    """The connection was not established."""


class UntrustedCertificateError(ConnectError):
    """No trusted authority signed the server's certificate."""


class UnknownHostError(ConnectError):
    """The host name could not be resolved."""


class _Connect(connect):
    """A connection that follows no redirect, since headers and keys are meant for the given address only."""

    def process_redirect(self, exc: Exception) -> Exception | str:
        return exc


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A server that speaks one protocol.

    `ca_file`: authorities that are trusted besides the system's. `learned`: the answer rule that an idle call showed.
    """

    url: str
    codec: Callable[[], ClientCodec]
    traits: ProtocolTraits
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    limits: SessionTimeouts = SessionTimeouts()
    ca_file: Path | None = None
    learned: AnswerRule | None = None

    @property
    def answers(self) -> AnswerRule:
        """Rule that matches answers to frames: as an idle call showed, else as the protocol states."""
        return self.learned or self.traits.answers

    async def connect(self, make: Callable[..., ClientConnection] = ClientConnection) -> ClientConnection:
        """Open a socket of the type that `make` returns. Raises ConnectError."""
        try:
            return await _Connect(
                self.url,
                ssl=tls_context(self.ca_file) if self.url.startswith("wss:") else None,
                additional_headers=dict(self.headers),
                subprotocols=[Subprotocol(name) for name in self.traits.subprotocols] or None,
                compression=None,
                proxy=None,
                open_timeout=self.limits.connect_s,
                close_timeout=0.5,
                ping_timeout=None,  # a busy engine may answer pings late
                max_size=MOST_BYTES,
                create_connection=cast(type[ClientConnection], make),
            )
        except TimeoutError:
            raise ConnectError(
                "queue_timeout", f"no answer to the upgrade in {self.limits.connect_s:g} s"
            ) from None
        except InvalidStatus as error:
            raise ConnectError("rejected", f"HTTP {error.response.status_code}") from None
        except InvalidMessage as error:
            gone = isinstance(error.__cause__, EOFError)
            raise ConnectError("connection_closed" if gone else "protocol_error", clipped(error)) from None
        except InvalidHandshake as error:
            raise ConnectError("protocol_error", clipped(error)) from None
        except ConnectionClosed as error:
            raise ConnectError(*why_closed(error, ready=False)) from None
        except OSError as error:
            if self.url.startswith("wss:") and _no_tls(error):
                raise ConnectError(
                    "unreachable", "no TLS there: if the server is a plain one, use ws:// in place of wss://"
                ) from None
            if why := untrusted(error):
                raise UntrustedCertificateError(
                    "unreachable", f"its certificate is not trusted: {clipped(why)}"
                ) from None
            unknown = isinstance(error, gaierror) and error.errno != EAI_AGAIN
            raise (UnknownHostError if unknown else ConnectError)("unreachable", _refusal(error)) from None

    def without_secrets(self, text: str) -> str:
        """Return a server's text with secrets removed, since it may repeat a header that it received."""
        for value in self.headers.values():
            for part in {value, value.rpartition(" ")[2]}:
                if len(part) >= SHORTEST_SECRET:
                    text = text.replace(part, "***")
        return text

    def describe(self) -> dict[str, object]:
        """Describe the endpoint for a report, without credentials."""
        rule = self.answers
        return {
            "url": shown(self.url),
            "protocol": self.traits.name,
            "sample_rate": self.traits.sample_rate,
            "answers": rule.kind,
            "answers_owed": rule.owed,
            "hold_back_ms": None if rule.hold_back_s is None else round(rule.hold_back_s * 1e3, 3),
        }


# Reasons that OpenSSL gives for an answer that is not TLS.
_NO_TLS = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST", "PACKET_LENGTH_TOO_LONG")


def _no_tls(error: OSError) -> bool:
    """True if an answer was not TLS, or the connection ended in the handshake without a reason."""
    return getattr(error, "reason", None) in _NO_TLS or (
        isinstance(error, ConnectionResetError) and not error.errno
    )


def _refusal(error: OSError) -> str:
    """Return the operating system's error messages, each once for all tried addresses of a host."""
    if isinstance(error, gaierror):
        return clipped(error.strerror or error)
    tried = {error.errno} if error.errno else set(map(int, re.findall(r"\[Errno (\d+)\]", str(error))))
    return ", ".join(sorted(os.strerror(number).lower() for number in tried)) or clipped(error)


def why_closed(error: ConnectionClosed, *, ready: bool) -> tuple[EndReason, str]:
    """Return end reason and detail of a session whose socket closed."""
    ours = error.sent is not None and not error.rcvd_then_sent
    if ours and error.sent is not None and error.sent.code == 1009:
        return "excess_output", f"a message of more than {MOST_BYTES >> 20} MiB"
    if ours and error.sent is not None and error.sent.code in (1002, 1007):
        return "protocol_error", clipped(error.sent.reason or "not a websocket frame")
    if error.rcvd is None:
        return "connection_closed", "the connection was lost"
    said = clipped(f"closed by the server with code {error.rcvd.code} {error.rcvd.reason}".rstrip())
    if not ready and error.rcvd.code in (1011, 1002, 1007):
        return "server_error", said  # an error of the server does not mean that it has no free slot
    return ("connection_closed" if ready else "rejected"), said


def endpoint(
    target: str,
    protocol: str,
    limits: SessionTimeouts | None = None,
    environ: Mapping[str, str] | None = None,
    model: str | None = None,
    ca_file: Path | None = None,
    turn_end: TurnEnd | None = None,
) -> Endpoint:
    """Return the endpoint of a target whose protocol is known. Raises UsageError for a bad address, header or file."""
    codec = client_codec(protocol, model, turn_end)
    traits = codec().traits
    url = address(target, traits.path)
    tls_context(ca_file)  # an unusable file is reported before connecting
    return Endpoint(url, codec, traits, headers(traits, environ), limits or SessionTimeouts(), ca_file)


def address(target: str, path: str) -> str:
    """Return a websocket address, with `path` and its query if the target has none. Raises UsageError."""
    hint = "such as ws://host:8998, wss://host/path or ws://[::1]:8998"
    parts = parts_of(target, "--url", tuple(_SCHEMES), hint)
    if "@" in parts.netloc:
        raise UsageError("--url takes no user and password", hint=f"set {KEY_VARIABLE} to the key")
    path, _, query = path.partition("?")
    own = parts.path if parts.path not in ("", "/") else path
    scheme = _SCHEMES[parts.scheme]
    return parts._replace(scheme=scheme, path=own, query=parts.query or query, fragment="").geturl()


def headers(traits: ProtocolTraits, environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the headers of the upgrade, from the environment. Raises UsageError for a line that is not a header."""
    environ = os.environ if environ is None else environ
    found = {}
    for line in environ.get(HEADERS_VARIABLE, "").splitlines():
        name, colon, value = line.partition(":")
        if line.strip() and (not colon or not name.strip().replace("-", "").isalnum()):
            raise UsageError(
                f"{HEADERS_VARIABLE}: a line is not a header", hint="write each line as 'Name: value'"
            )
        if colon:
            found[name.strip()] = _sendable(value.strip(), HEADERS_VARIABLE)
    if key := environ.get(KEY_VARIABLE, "").strip():
        found[traits.key_header] = traits.key_prefix + _sendable(key, KEY_VARIABLE)
    return found


def _sendable(value: str, variable: str) -> str:
    """Return the value. Raises UsageError, which does not show it, for characters not allowed in a header (RFC 9110,
    5.5)."""
    if value.isascii() and value.isprintable():
        return value
    at = next(place for place, char in enumerate(value) if not (char.isascii() and char.isprintable()))
    raise UsageError(
        f"{variable}: character {at + 1} of a value cannot be sent in a header",
        hint="printable ASCII is allowed; pasted quotes and line ends are a common mistake",
    )


def candidates(target: str) -> tuple[str, ...]:
    """Return the protocols that a path suggests, in the order in which they are tried. A realtime one may turn out to
    be vllm-realtime or unmute. Raises UsageError for a bad address.
    """
    address(target, "/")
    path = urllib.parse.urlsplit(target if "://" in target else f"ws://{target}").path
    if path in _BY_PATH:
        return (_BY_PATH[path],)
    return ("realtime",) if path.endswith("/realtime") else _TRIED


async def detect(
    target: str,
    limits: SessionTimeouts,
    environ: Mapping[str, str] | None = None,
    ca_file: Path | None = None,
) -> str:
    """Detect the protocol of a server: by the path of the address, by the path that connects, or by its first message.

    Raises EngineError if the server cannot be reached, UsageError if no protocol fits.
    """
    tried = candidates(target)
    if len(tried) == 1 and tried[0] != "realtime":
        return tried[0]
    for protocol in tried:
        found = endpoint(target, protocol, limits, environ, ca_file=ca_file)
        try:
            socket = await found.connect()
        except ConnectError as error:
            if error.reason in ("unreachable", "queued"):
                raise not_reached(target, error) from None
            continue
        try:
            return await _which_realtime(socket, limits) if protocol == "realtime" else protocol
        finally:
            await socket.close()
    raise UsageError(
        f"{shown(target)}: no known protocol was detected",
        hint=f"set it with --protocol {' | '.join(PROTOCOLS)}",
    )


def not_reached(target: str, error: ConnectError) -> UsageError | EngineError:
    """Return the error of a command whose target cannot be connected."""
    if isinstance(error, UntrustedCertificateError):
        return UsageError(
            f"{shown(target)}: {error.detail}",
            hint="pass --ca-file FILE with the authority that signed the certificate, or with the certificate itself",
        )
    if isinstance(error, UnknownHostError):
        return UsageError(
            f"--url {shown(target)!r}: the host name could not be resolved:  {error.detail.lower()}",
            hint="check the spelling, or use an IP address, such as ws://127.0.0.1:8998",
        )
    if error.reason == "unreachable":
        return EngineError(
            f"{shown(target)} cannot be reached: {error.detail}",
            hint="check that a server is running there; `metronome serve` starts one for tests",
        )
    return EngineError(
        f"{shown(target)} connection failed: {error.reason}: {error.detail}",
        hint="check that the address is a websocket; --connect-timeout sets how long to wait",
    )


async def _which_realtime(socket: ClientConnection, limits: SessionTimeouts) -> str:
    """Detect the protocol by the first event. Unmute sends none before a request."""
    try:
        async with asyncio.timeout(min(2.0, limits.ready_s)):
            first = unpack(await socket.recv())
    except (TimeoutError, ConnectionClosed):
        return "unmute" if socket.subprotocol == "realtime" else "realtime"
    return "realtime" if first is None else realtime_kind(first)


def realtime_kind(first: Mapping[str, object]) -> str:
    """Return the protocol of a first event: vLLM's has the id beside the type, others contain a session object."""
    kind, session = str(first["type"]), first.get("session")
    if kind in ("session.queued", "session.queue_update", "session.queue_done"):
        return "minicpm"
    if isinstance(session, dict) and session.get("type") == "transcription":
        return "transcription"
    return "vllm-realtime" if "id" in first and "session" not in first else "realtime"


async def probe_connection(found: Endpoint, *, any_answer: bool = False) -> None:
    """Connect once. Raises EngineError if the server rejects the connection; with `any_answer`, only if it does not
    respond.
    """
    try:
        socket = await found.connect()
    except ConnectError as error:
        if any_answer and error.reason != "unreachable":
            return
        raise not_reached(found.url, error) from None
    await socket.close()
