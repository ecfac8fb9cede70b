"""Plots of `probe quality`: perplexity and repetition as a session ages, for each (W, S)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator

from metronome_cli.core.formatting import number, percent
from metronome_cli.report.html.plotting import Plot, legend, make_plot, share_axis, short
from metronome_cli.report.html.svg import SERIES, STAND_IN
from metronome_cli.results.quality_result import QualityResult, QualityVariant
from metronome_cli.results.run_report import Report

_Line = tuple[str, list[float], list[float]]  # name, ages in tokens, values


def perplexity_by_age(report: Report) -> Plot | None:
    """Perplexity of the text by age; logarithmic where a session broke."""
    part = _part(report)
    lines = _lines(part, lambda one: [(stretch.age, stretch.perplexity) for stretch in one.by_age])
    if part is None or not lines:
        return None
    by_name = {one.name: one.standing for one in part.variants}
    lowest = max(1.0, min(min(values) for _, _, values in lines))
    highest = max(max(values) for _, _, values in lines)

    def paint(axes: Sequence[Axes]) -> None:
        panel = axes[0]
        _paint(panel, lines)
        if highest > 4 * lowest:
            panel.set_yscale("log")
            panel.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
            panel.yaxis.set_major_formatter(FuncFormatter(lambda value, _: number(value)))
            panel.yaxis.set_minor_formatter(FuncFormatter(lambda value, _: ""))
        else:
            panel.set_ylim(bottom=0)
        base = next(
            (line for line, one in ((line, by_name[line[0]]) for line in lines) if one == "baseline"), None
        )
        if base is not None:
            _, ages, values = base
            band = [value * math.exp(part.margin) for value in values]
            panel.fill_between(
                ages,
                values,
                band,
                color=STAND_IN[SERIES[0]],
                alpha=0.18,
                label=f"margin {percent(math.expm1(part.margin))}",
            )
        if part.context < max(ages[-1] for _, ages, _ in lines):
            panel.axvline(
                part.context,
                color=STAND_IN["deadline"],
                linestyle="--",
                linewidth=1.4,
                label="trained context",
            )
        panel.set_ylabel("perplexity")
        legend(panel)

    caption = (
        f"Perplexity of each stretch of {part.age_bucket_tokens:,} tokens of one text, read without a break."
        " The band above the unbounded cache is the loss that still counts as equal."
    )
    return make_plot("Prediction as a session ages", caption, paint, [1.2], "quality")


def repetition_by_age(report: Report) -> Plot | None:
    """Share of repeated text in free runs."""
    lines = _lines(_part(report), lambda one: [(stretch.age, stretch.repetition) for stretch in one.free_run])
    if not lines:
        return None

    def paint(axes: Sequence[Axes]) -> None:
        _paint(axes[0], lines)
        share_axis(axes[0])
        axes[0].set_ylabel("said before")
        legend(axes[0])

    caption = "Share of 4-grams that were said within the 256 tokens before, in free decoding without an end."
    return make_plot("Repetition as a session ages", caption, paint, [1.0], "repeat")


def _part(report: Report) -> QualityResult | None:
    return report.probe.quality if report.probe else None


def _lines(
    part: QualityResult | None, points: Callable[[QualityVariant], list[tuple[int, float]]]
) -> list[_Line]:
    """As many variants as there are colours: unbounded, the recommended, those that may be as good, then in
    order."""
    found: list[_Line] = []
    if part is None:
        return found
    best = part.recommended.name if part.recommended else ""
    ordered = sorted(
        part.variants,
        key=lambda one: (
            one.standing != "baseline",
            one.name != best,
            one.standing not in ("equivalent", "inconclusive"),
        ),
    )
    for one in ordered:
        drawn = points(one)
        if len(drawn) > 1 and len(found) < len(SERIES):
            found.append((one.name, [float(age) for age, _ in drawn], [value for _, value in drawn]))
    return found


def _paint(panel: Axes, lines: Sequence[_Line]) -> None:
    for index, (name, ages, values) in enumerate(lines):
        panel.plot(ages, values, marker="o", color=STAND_IN[SERIES[index]], label=short(name))
    panel.set_xlabel("age of the session in tokens")
    panel.set_xlim(left=0)
    panel.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=8))
    panel.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
