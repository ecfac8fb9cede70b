"""How long a frame takes on a card that is not at hand. Always an estimate, always with an interval.

One period's batch of N sessions, each with `resident` positions in its cache, is a chain of forward
passes: one over the new positions of the audio, one for each token decoded after it. The roofline of the
chain is

    passes x weights / bandwidth                                        fixed
    + N (passes x resident x KV bytes) / bandwidth                      each session
    + N x 2 x active parameters x positions / rate                      each session

and a real engine takes longer by launches (`LAUNCH_S` for each layer of each pass, and for the layers of
what a stage rebuilds inside the frame, step by step) and by using less than the peaks:

    T(N) = x (fixed + launches)  +  y N (each session).

Without a measurement x = 1 / 0.8 (the share of peak bandwidth that public planners assume) and y = 1 /
0.5, and the truth may be off by a factor of `UNMEASURED` either way: kernels, graphs and batching differ
that much between engines. Measured points (N, seconds) on a known card give x and y by least squares,
neither below a quarter of the roofline, and what is left is the scaling to another card: `MEASURED`. What
is not in the profile is not in T: the weights of towers and depth transformers, unless `shape.parameters`
counts them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from metronome_cli.config.cache_groups import DTYPE_BYTES
from metronome_cli.config.profile import Profile
from metronome_cli.forecast.gpus import Gpu
from metronome_cli.forecast.memory import decoder_parameters

LAUNCH_S = 100e-6
STAGE_LAYERS = 6  # of a stage rebuilt inside the frame, such as a depth transformer
X, Y = 1 / 0.8, 1 / 0.5
UNMEASURED, MEASURED = 2.0, 1.25
_LEAST = 0.25


@dataclass(frozen=True, slots=True)
class Efficiency:
    """x multiplies the fixed time, y a session's; the truth is off by at most `spread`, as a factor either
    way.
    """

    x: float = X
    y: float = Y
    spread: float = UNMEASURED
    how: str = "documented default, not measured"


@dataclass(frozen=True, slots=True)
class StepPoint:
    """A measured step: seconds, for so many sessions with so many positions in each cache."""

    sessions: int
    seconds: float
    resident: float


@dataclass(frozen=True, slots=True)
class StepTime:
    """T(N) = fixed + N each, in seconds; `spread` as a factor either way."""

    fixed_s: float
    each_s: float
    spread: float

    def at(self, sessions: int) -> float:
        return self.fixed_s + sessions * self.each_s

    def sessions_within(self, limit_s: float, factor: float = 1.0) -> int:
        """Most sessions whose step, `factor` times as long as estimated, keeps within the limit."""
        room = limit_s / factor - self.fixed_s
        return max(0, math.floor(room / self.each_s + 1e-9)) if self.each_s > 0 else 0


def resident_positions(profile: Profile, session_length_s: float) -> float:
    """Positions in a session's cache on average over its life; all of a ring or window, once it is full."""
    grown = profile.prompt_tokens + session_length_s / profile.frame.period_s * profile.mean_tokens_per_frame
    spec = profile.policy_spec
    if spec.kind == "ring":
        return float(spec.window)
    if spec.kind == "window":
        return float(min(grown, spec.window + spec.sinks))
    return min(grown / 2, 1.5 * spec.window) if spec.kind == "recycle" else grown / 2


def roofline(profile: Profile, gpu: Gpu, resident: float) -> StepTime:
    """Fixed and per-session roofline time of one period's batch, launches included in the fixed part."""
    shape, tokens = profile.shape, profile.tokens
    passes = 1.0 if tokens.fused else 1.0 + tokens.decode.speaking  # in a batch at least one session speaks
    rebuilt = STAGE_LAYERS * sum(s.limit or 0 for s in profile.stages if s.kind == "per_frame")
    parameters = shape.parameters or decoder_parameters(profile)
    weights = passes * parameters * DTYPE_BYTES[shape.dtype]
    cache = passes * (resident * shape.kv_bytes_per_token + shape.constant_bytes)
    work = 2.0 * (shape.active_parameters or parameters) * profile.mean_tokens_per_frame
    return StepTime(
        fixed_s=weights / gpu.bandwidth + (passes * shape.layers + rebuilt) * LAUNCH_S,
        each_s=cache / gpu.bandwidth + work / gpu.flops(shape.dtype),
        spread=1.0,
    )


def estimate(profile: Profile, gpu: Gpu, resident: float, efficiency: Efficiency) -> StepTime:
    """The roofline, scaled."""
    ideal = roofline(profile, gpu, resident)
    return StepTime(efficiency.x * ideal.fixed_s, efficiency.y * ideal.each_s, efficiency.spread)


def measured_efficiency(
    profile: Profile, gpu: Gpu, points: Sequence[StepPoint], how: str, spread: float = MEASURED
) -> Efficiency:
    """x and y from measured points on a known card; from one concurrency only, one factor for both.

    Raises ValueError without points.
    """
    if not points:
        raise ValueError("no measured points")
    ideal = [roofline(profile, gpu, point.resident) for point in points]
    if len({point.sessions for point in points}) < 2:
        ratios = [p.seconds / roof.at(p.sessions) for p, roof in zip(points, ideal, strict=True)]
        ratio = max(_LEAST, sum(ratios) / len(ratios))
        return Efficiency(ratio, ratio, spread * MEASURED, how + ", at one concurrency")
    rows = [
        (roof.fixed_s, p.sessions * roof.each_s, p.seconds) for p, roof in zip(points, ideal, strict=True)
    ]
    return Efficiency(*_least_squares(rows), spread, how)


def _least_squares(rows: Sequence[tuple[float, float, float]]) -> tuple[float, float]:
    """x, y that minimise sum (x a + y b - t)^2, neither below a quarter of the roofline."""
    aa, ab, bb = (sum(r[i] * r[j] for r in rows) for i, j in ((0, 0), (0, 1), (1, 1)))
    at, bt = (sum(r[i] * r[2] for r in rows) for i in (0, 1))
    det = aa * bb - ab * ab
    x, y = (at * bb - bt * ab) / det, (aa * bt - ab * at) / det
    if x < _LEAST:
        return _LEAST, max(_LEAST, (bt - _LEAST * ab) / bb)
    return (max(_LEAST, (at - _LEAST * ab) / aa), _LEAST) if y < _LEAST else (x, y)
