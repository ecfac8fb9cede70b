"""`metronome serve`: a reference server for trying clients, and the whole path without a GPU."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from metronome_cli.cli import options
from metronome_cli.cli.completion import complete_words
from metronome_cli.cli.options import SERVER, command_option

if TYPE_CHECKING:
    from metronome_cli.config.settings import Settings

PROTOCOLS = ("moshi", "moshi-server", "realtime", "vllm-realtime", "minicpm", "transcription")
ON_FULL = ("refuse", "queue")
Protocol = Annotated[
    str,
    command_option(
        SERVER,
        "WORD",
        "moshi, moshi-server, realtime, vllm-realtime, minicpm or transcription.",
        autocompletion=complete_words(*PROTOCOLS),
    ),
]
Port = Annotated[int, command_option(SERVER, "N", "0 takes any free one.", min=0, max=65535)]
Host = Annotated[str, command_option(SERVER, "HOST", "Address to listen on.")]
Slots = Annotated[
    int | None,
    command_option(SERVER, "N", "Slots; further sessions are rejected.", min=1, show_default="32"),
]
Duration = Annotated[str | None, command_option(SERVER, "TIME", "Stop after this time, such as 60s.")]
OnFull = Annotated[
    str,
    command_option(
        SERVER,
        "WORD",
        "refuse: reject with a message; queue: let sessions wait without one.",
        autocompletion=complete_words(*ON_FULL),
    ),
]

EPILOG = """Examples:

  metronome serve --protocol moshi --port 8998  # until Ctrl-C

  metronome serve --protocol realtime --max-sessions 4 --duration 60s  # four slots, one minute

  metronome capacity --url ws://127.0.0.1:8998 --metrics-url http://127.0.0.1:8998/metrics
"""


def serve(
    protocol: Protocol = "moshi",
    port: Port = 8998,
    host: Host = "127.0.0.1",
    max_sessions: Slots = None,
    duration: Duration = None,
    on_full: OnFull = "refuse",
    profile: options.Profile = None,
    seed: options.Seed = None,
    device: options.Device = None,
    weights: options.Weights = None,
    policy: options.Policy = None,
    on_pool_full: options.OnPoolFull = None,
    kv_pool: options.KvPool = None,
) -> None:
    """Speak a real protocol on top of the built-in engine; the pool's metrics are at /metrics."""
    given = locals()
    from metronome_cli.config import readers
    from metronome_cli.config.settings import resolve
    from metronome_cli.protocols.registry import need_libraries

    own = {key: given.pop(key) for key in ("protocol", "port", "host", "on_full", "duration", "max_sessions")}
    readers.read_as("--on-full", readers.choice(*ON_FULL), on_full)
    own["duration"] = None if duration is None else readers.read_as("--duration", readers.duration, duration)
    need_libraries()
    _serve(resolve(given), own)


def _serve(settings: Settings, own: dict[str, Any]) -> None:
    """Load the model, print the address, and serve. `own`: the values of options that are not settings."""
    from metronome_cli.ui.status_line import status_line

    with ExitStack() as loading:
        loading.enter_context(status_line("loading the model"))  # and the libraries that it needs

        def announce(where: str) -> None:
            loading.close()
            metrics = "http" + where.removeprefix("ws").rpartition(":")[0] + ":" + _port(where) + "/metrics"
            typer.echo(f"{own['protocol']} at {where}", err=True)
            typer.echo(f"metrics at {metrics}", err=True)
            typer.echo(f"try: metronome capacity --url {where} --metrics-url {metrics}", err=True)

        from metronome_cli.core.errors import exit_code_for
        from metronome_cli.core.stop import StopRequest
        from metronome_cli.server.reference_server import DEFAULT_SLOTS, ServePlan, run_serve

        plan = ServePlan(
            profile=settings.profile,
            slots=own["max_sessions"] or DEFAULT_SLOTS,
            device=settings["device"],
            weights=None if settings["weights"] == "random" else Path(settings["weights"]),
            seed=settings["seed"],
            protocol=own["protocol"],
            port=own["port"],
            host=own["host"],
            when_full=own["on_full"],
            for_s=own["duration"],
        )
        with StopRequest().on_signals() as stop:
            was_up = run_serve(plan, stop, announce)
        if not was_up:
            raise typer.Exit(exit_code_for("interrupted", None, signum=stop.signum))


def _port(address: str) -> str:
    """The port of a ws:// address that has one."""
    return address.rpartition(":")[2].partition("/")[0]
