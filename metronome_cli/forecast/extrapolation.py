"""When will it be full? From the early part of an occupancy trace alone, with nothing known of the model.

What is read: samples (t, rho). What is left out: what precedes the first change, when no frame was served.
The model is a drift with noise that adds up,

    rho(t) = a + mu t + sigma B(t),

B a Brownian motion: turns are long against a frame and short against the trace. For such a series the end
points carry all there is to know of the drift, but block rounding lies on top of it: sessions that start
together take their blocks together, and rho climbs in steps until their turns have set them apart. Over a
whole step these even out. So mu is the slope of the secant between the means of the first and of the last
`width` of the time (at t_a and t_b), and the width is that of a step, read off the trace: a pool that begins
empty stands one step high until the second step, so a step is the time in which rho climbs by its own mean
over that time, width = mean / mu. It lies between `NARROWEST`, since sessions that come one by one bend the
beginning, and `WIDEST`, for a pool that begins with more in it has no such step.

With T = t_b - t_a, the instant t_b + h at which rho is 1 obeys

    (mu h - (1 - rho_b)) / (sigma sqrt(h + h^2 / T))  ~  Student's t,

the h^2 / T being the doubt about mu itself; its quantiles solve a quadratic (Fieller's argument).
sigma^2, the long-run variance, comes from increments over windows of w = T / 10 and 2 w, all overlapping,
V(w) = mean square of (increment - mu w) / (w (1 - w / T)), as 2 V(2w) - V(w), at least V(2w) / 2: that
cancels the bias of order 1/w, upwards from steps, downwards from turns longer than w. Degrees of freedom:
T / 2w - 1 = 4, and half as many again since the windows overlap. How good it is, and how good it could be:
docs/benchmarks.md.

Served, not offered: the pool fills with frames that are served. When the server falls behind, the slope
sinks; when sessions join, it rises. The halves of the fitted part are compared; when they differ beyond
chance (1 % either way), the forecast follows the later half, says so, and lets the end of its interval on
that side go on changing.

A slope that is not above 0 beyond chance (5 %) gives no instant: the trace does not saturate.
Sources: Fieller, J. R. Statist. Soc. B 16 (1954); Meketon and Schmeiser, Winter Simulation Conference (1984),
for overlapping windows and their degrees of freedom; Vats and Flegal, Biometrika 109 (2022), for
2 V(2w) - V(w).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from metronome_cli.core.quantities import digits
from metronome_cli.forecast.occupancy_trace import OccupancyTrace
from metronome_cli.forecast.speaking_time import Reals

NARROWEST, WIDEST = 0.15, 1 / 3  # of the fitted time, averaged at either end
ROUNDS = 5  # of the width: it settles from below within 3 to 5
WINDOWS = 10  # windows of the variance, by length
FEWEST = 8  # samples
TAIL = 0.05  # beyond either end of an interval
LEAST_CHANGE = 0.02  # of the slope, to be worth a word
_T95 = 1.943  # Student's t with 6 degrees of freedom, one-sided 95 %
_T99 = 3.747  # with 4, since a bend takes two of them, one-sided 99 %


@dataclass(frozen=True, slots=True)
class FillRate:
    """The drift of a trace: `per_s` of the pool a second, from `t_s` and `level` on, known over `span_s`."""

    per_s: float
    t_s: float
    level: float
    span_s: float
    variance: float  # long-run, of the pool squared a second

    @property
    def doubt(self) -> float:
        """Standard error of `per_s`."""
        return math.sqrt(self.variance / self.span_s)


@dataclass(frozen=True, slots=True)
class Extrapolation:
    """Instants in the trace's own time. None: not within reach of the slope. `saturates` None: too few
    samples.
    """

    saturates: bool | None
    reason: str
    t_sat_s: float | None = None
    low_s: float | None = None
    high_s: float | None = None
    rate_per_s: float | None = None  # of the pool
    falling: bool = False


def probability_by(found: Extrapolation, t_s: float) -> float:
    """Probability that the pool is full by `t_s`, in the trace's own time.

    The ends of the 90 % interval are taken as the 5 % and 95 % quantiles; each side of the estimate is half of a
    normal distribution. Without an upper end, later times are no likelier than the estimate.
    """
    if found.t_sat_s is None:
        return TAIL if found.low_s is not None and t_s >= found.low_s else 0.0
    end_s = found.low_s if t_s < found.t_sat_s else found.high_s
    off_s = t_s - found.t_sat_s
    if end_s is None:
        return 0.5 if off_s >= 0 else 0.0
    spread_s = abs(end_s - found.t_sat_s) / -NormalDist().inv_cdf(TAIL)
    if spread_s == 0:
        return 1.0 if off_s >= 0 else 0.0
    return NormalDist().cdf(off_s / spread_s)


def extrapolate(trace: OccupancyTrace) -> Extrapolation:
    """The forecast of a cleaned trace, all of which is fitted."""
    full = trace.full_at_s
    if full is not None:
        return Extrapolation(True, "the pool is full", t_sat_s=full, low_s=full, high_s=full)
    if len(trace) < FEWEST:
        return Extrapolation(None, f"{len(trace)} of at least {FEWEST} samples")
    fitted = _begun(trace)
    slope = fit(fitted)
    early, late = _halves(fitted)
    change, chance = late.per_s - early.per_s, _T99 * math.hypot(early.doubt, late.doubt)
    if abs(change) > max(chance, LEAST_CHANGE * abs(early.per_s)):
        return _bending(early, late, trace.spacing_s)
    if slope.per_s <= _T95 * slope.doubt:
        return Extrapolation(False, _flat_reason(slope), rate_per_s=slope.per_s)
    return _steady(slope, trace.spacing_s)


def fit(trace: OccupancyTrace, variance: float | None = None) -> FillRate:
    """Secant slope and long-run variance (or the one given)."""
    first, last, span_s = float(trace.t_s[0]), float(trace.t_s[-1]), trace.span_s
    width = NARROWEST * span_s
    for _ in range(ROUNDS):
        low, high = _mean(trace, first, first + width), _mean(trace, last - width, last)
        t_a, t_b = first + width / 2, last - width / 2
        per_s = (high - low) / (t_b - t_a)
        step = low / per_s if per_s > 0 else math.inf
        width = min(max(NARROWEST * span_s, step), WIDEST * span_s)
    return FillRate(per_s, t_b, high, t_b - t_a, _variance(trace, 0) if variance is None else variance)


def _begun(trace: OccupancyTrace) -> OccupancyTrace:
    """Without what precedes the first change, if enough samples follow."""
    first = int(np.argmax(trace.occupancy != trace.occupancy[0]))
    return (
        OccupancyTrace(trace.t_s[first:], trace.occupancy[first:]) if len(trace) - first >= FEWEST else trace
    )


def _mean(trace: OccupancyTrace, from_s: float, to_s: float) -> float:
    return float(np.interp(np.linspace(from_s, to_s, 201), trace.t_s, trace.occupancy).mean())


def _variance(trace: OccupancyTrace, degree: int) -> float:
    """Long-run variance about a slope that is a polynomial in time: 2 V(2w) - V(w), never below half of
    V(2w).
    """
    grid = np.linspace(trace.t_s[0], trace.t_s[-1], max(len(trace), 4 * WINDOWS))
    level = np.interp(grid, trace.t_s, trace.occupancy)
    step = len(grid) // WINDOWS
    short, long = (_mean_square(grid, level, degree, steps) for steps in (step, 2 * step))
    return max(long if degree else long / 2, 2 * long - short)  # a bend has to stand out from either


def _mean_square(grid: Reals, level: Reals, degree: int, steps: int) -> float:
    window_s = float(grid[steps] - grid[0])
    gained = level[steps:] - level[:-steps]
    if degree == 0:
        gained = gained - (level[-1] - level[0]) / (grid[-1] - grid[0]) * window_s
    else:
        time = np.linspace(-1, 1, len(gained))
        gained = gained - np.polynomial.polynomial.polyval(
            time, np.polynomial.polynomial.polyfit(time, gained, 1)
        )
    return float(np.mean(gained**2)) / (window_s * (1 - (1 + degree) * window_s / float(grid[-1] - grid[0])))


def _halves(trace: OccupancyTrace) -> tuple[FillRate, FillRate]:
    """Both halves by themselves, with the variance about a slope that bends."""
    middle, variance = len(trace) // 2, _variance(trace, 1)
    early = OccupancyTrace(trace.t_s[: middle + 1], trace.occupancy[: middle + 1])
    late = OccupancyTrace(trace.t_s[middle:], trace.occupancy[middle:])
    return fit(early, variance), fit(late, variance)


def _steady(slope: FillRate, spacing_s: float) -> Extrapolation:
    """Estimate and interval; half a sample's spacing is added on either side."""
    missing = 1 - slope.level
    a = slope.per_s**2 - _T95**2 * slope.variance / slope.span_s
    b = -2 * slope.per_s * missing - _T95**2 * slope.variance
    root = math.sqrt(max(0.0, b * b - 4 * a * missing**2))
    return Extrapolation(
        True,
        "occupancy climbs steadily",
        t_sat_s=slope.t_s + missing / slope.per_s,
        low_s=slope.t_s + (-b - root) / (2 * a) - spacing_s / 2,
        high_s=slope.t_s + (-b + root) / (2 * a) + spacing_s / 2,
        rate_per_s=slope.per_s,
    )


