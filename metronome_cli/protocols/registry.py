"""Protocols of live speech servers, by name. Only the one that is asked for is imported."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

from metronome_cli.core.errors import UsageError
from metronome_cli.protocols.interface import ClientCodec, ServerCodec

_CODECS = {
    "moshi": ("moshi", "MoshiClientCodec", "MoshiServerCodec"),
    "moshi-server": ("moshi_server", "MoshiRustClientCodec", "MoshiRustServerCodec"),
    "realtime": ("openai_realtime", "RealtimeClientCodec", "RealtimeServerCodec"),
    "unmute": ("openai_realtime", "RealtimeClientCodec", ""),
    "vllm-realtime": ("vllm_realtime", "VllmRealtimeClientCodec", "VllmRealtimeServerCodec"),
}
PROTOCOLS = tuple(_CODECS)
HOSTED = tuple(name for name, codec in _CODECS.items() if codec[2])


def client_codec(protocol: str, model: str | None = None) -> Callable[[], ClientCodec]:
    """Makes a codec for each session. Raises UsageError for an unknown protocol or a missing library."""
    make: Callable[..., ClientCodec] = _load(protocol, 1)
    if protocol == "unmute":
        return partial(make, True)
    return partial(make, model) if protocol == "vllm-realtime" else make


def host_codec(protocol: str) -> Callable[[], ServerCodec]:
    """The server's side of it. Raises UsageError as `client_codec` does."""
    if protocol not in HOSTED:
        raise UsageError(f"protocol {protocol!r} cannot be served", hint=f"one of: {', '.join(HOSTED)}")
    make: Callable[[], ServerCodec] = _load(protocol, 2)
    return make


def _load(protocol: str, side: int) -> Any:
    if protocol not in _CODECS:
        raise UsageError(
            f"protocol {protocol!r} is not known", hint=f"one of: {', '.join(PROTOCOLS)}, or auto"
        )
    need_libraries()
    return getattr(import_module(f"metronome_cli.protocols.{_CODECS[protocol][0]}"), _CODECS[protocol][side])


def need_libraries() -> None:
    """Raises UsageError where the libraries for servers over the network are not installed."""
    for library in ("websockets", "msgpack", "sphn"):
        try:
            import_module(library)
        except ImportError:
            raise UsageError(
                f"servers over the network need the package {library!r}",
                hint="pip install 'metronome-cli[net]', or from a checkout pip install '.[net]'",
            ) from None
