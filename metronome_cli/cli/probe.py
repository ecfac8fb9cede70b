"""`metronome probe`: what one frame costs, and whether the bound keeps quality."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from metronome_cli.cli import options
from metronome_cli.cli import probe_options as own
from metronome_cli.cli.command_table import Command, DefaultGroup

if TYPE_CHECKING:
    from metronome_cli.probe.quality_options import QualityOptions


class ProbeGroup(DefaultGroup):
    """`metronome probe ...` means `metronome probe latency ...`."""

    default = "latency"


probe = typer.Typer(
    cls=ProbeGroup,
    help="What one frame costs by batch and session age (latency, the default), and whether the bound keeps quality.",
)


@probe.callback()
def choose() -> None:
    """What one frame costs by batch and session age (latency, the default), and whether the bound keeps quality."""


@probe.command(
    cls=Command,
    epilog="""Examples:

  metronome probe latency

  metronome probe latency --dry-run  # which points, how long it may take, how much memory

  metronome probe latency --batch-size 1 --batch-size 8 --age 1h --policy 'window(512, 16)' --policy unbounded""",
)
@options.report_files()
def latency(
    profile: options.Profile = None,
    audio: options.Audio = None,
    seed: options.Seed = None,
    device: options.Device = None,
    weights: options.Weights = None,
    batch_size: own.BatchSize = None,
    age: own.Age = None,
    policy: own.Policies = None,
    steps: own.Steps = 15,
    config: options.Config = None,
    json_: options.Json = False,
    output: options.Output = None,
    dry_run: options.DryRun = False,
    ui: options.Ui = None,
    **files: Path | None,
) -> None:
    """What one frame step costs by batch size, session age and policy, and what limits it."""
    given = locals()
    from metronome_cli.cli.output import show_plan
    from metronome_cli.cli.run_command import resolve_command, run_command
    from metronome_cli.commands.plan_capacity import probe_plan

    batches, ages, policies = (given.pop(key) or () for key in ("batch_size", "age", "policy"))
    steps = given.pop("steps")
    settings = resolve_command(given)
    plan = probe_plan(settings, batches, ages, policies, steps)
    if settings["dry_run"]:
        from metronome_cli.probe.latency_dry_run import outline_probe

        show_plan(outline_probe(plan), as_json=settings["json"])
    else:
        from metronome_cli.probe.latency_report import run_probe

        run_command(settings, lambda observer, stop: run_probe(plan, observer, stop))


@probe.command(
    cls=Command,
    epilog="""Examples:

  metronome probe quality --model smollm2

  metronome probe quality --model DIR --text novel.txt --window 512 --window 2048 --sinks 4 --sinks 16

  metronome probe quality --profile qwen2.5-omni-7b --weights DIR --audio calls/ --transcripts calls.json""",
)
@options.report_files()
def quality(
    model: own.Model = None,
    profile: own.Profile = None,
    weights: own.Weights = None,
    seed: options.Seed = None,
    device: options.Device = None,
    window: own.Window = None,
    sinks: own.Sinks = None,
    sink_positions: own.SinkPositions = None,
    perplexity_margin: own.PerplexityMargin = 0.05,
    text: own.Text = None,
    text_sessions: own.TextSessions = 1,
    text_tokens: own.TextTokens = 0,
    age_bucket: own.AgeBucket = 0,
    questions: own.Questions = None,
    questions_per_session: own.QuestionsPerSession = 8,
    sessions: own.Sessions = 4,
    free_run_tokens: own.FreeRunTokens = 512,
    quick: own.Quick = False,
    dry_run: options.DryRun = False,
    audio: own.Audio = None,
    transcripts: own.Transcripts = None,
    config: options.Config = None,
    json_: options.Json = False,
    output: options.Output = None,
    ui: options.Ui = None,
    **files: Path | None,
) -> None:
    """What the bound does to quality: the smallest (W, S) that cannot be told from unbounded. Real weights only."""
    given = locals()
    from metronome_cli.cli.output import show_plan
    from metronome_cli.cli.run_command import profile_of_model, resolve_command, run_command
    from metronome_cli.commands.plan_capacity import quality_plan

    asked = _asked(given)
    settings = resolve_command(given, from_model=profile_of_model)
    plan = quality_plan(settings, asked)
    if settings["dry_run"]:
        from metronome_cli.probe.quality_dry_run import outline_quality

        show_plan(outline_quality(plan), as_json=settings["json"])
    else:
        from metronome_cli.probe.quality_report import run_quality

        run_command(settings, lambda observer, stop: run_quality(plan, observer, stop))


def _asked(given: dict[str, Any]) -> QualityOptions:
    """Takes what is no setting out of what was given."""
    from metronome_cli.probe.quality_options import QualityOptions

    if given["sink_positions"] == "both":
        given["sink_positions"] = None
    windows, sinks = (tuple(given.pop(key) or ()) for key in ("window", "sinks"))
    as_named = ("text", "questions", "transcripts", "text_tokens", "text_sessions", "age_bucket",
                "questions_per_session",
                "sessions", "free_run_tokens", "perplexity_margin")  # fmt: skip
    quick = given.pop("quick")
    asked = QualityOptions(windows=windows, sinks=sinks, **{key: given.pop(key) for key in as_named})
    return asked.quick() if quick else asked
