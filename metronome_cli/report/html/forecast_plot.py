"""Plot of a forecast: when each hazard comes, with its interval."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes

from metronome_cli.core.formatting import duration, format_probability
from metronome_cli.report.html.plotting import Plot, legend, make_plot, short, time_axis
from metronome_cli.report.html.svg import STAND_IN
from metronome_cli.results.run_report import Report


def forecast(report: Report) -> Plot | None:
    """When each hazard comes, with its interval, against the session length."""
    given = report.forecast
    if given is None:
        return None
    spans = [("all together", given.fill_time_s)] + [
        (hazard.name, hazard.fill_time_s) for hazard in given.hazards
    ]
    known = [(name, span) for name, span in spans if span.estimate is not None]
    if not known:
        return None

    def paint(axes: Sequence[Axes]) -> None:
        panel = axes[0]
        ends = []
        for row, (_, span) in enumerate(known):
            middle = span.estimate or 0.0
            low, high = (middle if end is None else end for end in (span.low, span.high))
            ends.append(max(middle, high))
            colour = STAND_IN["deadline" if row == 0 else "p90"]
            panel.plot([low, high], [row, row], color=colour, linewidth=5, alpha=0.35)
            panel.plot([middle], [row], color=colour, marker="o", markersize=7)
        if given.session_length_s is not None:
            ends.append(given.session_length_s)
            label = f"session length {duration(given.session_length_s)}"
            panel.axvline(given.session_length_s, color=STAND_IN["ink"], linestyle="--", label=label)
            legend(panel)
        panel.set_yticks(range(len(known)), [short(name) for name, _ in known])
        panel.set_ylim(len(known) - 0.5, -0.5)
        time_axis(panel, max(ends))
        panel.set_xlabel(panel.get_xlabel().replace("time on the run's clock", "time"))

    likely = given.collapse_probability
    sure = (
        ""
        if likely is None
        else f", with a probability of {format_probability(likely)} within the session length"
    )
    caption = f"When the run ends by itself{sure}. Dot: best estimate; bar: interval."
    return make_plot("When the run ends by itself", caption, paint, [0.25 + 0.16 * len(known)], "forecast")
