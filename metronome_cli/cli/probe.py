"""`metronome probe`: what one frame costs, and whether the bound keeps quality."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

GRID, LOAD, OUTPUT = "Grid", "Load", "Output"


class DefaultsToLatency(TyperGroup):
    """`metronome probe ...` means `metronome probe latency ...`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args or (args[0] not in self.commands and args[0] not in ("-h", "--help")):
            args = ["latency", *args]
        return super().parse_args(ctx, args)


probe = typer.Typer(
    cls=DefaultsToLatency,
    help="What one frame costs by batch and session age (latency, the default), and whether the bound keeps quality.",
)


@probe.callback()
def choose() -> None:
    """What one frame costs by batch and session age (latency, the default), and whether the bound keeps quality."""


@probe.command(
    epilog="""Examples:

  metronome probe latency

  metronome probe latency --batch 1 --batch 8 --age 1m --age 1h --policy 'window(512, 16)' --policy unbounded"""
)
def latency(
    profile: Annotated[
        str | None,
        typer.Option("--profile", "-p", help="Profile by name, or a YAML file.", rich_help_panel=LOAD),
    ] = None,
    audio: Annotated[
        list[Path] | None,
        typer.Option(help="Recording, or directory of recordings; repeatable.", rich_help_panel=LOAD),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of load and weights.", rich_help_panel=LOAD)] = None,
    device: Annotated[
        str | None, typer.Option(help="auto, cpu, cuda or cuda:N.", rich_help_panel=LOAD)
    ] = None,
    weights: Annotated[
        str | None, typer.Option(help="random, or a checkpoint directory.", rich_help_panel=LOAD)
    ] = None,
    batch: Annotated[
        list[int] | None, typer.Option(min=1, help="Frames in one step; repeatable.", rich_help_panel=GRID)
    ] = None,
    age: Annotated[
        list[str] | None, typer.Option(help="Session age, such as 1h; repeatable.", rich_help_panel=GRID)
    ] = None,
    policy: Annotated[
        list[str] | None,
        typer.Option(help="Policy; repeatable. Left out: the profile's and unbounded.", rich_help_panel=GRID),
    ] = None,
    steps: Annotated[int, typer.Option(min=4, help="Timed steps a point.", rich_help_panel=GRID)] = 15,
    config: Annotated[
        Path | None, typer.Option(help="YAML file of settings.", rich_help_panel=OUTPUT)
    ] = None,
    json_: Annotated[
        bool, typer.Option("--json", help="The report, and nothing else, on stdout.", rich_help_panel=OUTPUT)
    ] = False,
    output: Annotated[
        Path | None, typer.Option(help="Directory for the report and its events.", rich_help_panel=OUTPUT)
    ] = None,
    html: Annotated[
        Path | None, typer.Option(help="Write a self-contained HTML report.", rich_help_panel=OUTPUT)
    ] = None,
    ui: Annotated[str | None, typer.Option(help="auto, live, plain or none.", rich_help_panel=OUTPUT)] = None,
) -> None:
    """What one frame step costs by batch size, session age and policy, and what limits it."""
    from metronome_cli.cli.conduct import conduct
    from metronome_cli.config.settings import resolve
    from metronome_cli.run.plans import probe_plan

    settings = resolve(
        {
            "profile": profile,
            "audio": audio,
            "seed": seed,
            "device": device,
            "weights": weights,
            "config": config,
            "json": json_,
            "output": output,
            "html": html,
            "ui": ui,
        }
    )
    plan = probe_plan(settings, batch or (), age or (), policy or (), steps)
    from metronome_cli.run.probe import run_probe

    conduct(settings, lambda observer, stop: run_probe(plan, observer, stop))
