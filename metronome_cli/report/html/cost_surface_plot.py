"""The cost surface of a probe as a heat map: a step by batch and age under each policy, measured and fitted.

Shade is the logarithm of the median step between the fastest and the slowest cell of the report, the same for all
policies. The fit is the report's own plane, T = a + b N + c N r, with r the tokens that each session held.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from metronome_cli.core.formatting import duration, format_ms
from metronome_cli.report.html.deadline import deadline_of
from metronome_cli.report.html.plotting import Plot, make_plot, short
from metronome_cli.report.html.svg import STAND_IN
from metronome_cli.results.latency_result import GridCellResult, PolicyCost
from metronome_cli.results.run_report import Report

MOST_POLICIES = 4
_PALEST, _DEEPEST = 0.08, 0.62  # opacity; text stays readable on the deepest in both themes
_ROW = 0.3  # height of a batch, in panels


def cost_surface(report: Report) -> Plot | None:
    """None without two measured cells."""
    cells = report.probe.cells if report.probe else []
    medians = [cell.median_ms for cell in cells if cell.median_ms]
    policies = list(dict.fromkeys(cell.policy for cell in cells if cell.median_ms))[:MOST_POLICIES]
    if len(medians) < 2:
        return None
    costs = {cost.policy: cost for cost in (report.probe.policies if report.probe else [])}
    ages = sorted({cell.age_s for cell in cells})
    deadline_ms = deadline_of(report)

    def paint(axes: Sequence[Axes]) -> None:
        for panel, policy in zip(axes, policies, strict=True):
            own = [cell for cell in cells if cell.policy == policy]
            _frame(panel, own, ages, policy, costs.get(policy))
            batches = _batches(own)
            for cell in own:
                at = ages.index(cell.age_s), batches.index(cell.sessions)
                _cell(panel, at, cell, _shade(cell.median_ms, medians), deadline_ms, costs.get(policy))
        axes[-1].set_xlabel("age of the sessions")

    late = (
        f" A red frame: beyond the deadline of {format_ms(deadline_ms)} ms."
        if deadline_ms is not None
        else ""
    )
    caption = (
        "Median step in ms, and below it what the fit T = a + b N + c N r says, for N sessions that hold r tokens "
        f"each.{late} A dash: not measured, for the reason in the table."
    )
    heights = [
        _ROW * (1 + len(_batches([cell for cell in cells if cell.policy == each]))) for each in policies
    ]
    return make_plot("Cost of a step by sessions and age", caption, paint, heights, "surface")


def fitted_ms(cost: PolicyCost | None, cell: GridCellResult) -> float | None:
    """What the policy's fit says of a cell; None without a fit."""
    if (
        cost is None
        or cost.fixed_ms is None
        or cost.per_session_ms is None
        or cost.per_1000_tokens_ms is None
    ):
        return None
    each = cost.per_session_ms + cost.per_1000_tokens_ms * cell.resident_tokens / 1e3
    return cost.fixed_ms + cell.sessions * each


def formula(cost: PolicyCost | None) -> str:
    """The plane in figures: "T = 5 + 0.8 N + 0.1 N r/1000 ms"; empty without a fit."""
    if cost is None or cost.fixed_ms is None:
        return ""
    fixed, each, age = (format_ms(c) for c in (cost.fixed_ms, cost.per_session_ms, cost.per_1000_tokens_ms))
    return f"T = {fixed} + {each} N + {age} N r/1000 ms"


def _batches(cells: Sequence[GridCellResult]) -> list[int]:
    return sorted({cell.sessions for cell in cells})


def _shade(median_ms: float | None, medians: Sequence[float]) -> float | None:
    if not median_ms:
        return None
    low, high = math.log(min(medians)), math.log(max(medians))
    share = (math.log(median_ms) - low) / (high - low) if high > low else 0.0
    return _PALEST + (_DEEPEST - _PALEST) * share


def _frame(
    panel: Axes, cells: Sequence[GridCellResult], ages: Sequence[float], policy: str, cost: PolicyCost | None
) -> None:
    batches = _batches(cells)
    panel.grid(False)
    panel.set_xlim(-0.5, len(ages) - 0.5)
    panel.set_ylim(-0.5, len(batches) - 0.5)
    panel.set_xticks(range(len(ages)), [duration(age) for age in ages])
    panel.set_yticks(range(len(batches)), [str(batch) for batch in batches])
    panel.tick_params(length=0)
    panel.set_ylabel("sessions")
    for spine in panel.spines.values():
        spine.set_visible(False)
    panel.set_title("\n".join(line for line in (short(policy), formula(cost)) if line))


def _cell(
    panel: Axes,
    at: tuple[int, int],
    cell: GridCellResult,
    shade: float | None,
    deadline_ms: float | None,
    cost: PolicyCost | None,
) -> None:
    x, y = at
    if shade is None:
        panel.text(x, y, "-", ha="center", va="center", color=STAND_IN["muted"])
        return
    late = deadline_ms is not None and (cell.median_ms or 0.0) > deadline_ms
    corner, sides = (x - 0.48, y - 0.46), (0.96, 0.92)
    panel.add_patch(Rectangle(corner, *sides, facecolor=STAND_IN["series-1"], alpha=shade, linewidth=0))
    if late:
        panel.add_patch(
            Rectangle(corner, *sides, facecolor="none", edgecolor=STAND_IN["deadline"], linewidth=1.6)
        )
    fit = fitted_ms(cost, cell)
    panel.text(
        x,
        y + (0.17 if fit is not None else 0),
        format_ms(cell.median_ms),
        ha="center",
        va="center",
        fontsize=11,
    )
    if fit is not None:
        panel.text(x, y - 0.25, f"fit {format_ms(fit)}", ha="center", va="center", fontsize=8.5)
