"""`metronome serve`: a reference server for trying clients, and the whole path without a GPU."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Annotated

import typer

from metronome_cli.cli import options
from metronome_cli.cli.completion import complete_words
from metronome_cli.cli.options import SERVER

EPILOG = """Examples:

  metronome serve --protocol moshi --port 8998  # until Ctrl-C

  metronome serve --protocol realtime --sessions 4 --for 60s  # four seats, one minute

  metronome capacity --target ws://127.0.0.1:8998 --scrape http://127.0.0.1:8998/metrics
"""


def serve(
    protocol: Annotated[
        str,
        typer.Option(
            help="moshi, moshi-server, realtime or vllm-realtime.",
            rich_help_panel=SERVER,
            metavar="WORD",
            autocompletion=complete_words("moshi", "moshi-server", "realtime", "vllm-realtime"),
        ),
    ] = "moshi",
    port: Annotated[
        int,
        typer.Option(min=0, max=65535, help="0 takes any free one.", rich_help_panel=SERVER, metavar="N"),
    ] = 8998,
    host: Annotated[
        str, typer.Option(help="Address to listen on.", rich_help_panel=SERVER, metavar="HOST")
    ] = "127.0.0.1",
    sessions: Annotated[
        int | None,
        options.SettingOption(
            "sessions", SERVER, min=1, metavar="N", help="Seats; more callers are turned away."
        ),
    ] = None,
    for_: Annotated[
        str | None,
        typer.Option(
            "--for", help="Stop after this long, such as 60s.", rich_help_panel=SERVER, metavar="TIME"
        ),
    ] = None,
    when_full: Annotated[
        str,
        typer.Option(
            help="refuse: say so; queue: let callers wait silently.",
            rich_help_panel=SERVER,
            metavar="WORD",
            autocompletion=complete_words("refuse", "queue"),
        ),
    ] = "refuse",
    profile: options.Profile = None,
    seed: options.Seed = None,
    device: options.Device = None,
    weights: options.Weights = None,
    policy: options.Policy = None,
    exhaustion: options.Exhaustion = None,
    pool: options.Pool = None,
) -> None:
    """Speak a real protocol on top of the built-in engine; the pool's metrics are at /metrics."""
    from pathlib import Path

    from metronome_cli.config.quantities import parse_duration
    from metronome_cli.config.settings import resolve
    from metronome_cli.errors import UsageError
    from metronome_cli.targets.protocols import need_libraries

    if when_full not in ("refuse", "queue"):
        raise UsageError(f"--when-full {when_full!r} is not known", hint="refuse or queue")
    need_libraries()
    settings = resolve(
        {
            "profile": profile, "policy": policy, "exhaustion": exhaustion, "pool": pool, "seed": seed,
            "device": device, "weights": weights, "sessions": sessions,
        }
    )  # fmt: skip
    from metronome_cli.ui.working import working

    with ExitStack() as loading:
        loading.enter_context(working("loading the model"))  # and the libraries that it needs

        def announce(where: str) -> None:
            loading.close()
            typer.echo(f"{protocol} at {where}", err=True)

        from metronome_cli.run.serve import DEFAULT_SEATS, ServePlan, run_serve
        from metronome_cli.run.stop import Stop

        plan = ServePlan(
            profile=settings.profile,
            protocol=protocol,
            host=host,
            port=port,
            seats=settings["sessions"] or DEFAULT_SEATS,
            for_s=None if for_ is None else parse_duration(for_),
            when_full="queue" if when_full == "queue" else "refuse",
            device=settings["device"],
            weights=None if settings["weights"] == "random" else Path(settings["weights"]),
            seed=settings["seed"],
        )
        with Stop().on_signals() as stop:
            run_serve(plan, stop, announce)
