"""A server's address and how to knock: protocol, TLS, headers, keys, timeouts, what a failed knock means.

Keys come from the environment alone: METRONOME_API_KEY, in the header that the protocol wants, and
METRONOME_HEADERS, "Name: value" lines. Neither is printed, stored or put into a report.
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

    connect_s: float = 10.0  # for the upgrade
    ready_s: float = 10.0  # from then on for the seat: longer is a silent queue
    idle_s: float = 10.0  # without any output
    stall_s: float = 5.0  # for the server to take one message
    messages_per_s: int = 2000  # more is a flood
    reconnect: ReconnectPolicy = "none"  # what a session does whose connection broke off


class ConnectError(SessionOver):
    """The door did not open."""


class UntrustedCertificateError(ConnectError):
    """The server's certificate was signed by nobody whom this side knows."""


class UnknownHostError(ConnectError):
    """Nobody is called that."""


class _Connect(connect):
    """Follows no redirect: headers, and keys in them, are for the address that was given."""

    def process_redirect(self, exc: Exception) -> Exception | str:
        return exc


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A server that speaks one protocol.

    `ca_file`: authorities that are trusted besides the system's. `learned`: what an idle call showed of its answers.
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
        """How answers are matched to frames: as an idle call showed, else as the protocol says."""
        return self.learned or self.traits.answers

    async def connect(self, make: Callable[..., ClientConnection] = ClientConnection) -> ClientConnection:
        """An open socket, of a kind that `make` makes. Raises KnockError."""
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
                ping_timeout=None,  # an engine that is busy may answer pings late
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
            raise ConnectError(*why_closed(error, seated=False)) from None
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
        """The text of a server, which may have repeated a header that it was sent."""
        for value in self.headers.values():
            for part in {value, value.rpartition(" ")[2]}:
                if len(part) >= SHORTEST_SECRET:
                    text = text.replace(part, "***")
        return text

    def describe(self) -> dict[str, object]:
        """For a report; without credentials."""
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
    """The system's words for what failed, once for all addresses of a host that were tried."""
    if isinstance(error, gaierror):
        return clipped(error.strerror or error)
    tried = {error.errno} if error.errno else set(map(int, re.findall(r"\[Errno (\d+)\]", str(error))))
    return ", ".join(sorted(os.strerror(number).lower() for number in tried)) or clipped(error)


def why_closed(error: ConnectionClosed, *, seated: bool) -> tuple[EndReason, str]:
    """Why a socket closed, as a session's end."""
    ours = error.sent is not None and not error.rcvd_then_sent
    if ours and error.sent is not None and error.sent.code == 1009:
        return "excess_output", f"a message of more than {MOST_BYTES >> 20} MiB"
    if ours and error.sent is not None and error.sent.code in (1002, 1007):
        return "protocol_error", clipped(error.sent.reason or "not a websocket frame")
    if error.rcvd is None:
        return "connection_closed", "the connection broke off"
    said = clipped(f"closed by the server with code {error.rcvd.code} {error.rcvd.reason}".rstrip())
    if not seated and error.rcvd.code in (1011, 1002, 1007):
        return "server_error", said  # the server failed: that says nothing of its slots
    return ("connection_closed" if seated else "rejected"), said


def endpoint(
    target: str,
    protocol: str,
    limits: SessionTimeouts | None = None,
    environ: Mapping[str, str] | None = None,
    model: str | None = None,
    ca_file: Path | None = None,
    turn_end: TurnEnd | None = None,
) -> Endpoint:
    """The endpoint of a target whose protocol is known. Raises UsageError for a bad address, header or file."""
    codec = client_codec(protocol, model, turn_end)
    traits = codec().traits
    url = address(target, traits.path)
    tls_context(ca_file)  # a file that cannot be used is told before anybody knocks
    return Endpoint(url, codec, traits, headers(traits, environ), limits or SessionTimeouts(), ca_file)


