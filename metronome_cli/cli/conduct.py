"""What every measuring command does around its run: watchers, signals, files, stdout, the exit code."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from metronome_cli.config.settings import Settings

if TYPE_CHECKING:
    from metronome_cli.config.profile import Profile
    from metronome_cli.report.model import Report
    from metronome_cli.run.observer import Observer
    from metronome_cli.run.stop import Stop

    Run = Callable[[Observer, Stop], Report]


def conduct(settings: Settings, run: Run) -> None:
    """Run it with everything around it, then leave with the report's exit code."""
    os.environ.setdefault("TQDM_DISABLE", "1")  # a library's own bar would be drawn into the view
    from metronome_cli.run.observer import Observers
    from metronome_cli.run.stop import Stop
    from metronome_cli.ui import make_observer

    check_files(settings)
    view = make_observer(settings["ui"])
    watchers: list[Observer] = [view]
    output: Path | None = settings["output"]
    if output is not None:
        from metronome_cli.report.events import EventsFile

        watchers.append(EventsFile(output, tell=view.notice))
    if settings["prometheus"] is not None:
        from metronome_cli.report.metrics_server import MetricsServer

        server = MetricsServer(settings["prometheus"])
        view.notice(f"series for Prometheus at {server.url}")
        watchers.append(server)
    observer = Observers(*watchers)
    with Stop().on_signals() as stop:
        try:
            report = run(observer, stop)
        finally:
            observer.close()
        show(settings, report)  # first: a full disk must not cost the answer
        write_files(settings, report)
    raise typer.Exit(report.exit_code)


def profile_of_model(name: str) -> Profile:
    """The profile of a decoder, as `resolve` asks for it; it takes some seconds and says so."""
    from metronome_cli.run import plans
    from metronome_cli.ui.working import working

    with working("reading the model"):
        return plans.profile_of_model(name)


def check_files(settings: Settings) -> None:
    """Raises UsageError where the files that are asked for cannot be written: before the run, not after it."""
    from metronome_cli.report.read import REPORT_FILE
    from metronome_cli.report.write import check_writable

    if settings["output"] is not None:
        check_writable(settings["output"] / REPORT_FILE, "--output")
    for key in ("html", "junit"):
        if settings[key] is not None:
            check_writable(settings[key], f"--{key}")


def write_files(settings: Settings, report: Report) -> None:
    """report.json and report.html in --output, and what --html and --junit name."""
    from metronome_cli.ui.working import working

    if settings["output"] is None and settings["html"] is None and settings["junit"] is None:
        return
    with working("writing the report"):
        _write_files(settings, report)


def _write_files(settings: Settings, report: Report) -> None:
    if settings["output"] is not None:
        from metronome_cli.report.write import write_report

        write_report(report, settings["output"])
    if settings["html"] is not None:
        from metronome_cli.report.html import write_html

        write_html(report, settings["html"])
    if settings["junit"] is not None:
        from metronome_cli.report.junit import write_junit

        write_junit(report, settings["junit"])


def show(settings: Settings, report: Report) -> None:
    """The report on stdout, as JSON or as text."""
    from metronome_cli.cli.console import write

    if settings["json"]:
        from metronome_cli.report.write import report_json

        write(report_json(report))
    else:
        from metronome_cli.report.text import render_text

        write(render_text(report))
