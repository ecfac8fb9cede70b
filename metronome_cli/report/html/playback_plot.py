"""Plot of the calls without a gap against the listener's playback delay."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes

from metronome_cli.core.formatting import plural
from metronome_cli.report.html.plotting import Plot, legend, make_plot
from metronome_cli.report.html.svg import SERIES, STAND_IN
from metronome_cli.results.capacity_result import TrialResult
from metronome_cli.results.run_report import Report

MOST_LINES = 6


def playback(report: Report) -> Plot | None:
    """One line per measured number of sessions."""
    trials = _heard(report)
    if not trials:
        return None
    title = _title(report)

    def paint(axes: Sequence[Axes]) -> None:
        panel = axes[0]
        for place, trial in enumerate(trials):
            assert trial.playback is not None
            curve = [at for at in trial.playback.curve if at.calls]
            panel.plot(
                [at.delay_ms for at in curve],
                [100 * at.gap_free_calls / at.calls for at in curve],
                marker="o",
                color=STAND_IN[SERIES[place % len(SERIES)]],
                label=plural(trial.sessions, "session"),
            )
        for delay_ms in _delays(report):
            panel.axvline(delay_ms, color=STAND_IN["muted"], linestyle="--")
        panel.set_xscale("symlog", linthresh=20)
        panel.set_xlabel("playback delay, ms")
        panel.set_ylabel("calls without a gap, %")
        panel.set_ylim(0, 104)
        legend(panel)

    first, last = trials[0], trials[-1]
    assert last.playback is not None
    free = last.playback.curve[0]
    caption = (
        f"Calls without a gap of more than 20 ms against the time that a listener waits before playing, for "
        f"{first.sessions} to {last.sessions} sessions. With {plural(last.sessions, 'session')} and no delay: "
        f"{free.gap_free_calls} of {plural(free.calls, 'call')}."
    )
    return make_plot(title, caption, paint, [1.2], "playback")


def _heard(report: Report) -> list[TrialResult]:
    """For each number of sessions the longest trial in which sound came, the smallest number first."""
    best: dict[int, TrialResult] = {}
    for trial in report.capacity.trials if report.capacity else []:
        heard = best.get(trial.sessions)
        if trial.playback is not None and (heard is None or trial.duration_s > heard.duration_s):
            best[trial.sessions] = trial
    ordered = [best[sessions] for sessions in sorted(best)]
    step = -(-len(ordered) // MOST_LINES) if ordered else 1
    return ordered[::-1][::step][::-1]


def _delays(report: Report) -> list[float]:
    if report.capacity is None:
        return []
    asked = {one.delay_ms for one in report.capacity.by_delay}
    own = {trial.playback.delay_ms for trial in report.capacity.trials if trial.playback is not None}
    return sorted(asked | own)


def _title(report: Report) -> str:
    """The answer by delay if several were asked for."""
    found = report.capacity.by_delay if report.capacity else []
    held = [one for one in found if one.safe_sessions is not None]
    if not held:
        return "Calls without a gap against the playback delay"
    return ", ".join(
        f"{one.safe_sessions}{' safe' if not place else ''} at {one.delay_ms:g} ms"
        for place, one in enumerate(held)
    )