def address(target: str, path: str) -> str:
    """A websocket address; `path` and its query if the target has none. Raises UsageError."""
    hint = "such as ws://host:8998, wss://host/path or ws://[::1]:8998"
    parts = parts_of(target, "--url", tuple(_SCHEMES), hint)
    if "@" in parts.netloc:
        raise UsageError("--url takes no user and password", hint=f"put a key into {KEY_VARIABLE}")
    path, _, query = path.partition("?")
    own = parts.path if parts.path not in ("", "/") else path
    scheme = _SCHEMES[parts.scheme]
    return parts._replace(scheme=scheme, path=own, query=parts.query or query, fragment="").geturl()


def headers(traits: ProtocolTraits, environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """What goes with the upgrade, from the environment. Raises UsageError for a line that is no header."""
    environ = os.environ if environ is None else environ
    found = {}
    for line in environ.get(HEADERS_VARIABLE, "").splitlines():
        name, colon, value = line.partition(":")
        if line.strip() and (not colon or not name.strip().replace("-", "").isalnum()):
            raise UsageError(
                f"{HEADERS_VARIABLE}: a line is no header", hint="each line is a name, a colon, and a value"
            )
        if colon:
            found[name.strip()] = _sendable(value.strip(), HEADERS_VARIABLE)
    if key := environ.get(KEY_VARIABLE, "").strip():
        found[traits.key_header] = traits.key_prefix + _sendable(key, KEY_VARIABLE)
    return found


def _sendable(value: str, variable: str) -> str:
    """The value. Raises UsageError, which does not show it, for what no header may hold (RFC 9110, 5.5)."""
    if value.isascii() and value.isprintable():
        return value
    at = next(place for place, char in enumerate(value) if not (char.isascii() and char.isprintable()))
    raise UsageError(
        f"{variable}: character {at + 1} of a value cannot be sent in a header",
        hint="printable ASCII is allowed; pasted quotes and line ends are a common mistake",
    )


def candidates(target: str) -> tuple[str, ...]:
    """The protocols that a server may speak by its path, in the order in which they are tried; a realtime one may turn
    out to be vllm-realtime or unmute. Raises UsageError for a bad address.
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
    """Which protocol a server speaks: by its path, else by the path that it answers to, else by its first words.

    Raises EngineError when it cannot be reached, UsageError when nothing fits.
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
        f"{shown(target)}: no known protocol answers there",
        hint=f"name it: --protocol {' | '.join(PROTOCOLS)}",
    )


def not_reached(target: str, error: ConnectError) -> UsageError | EngineError:
    """The error of a command whose target does not open at all."""
    if isinstance(error, UntrustedCertificateError):
        return UsageError(
            f"{shown(target)}: {error.detail}",
            hint="--ca-file FILE names the authority that signed it, or itself",
        )
    if isinstance(error, UnknownHostError):
        return UsageError(
            f"--url {shown(target)!r}: its host is not known: {error.detail.lower()}",
            hint="check its spelling, or give its number, such as ws://127.0.0.1:8998",
        )
    if error.reason == "unreachable":
        return EngineError(
            f"{shown(target)} cannot be reached: {error.detail}",
            hint="is a server running there? `metronome serve` starts one to try with",
        )
    return EngineError(
        f"{shown(target)} does not open: {error.reason}: {error.detail}",
        hint="is it a websocket's address? --connect-timeout waits longer",
    )


async def _which_realtime(socket: ClientConnection, limits: SessionTimeouts) -> str:
    """By the first event; Unmute sends none before it is asked."""
    try:
        async with asyncio.timeout(min(2.0, limits.ready_s)):
            first = unpack(await socket.recv())
    except (TimeoutError, ConnectionClosed):
        return "unmute" if socket.subprotocol == "realtime" else "realtime"
    return "realtime" if first is None else realtime_kind(first)


def realtime_kind(first: Mapping[str, object]) -> str:
    """The protocol whose server opens with that event: vLLM's has its id beside the type, others a whole session."""
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
