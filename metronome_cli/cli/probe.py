"""`metronome probe`: what one frame costs, and whether the bound keeps quality."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from metronome_cli.cli import options
from metronome_cli.cli.completion import complete_words
from metronome_cli.cli.options import LOAD
from metronome_cli.run.quality_options import QualityOptions

GRID, READ = "Grid", "What is read and asked"


class DefaultsToLatency(TyperGroup):
    """`metronome probe ...` means `metronome probe latency ...`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        completing = ctx.resilient_parsing and not args
        if not completing and (
            not args or (args[0] not in self.commands and args[0] not in ("-h", "--help"))
        ):
            args = ["latency", *args]
        return super().parse_args(ctx, args)

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        """The commands and, since its name may be left out, latency's options."""
        found = super().shell_complete(ctx, incomplete)
        return found + (
            self.commands["latency"].shell_complete(ctx, incomplete) if incomplete[:1] == "-" else []
        )


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

  metronome probe latency --dry-run  # which points, how long it may take, how much memory

  metronome probe latency --batch 1 --batch 8 --age 1m --age 1h --policy 'window(512, 16)' --policy unbounded"""
)
def latency(
    profile: options.Profile = None,
    audio: options.Audio = None,
    seed: options.Seed = None,
    device: options.Device = None,
    weights: options.Weights = None,
    batch: Annotated[
        list[int] | None,
        typer.Option(min=1, help="Frames in one step; repeatable.", metavar="N", rich_help_panel=GRID),
    ] = None,
    age: Annotated[
        list[str] | None,
        typer.Option(help="Session age, such as 1h; repeatable.", metavar="TIME", rich_help_panel=GRID),
    ] = None,
    policy: Annotated[
        list[str] | None,
        typer.Option(
            help="Policy; repeatable. Left out: the profile's and unbounded.",
            metavar="POLICY",
            rich_help_panel=GRID,
        ),
    ] = None,
    steps: Annotated[
        int, typer.Option(min=4, help="Timed steps a point.", metavar="N", rich_help_panel=GRID)
    ] = 15,
    config: options.Config = None,
    json_: options.Json = False,
    output: options.Output = None,
    html: options.Html = None,
    dry_run: options.DryRun = False,
    ui: options.Ui = None,
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
            "dry_run": dry_run,
            "ui": ui,
        }
    )
    plan = probe_plan(settings, batch or (), age or (), policy or (), steps)
    if settings["dry_run"]:
        from metronome_cli.cli.console import write
        from metronome_cli.run.dry_run_probe import outline_probe

        ahead = outline_probe(plan)
        write(ahead.as_json() if settings["json"] else ahead.as_text())
        return
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
        options.SettingOption(
            "model",
            LOAD,
            metavar="MODEL",
            help="A decoder: a directory, a .gguf file, a name in the local cache, or smollm2.",
        ),
    ] = None,
    profile: Annotated[
        str | None,
        options.SettingOption(
            "profile", LOAD, "-p", metavar="NAME", help="A speech model's profile, with --weights."
        ),
    ] = None,
    weights: Annotated[
        str | None,
        options.SettingOption(
            "weights", LOAD, metavar="DIR", help="The checkpoint's directory; random is refused."
        ),
    ] = None,
    seed: options.Seed = None,
    device: options.Device = None,
    window: Annotated[
        list[int] | None,
        typer.Option(min=8, help="W in tokens; repeatable.", metavar="W", rich_help_panel=GRID),
    ] = None,
    sinks: Annotated[
        list[int] | None,
        typer.Option(
            min=0, help="S in tokens; repeatable; 0 is always among them.", metavar="S", rich_help_panel=GRID
        ),
    ] = None,
    sink_positions: Annotated[
        str | None,
        options.SettingOption(
            "sink_positions",
            GRID,
            metavar="WORD",
            help="rolling, absolute, or both (left out).",
            autocompletion=complete_words("rolling", "absolute", "both"),
        ),
    ] = None,
    margin: Annotated[
        float,
        typer.Option(
            min=0.001,
            max=1.0,
            help="Loss of perplexity that counts as none.",
            metavar="SHARE",
            rich_help_panel=GRID,
        ),
    ] = 0.05,
    text: Annotated[
        Path | None,
        typer.Option(help="A long text to read without a break.", metavar="FILE", rich_help_panel=READ),
    ] = None,
    streams: Annotated[
        int,
        typer.Option(
            min=1,
            help="Sessions that read the text, each a part of its own.",
            metavar="N",
            rich_help_panel=READ,
        ),
    ] = 1,
    stream: Annotated[
        int, typer.Option(min=0, help="Tokens of each stream; 0 is all.", metavar="N", rich_help_panel=READ)
    ] = 0,
    stretch: Annotated[
        int,
        typer.Option(min=0, help="Tokens of an age's stretch; 0 picks.", metavar="N", rich_help_panel=READ),
    ] = 0,
    questions: Annotated[
        Path | None, typer.Option(help="JSON file of questions.", metavar="FILE", rich_help_panel=READ)
    ] = None,
    turns: Annotated[
        int, typer.Option(min=0, help="Questions a session; 0 asks none.", metavar="N", rich_help_panel=READ)
    ] = 8,
    sessions: Annotated[
        int, typer.Option(min=1, help="Sessions side by side.", metavar="N", rich_help_panel=READ)
    ] = 4,
    spoken: Annotated[
        int,
        typer.Option(
            min=0, help="Tokens of free decoding; 0 leaves it out.", metavar="N", rich_help_panel=READ
        ),
    ] = 512,
    audio: Annotated[
        list[Path] | None,
        options.SettingOption(
            "audio", READ, metavar="PATH", help="Spoken questions: files or directories; repeatable."
        ),
    ] = None,
    transcripts: Annotated[
        Path | None,
        typer.Option(
            help="JSON file: what each recording asks and its answer.", metavar="FILE", rich_help_panel=READ
        ),
    ] = None,
    config: options.Config = None,
    json_: options.Json = False,
    output: options.Output = None,
    html: options.Html = None,
    ui: options.Ui = None,
) -> None:
    """What the bound does to quality: the smallest (W, S) that cannot be told from unbounded. Real weights only."""
    from metronome_cli.cli.conduct import conduct, profile_of_model
    from metronome_cli.config.settings import resolve
    from metronome_cli.run.plans import quality_plan

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
        streams=streams,
        stretch=stretch,
        turns=turns,
        sessions=sessions,
        spoken=spoken,
        margin=margin,
    )
    plan = quality_plan(settings, asked)
    from metronome_cli.run.probe_quality import run_quality

    conduct(settings, lambda observer, stop: run_quality(plan, observer, stop))
