"""Plots of a forecast: pool occupancy, the time of each hazard, and rejected sessions by fleet size."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter

from metronome_cli.core.formatting import duration, format_probability, percent
from metronome_cli.report.html.plotting import Plot, legend, make_plot, share_axis, short, time_axis
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


def pool_fill(report: Report) -> Plot | None:
    """Occupancy from now to the fill time, with the interval, the limit and the session length."""
    given = report.forecast
    if given is None or given.fill_time_s.estimate is None or given.fill_time_s.estimate <= 0:
        return None
    full_s, start = given.fill_time_s.estimate, given.occupancy or 0.0
    low, high = (full_s if end is None else end for end in (given.fill_time_s.low, given.fill_time_s.high))
    end_s = max(full_s, high, given.session_length_s or 0.0) * 1.05

    def paint(axes: Sequence[Axes]) -> None:
        panel = axes[0]
        times = [end_s * step / 60 for step in range(61)]
        rise = [[min(1.0, start + (1 - start) * t / end) for t in times] for end in (full_s, low, high)]
        panel.fill_between(times, rise[1], rise[2], color=STAND_IN["pool"], alpha=0.2)
        panel.plot(times, rise[0], color=STAND_IN["pool"], label="KV pool")
        panel.axhline(1.0, color=STAND_IN["deadline"], linestyle="--", linewidth=1.4, label="full")
        if given.session_length_s is not None:
            label = f"session length {duration(given.session_length_s)}"
            panel.axvline(given.session_length_s, color=STAND_IN["ink"], linestyle=":", label=label)
        share_axis(panel)
        time_axis(panel, end_s)
        panel.set_xlabel(panel.get_xlabel().replace("time on the run's clock", "time"))
        legend(panel)

    span = "" if low == high else f" (interval {duration(low)} to {duration(high)})"
    caption = f"The pool is full after {duration(full_s)}{span}. Drawn as an even rise to that time."
    return make_plot("How the pool fills", caption, paint, [0.8], "fill")


def fleet(report: Report) -> Plot | None:
    """Share of sessions rejected by fleet size, also with a node down, against the allowed share."""
    plan = report.fleet
    if plan is None or not plan.sizes:
        return None

    def paint(axes: Sequence[Axes]) -> None:
        panel, places = axes[0], range(len(plan.sizes))
        for shift, name, values in (
            (-0.2, "all nodes up", [size.blocking for size in plan.sizes]),
            (0.2, "one node down", [size.node_down_blocking for size in plan.sizes]),
        ):
            role = "pool" if shift < 0 else "waiting"
            panel.bar([at + shift for at in places], values, width=0.38, color=STAND_IN[role], label=name)
        label = f"allowed, {percent(plan.max_blocking)}"
        panel.axhline(
            plan.max_blocking, color=STAND_IN["deadline"], linestyle="--", linewidth=1.4, label=label
        )
        panel.set_xticks(places, [f"{size.gpus:,}" for size in plan.sizes])
        panel.yaxis.set_major_formatter(FuncFormatter(lambda value, _: percent(value)))
        panel.set_xlabel("GPUs")
        panel.set_ylabel("blocked")
        panel.grid(visible=False, axis="x")
        legend(panel)

    caption = (
        f"Share of new sessions that find no slot. {plan.gpus_needed:,} GPUs keep it at the allowed share."
    )
    return make_plot("Fleet size and blocking", caption, paint, [0.9], "fleet")