def _bending(early: FillRate, late: FillRate, spacing_s: float) -> Extrapolation:
    """Follow the later half; the end of the interval on the bend's side lets the slope go on changing."""
    bend = (late.per_s - early.per_s) / (late.t_s - early.t_s)
    falling = bend < 0
    if late.per_s <= _T95 * late.doubt:
        return Extrapolation(False, "occupancy levels off", rate_per_s=late.per_s, falling=falling)
    steady = _steady(late, spacing_s)
    bent_s = _along(late, bend)
    low_s, high_s = steady.low_s, steady.high_s
    if falling:
        high_s = None if bent_s is None or high_s is None else max(high_s, bent_s)
    elif bent_s is not None and low_s is not None:
        low_s = min(low_s, bent_s)
    why = "frames are served late, or sessions leave" if falling else "sessions join, or talk more"
    reason = (
        f"the fill {'slows down' if falling else 'speeds up'}, from {_percent(early.per_s)} to "
        f"{_percent(late.per_s)} % of the pool a second ({why}); the forecast follows the later rate"
    )
    return Extrapolation(True, reason, steady.t_sat_s, low_s, high_s, late.per_s, falling)


def _along(late: FillRate, bend: float) -> float | None:
    """Return when the pool is full if the slope keeps changing by `bend` per second; None if never."""
    now = late.per_s + bend * late.span_s / 2  # the slope at the end, not in the middle
    square = now * now + 2 * bend * (1 - late.level)
    if now <= 0 or square <= 0:
        return None
    return late.t_s + (math.sqrt(square) - now) / bend


def _flat_reason(slope: FillRate) -> str:
    if slope.per_s <= 0:
        return f"occupancy does not rise ({_percent(slope.per_s)} % of the pool a second)"
    rate = f"{_percent(slope.per_s)} +- {_percent(slope.doubt)} % of the pool a second"
    return f"occupancy does not rise beyond chance ({rate})"


def _percent(share: float) -> str:
    """ "0.94", "-0.0044": two digits and never an exponent."""
    return digits(100 * share, 2)
