"""Protocols of live speech servers, by name. Only the one that is asked for is imported."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

from metronome_cli.core.errors import UsageError
from metronome_cli.protocols.interface import ClientCodec, ServerCodec
from metronome_cli.protocols.turn_end import TurnEnd

_CODECS = {  # module:class of the client's side, and of the server's
    "moshi": ("moshi:MoshiClientCodec", "moshi:MoshiServerCodec"),
    "moshi-server": ("moshi_server:MoshiRustClientCodec", "moshi_server:MoshiRustServerCodec"),
    "realtime": ("openai_realtime:RealtimeClientCodec", "openai_realtime_server:RealtimeServerCodec"),
    "unmute": ("openai_realtime:RealtimeClientCodec", ""),
    "vllm-realtime": ("vllm_realtime:VllmRealtimeClientCodec", "vllm_realtime:VllmRealtimeServerCodec"),
    "minicpm": ("minicpm:MiniCpmClientCodec", "minicpm:MiniCpmServerCodec"),
    "transcription": ("transcription:TranscriptionClientCodec", "transcription:TranscriptionServerCodec"),
}
_TURN_ENDS = ("realtime", "transcription")
PROTOCOLS = tuple(_CODECS)
HOSTED = tuple(name for name, codec in _CODECS.items() if codec[1])


def client_codec(
    protocol: str, model: str | None = None, turn_end: TurnEnd | None = None
) -> Callable[[], ClientCodec]:
    """Makes a codec for each session. `turn_end` None: as the protocol has it.

    Raises UsageError for an unknown protocol, a missing library, or a turn end that the protocol does not have.
    """
    make: Callable[..., ClientCodec] = _load(protocol, 0)
    if turn_end is not None and protocol not in _TURN_ENDS:
        raise UsageError(
            f"--turn-end {turn_end}: protocol {protocol!r} has no choice of it",
            hint=f"leave it out, or name one of: {', '.join(_TURN_ENDS)}",
        )
    ends = {} if turn_end is None else {"turn_end": turn_end}
    if protocol == "unmute":
        return partial(make, True)
    named = {"model": model} if protocol in ("vllm-realtime", "transcription") else {}
    return partial(make, **named, **ends) if named or ends else make


def host_codec(protocol: str, answer_s: float | None = None) -> Callable[[], ServerCodec]:
    """The server's side of it; `answer_s`: how long an answer is where the server decides.

    Raises UsageError as `client_codec` does.
    """
    if protocol not in HOSTED:
        raise UsageError(f"protocol {protocol!r} cannot be served", hint=f"one of: {', '.join(HOSTED)}")
    make: Callable[..., ServerCodec] = _load(protocol, 1)
    return partial(make, answer_s) if protocol == "realtime" and answer_s is not None else make


def _load(protocol: str, side: int) -> Any:
    if protocol not in _CODECS:
        raise UsageError(
            f"protocol {protocol!r} is not known", hint=f"one of: {', '.join(PROTOCOLS)}, or auto"
        )
    need_libraries()
    module, _, name = _CODECS[protocol][side].partition(":")
    return getattr(import_module(f"metronome_cli.protocols.{module}"), name)


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
