"""`metronome probe`: what one frame costs, and whether the bound keeps quality."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from metronome_cli.run.quality_options import QualityOptions

GRID, LOAD, OUTPUT, READ = "Grid", "Load", "Output", "What is read and asked"


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


@probe.command(
    epilog="""Examples:

  metronome probe quality --model smollm2

  metronome probe quality --model DIR --text novel.txt --window 512 --window 2048 --sinks 4 --sinks 16

  metronome probe quality --profile qwen2.5-omni-7b --weights DIR --audio calls/ --transcripts calls.json"""
)
def quality(
    model: Annotated[
        str | None,
        typer.Option(
            help="A decoder: a directory, a .gguf file, a name in the local cache, or smollm2.",
            rich_help_panel=LOAD,
        ),
    ] = None,
    profile: Annotated[
        str | None,
        typer.Option(
            "--profile", "-p", help="A speech model's profile, with --weights.", rich_help_panel=LOAD
        ),
    ] = None,
    weights: Annotated[
        str | None, typer.Option(help="The checkpoint's directory; random is refused.", rich_help_panel=LOAD)
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of free decoding.", rich_help_panel=LOAD)] = None,
    device: Annotated[
        str | None, typer.Option(help="auto, cpu, cuda or cuda:N.", rich_help_panel=LOAD)
    ] = None,
    window: Annotated[
        list[int] | None, typer.Option(min=8, help="W in tokens; repeatable.", rich_help_panel=GRID)
    ] = None,
    sinks: Annotated[
        list[int] | None,
        typer.Option(min=0, help="S in tokens; repeatable; 0 is always among them.", rich_help_panel=GRID),
    ] = None,
    sink_positions: Annotated[
        str | None, typer.Option(help="rolling, absolute, or both (left out).", rich_help_panel=GRID)
    ] = None,
    margin: Annotated[
        float,
        typer.Option(
            min=0.001, max=1.0, help="Loss of perplexity that counts as none.", rich_help_panel=GRID
        ),
    ] = 0.05,
    text: Annotated[
        Path | None, typer.Option(help="A long text to read as one stream.", rich_help_panel=READ)
    ] = None,
    stream: Annotated[int, typer.Option(min=0, help="Tokens of it; 0 is all.", rich_help_panel=READ)] = 0,
    stretch: Annotated[
        int, typer.Option(min=0, help="Tokens of an age's stretch; 0 picks.", rich_help_panel=READ)
    ] = 0,
    questions: Annotated[
        Path | None, typer.Option(help="JSON file of questions.", rich_help_panel=READ)
    ] = None,
    turns: Annotated[
        int, typer.Option(min=0, help="Questions a session; 0 asks none.", rich_help_panel=READ)
    ] = 8,
    sessions: Annotated[int, typer.Option(min=1, help="Sessions side by side.", rich_help_panel=READ)] = 4,
    spoken: Annotated[
        int, typer.Option(min=0, help="Tokens of free decoding; 0 leaves it out.", rich_help_panel=READ)
    ] = 512,
    audio: Annotated[
        list[Path] | None,
        typer.Option(help="Spoken questions: files or directories; repeatable.", rich_help_panel=READ),
    ] = None,
    transcripts: Annotated[
        Path | None,
        typer.Option(help="JSON file: what each recording asks and its answer.", rich_help_panel=READ),
    ] = None,
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
    """What the bound does to quality: the smallest (W, S) that cannot be told from unbounded. Real weights only."""
    from metronome_cli.cli.conduct import conduct
    from metronome_cli.config.settings import resolve
    from metronome_cli.run.plans import profile_of_model, quality_plan

    settings = resolve(
        {
            "model": model,
            "profile": profile,
            "weights": weights,
            "audio": audio,
            "seed": seed,
            "device": device,
            "sink_positions": None if sink_positions == "both" else sink_positions,
            "config": config,
            "json": json_,
            "output": output,
            "html": html,
            "ui": ui,
        },
        from_model=profile_of_model,
    )
    asked = QualityOptions(
        text=text,
        questions=questions,
        transcripts=transcripts,
        windows=tuple(window or ()),
        sinks=tuple(sinks or ()),
        stream=stream,
        stretch=stretch,
        turns=turns,
        sessions=sessions,
        spoken=spoken,
        margin=margin,
    )
    plan = quality_plan(settings, asked)
    from metronome_cli.run.probe_quality import run_quality

    conduct(settings, lambda observer, stop: run_quality(plan, observer, stop))
