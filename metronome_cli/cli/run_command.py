"""What every measuring command does around its run: watchers, signals, files, stdout, the exit code."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, NoReturn

import typer

from metronome_cli.cli.console import end_stdout, kept_for_report
from metronome_cli.cli.output import OutputFiles, show
from metronome_cli.config.settings import Settings, resolve
from metronome_cli.config.settings_table import FORMATS

if TYPE_CHECKING:
    from metronome_cli.config.profile import Profile
    from metronome_cli.core.stop import StopRequest
    from metronome_cli.results.events import Observer
    from metronome_cli.results.run_report import Report

    Run = Callable[[Observer, StopRequest], Report]


def resolve_command(
    given: Mapping[str, object], from_model: Callable[[str], Profile] | None = None
) -> Settings:
    """The settings of a command that was called with these parameters: those of the table, in which `json_` stands
    for `json`. Raises UsageError, too, where the files that are asked for cannot be written.
    """
    files = given.get("files", {})
    assert isinstance(files, dict)
    flat = {key: value for key, value in given.items() if key != "files"} | files
    settings = resolve({key.rstrip("_"): value for key, value in flat.items()}, from_model=from_model)
    files_of(settings).check()
    return settings


def run_command(settings: Settings, run: Run) -> NoReturn:
    """A measuring run, with all who watch it."""
    os.environ.setdefault("TQDM_DISABLE", "1")  # a library's own bar would be drawn into the view
    from metronome_cli.ui import make_observer

    view = make_observer(settings["ui"])
    finish(settings, view, run, *_files_and_servers(settings, view))


def _files_and_servers(settings: Settings, view: Observer) -> Iterator[Observer]:
    if settings["output"] is not None:
        from metronome_cli.report.event_log import EventsFile

        yield EventsFile(settings["output"], tell=view.notice)
    if settings["prometheus_listen"] is not None:
        from metronome_cli.report.metrics_server import MetricsServer

        server = MetricsServer(settings["prometheus_listen"])
        view.notice(f"series for Prometheus at {server.url}")
        yield server


def finish(settings: Settings, view: Observer, run: Run, *watchers: Observer) -> NoReturn:
    """Run it until it is done or stopped, show and keep its report, and leave with the report's exit code.

    Raises MetronomeError where something that was asked for could not be written, when the answer is out.
    """
    from metronome_cli.core.stop import StopRequest
    from metronome_cli.results.events import ObserverGroup, WriteFailures

    unwritten = WriteFailures()
    observer = ObserverGroup(view, *watchers, unwritten)
    nothing_drawn = isinstance(view, ObserverGroup)
    with (StopRequest() if nothing_drawn else StopRequest(view.notice)).on_signals() as stop:
        try:
            with kept_for_report(keep=settings["json"]):
                report = run(observer, stop)
        finally:
            observer.close()
        try:  # shown first, kept whatever comes of that: neither of two full disks costs both
            show(report, as_json=settings["json"])
        finally:
            files_of(settings).write(report)
    if settings["json"]:
        end_stdout()
    unwritten.tell()
    raise typer.Exit(report.exit_code)


def profile_of_model(name: str) -> Profile:
    """The profile of a decoder, as `resolve` asks for it; it takes some seconds and says so."""
    from metronome_cli.commands import plan_capacity
    from metronome_cli.ui.status_line import status_line

    with status_line("reading the model"):
        return plan_capacity.profile_of_model(name)


def files_of(settings: Settings) -> OutputFiles:
    """What the settings ask to be written."""
    return OutputFiles(settings["output"], {name: settings[name] for name in FORMATS})
