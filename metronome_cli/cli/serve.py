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

PROTOCOLS = ("moshi", "moshi-server", "realtime", "vllm-realtime")
WHEN_FULL = ("refuse", "queue")
Protocol = Annotated[
    str,
    command_option(
        SERVER,
        "WORD",
        "moshi, moshi-server, realtime or vllm-realtime.",
        autocompletion=complete_words(*PROTOCOLS),
    ),
]
Port = Annotated[int, command_option(SERVER, "N", "0 takes any free one.", min=0, max=65535)]
Host = Annotated[str, command_option(SERVER, "HOST", "Address to listen on.")]
Seats = Annotated[
    int | None,
    options.SettingOption(
        "sessions", SERVER, min=1, metavar="N", help="Seats; more callers are turned away.", show_default="32"
    ),
]
For = Annotated[str | None, command_option(SERVER, "TIME", "Stop after this long, such as 60s.", "--for")]
WhenFull = Annotated[
    str,
    command_option(
        SERVER,
        "WORD",
        "refuse: say so; queue: let callers wait silently.",
        autocompletion=complete_words(*WHEN_FULL),
    ),
]

EPILOG = """Examples:

  metronome serve --protocol moshi --port 8998  # until Ctrl-C

  metronome serve --protocol realtime --sessions 4 --for 60s  # four seats, one minute

  metronome capacity --target ws://127.0.0.1:8998 --scrape http://127.0.0.1:8998/metrics
"""


def serve(
    protocol: Protocol = "moshi",
    port: Port = 8998,
    host: Host = "127.0.0.1",
    sessions: Seats = None,
    for_: For = None,
    when_full: WhenFull = "refuse",
    profile: options.Profile = None,
    seed: options.Seed = None,
    device: options.Device = None,
    weights: options.Weights = None,
    policy: options.Policy = None,
    exhaustion: options.Exhaustion = None,
    pool: options.Pool = None,
) -> None:
    """Speak a real protocol on top of the built-in engine; the pool's metrics are at /metrics."""
    given = locals()
    from metronome_cli.config import readers
    from metronome_cli.config.settings import resolve
    from metronome_cli.protocols.registry import need_libraries

    door = {key: given.pop(key) for key in ("protocol", "port", "host", "when_full")}
    long = given.pop("for_")
    door["for_s"] = None if long is None else readers.read_as("--for", readers.duration, long)
    readers.read_as("--when-full", readers.choice(*WHEN_FULL), when_full)
    need_libraries()
    _serve(resolve(given), door)


def _serve(settings: Settings, door: dict[str, Any]) -> None:
    """Load the model, say where the server is, and serve. `door`: what is no setting, as ServePlan has it."""
    from metronome_cli.ui.status_line import status_line

    with ExitStack() as loading:
        loading.enter_context(status_line("loading the model"))  # and the libraries that it needs

        def announce(where: str) -> None:
            loading.close()
            typer.echo(f"{door['protocol']} at {where}", err=True)

        from metronome_cli.core.errors import exit_code_for
        from metronome_cli.core.stop import StopRequest
        from metronome_cli.server.reference_server import DEFAULT_SEATS, ServePlan, run_serve

        plan = ServePlan(
            profile=settings.profile,
            seats=settings["sessions"] or DEFAULT_SEATS,
            device=settings["device"],
            weights=None if settings["weights"] == "random" else Path(settings["weights"]),
            seed=settings["seed"],
            **door,
        )
        with StopRequest().on_signals() as stop:
            was_up = run_serve(plan, stop, announce)
        if not was_up:
            raise typer.Exit(exit_code_for("interrupted", None, signum=stop.signum))
