"""A million frames on the virtual clock: does memory stay flat, and how fast does the events file grow?

    python benchmarks/soak.py [--frames 1000000] [--target fake|engine] [--sessions 64] [--output DIR]

`fake`: the package's simulated target, so that all else is soaked: clock, driver, sessions, ledger, timeline, events.
`engine`: the smoke profile's model and pool in this process. Sessions live a minute and are replaced by new ones, so
that slots, blocks and streams are freed and used again some ten thousand times.

Memory is the resident set after each window of the run. The slope is that of a line through the medians of forty
equal stretches, in bytes a thousand frames, with the 95 % interval of a regression: once with the first four left out,
and once over the second half, when the timeline has long reached its bound of a thousand entries. The
process is told to give freed memory back at the end of each stretch where the C library can (`malloc_trim`), so that
what is left is what is held.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import gc
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from metronome_cli.audio.open_audio import open_audio
from metronome_cli.backends.in_process.backend import InProcessBackend
from metronome_cli.backends.in_process.loading import load_model
from metronome_cli.backends.simulated_engine import SimulatedEngine
from metronome_cli.backends.step_engine import StepEngine
from metronome_cli.capacity.context import TrialContext
from metronome_cli.capacity.trial import Trial
from metronome_cli.capacity.trial_plan import TrialPlan
from metronome_cli.config.profile import Profile
from metronome_cli.config.profile_files import load_profile
from metronome_cli.core.stop import StopRequest
from metronome_cli.measure.objective import Objective
from metronome_cli.report.event_log import EventsFile
from metronome_cli.results.events import ObserverGroup, Snapshot

STRETCHES = 40
LEFT_OUT = 4
LIFE_S = 60.0


class Scales:
    """An observer that weighs the process after each window."""

    def __init__(self, frames: int) -> None:
        self.stretch = frames / STRETCHES
        self.weights: list[tuple[int, int]] = []  # frames answered, resident bytes
        self._began_s = time.perf_counter()

    def snapshot(self, snapshot: Snapshot) -> None:
        """Weigh; at the end of a stretch after tidying up."""
        before = self.weights[-1][0] if self.weights else 0
        if snapshot.frames // self.stretch > before // self.stretch:
            tidy()
            spent_s = time.perf_counter() - self._began_s
            print(f"{snapshot.frames:>9,} frames, {resident() / 2**20:.1f} MiB, {spent_s:.0f} s", flush=True)
        self.weights.append((snapshot.frames, resident()))

    def phase(self, name: str, detail: str) -> None:
        """Nothing to weigh."""

    def event(self, kind: str, data: dict[str, Any]) -> None:
        """Nothing to weigh."""

    def notice(self, message: str) -> None:
        """Nothing to weigh."""

    def close(self) -> None:
        """Nothing to weigh."""

    def slope(self, left_out: int) -> str:
        """The line through the stretches' medians from that one on, and its 95 % interval."""
        from scipy.stats import linregress, t

        frames, kept = np.array(self.weights, dtype=float).T
        place = np.minimum(frames * STRETCHES // frames[-1], STRETCHES - 1)
        middles = [
            (np.median(frames[place == k]), np.median(kept[place == k])) for k in range(left_out, STRETCHES)
        ]
        fit = linregress(*np.array(middles).T)
        reach = fit.stderr * t.ppf(0.975, len(middles) - 2)
        low, high = 1e3 * (fit.slope - reach), 1e3 * (fit.slope + reach)
        return f"{1e3 * fit.slope:+.0f} bytes a thousand frames, 95 % interval {low:+.0f} to {high:+.0f}"


def resident() -> int:
    """Bytes of this process in memory."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def tidy() -> None:
    """Collect cycles and hand freed memory back."""
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):  # another C library: what it keeps counts as held
        ctypes.CDLL("libc.so.6").malloc_trim(0)


def context_of(
    profile: Profile, target: str, sessions: int, observer: ObserverGroup, stop: StopRequest
) -> TrialContext:
    """The smoke profile's conditions, with a pool that holds all sessions."""
    assert profile.kv_pool is not None
    pool = profile.kv_pool.model_copy(update={"blocks": 8 * sessions, "budget": None})
    frame = profile.frame.model_copy(
        update={"backlog_limit": 100_000}
    )  # so that no session ends on a busy machine
    profile = profile.model_copy(update={"pool": pool, "frame": frame})
    streams, _ = open_audio((), profile.frame, 0, observer)
    model = (
        load_model(profile, device="cpu", seed=0, weights=None, observer=observer)
        if target == "engine"
        else None
    )

    def make(profile: Profile, slots: int) -> StepEngine:
        if model is not None:
            return model.fresh_engine(profile, slots)
        return SimulatedEngine(profile, slots, lambda batch: 0.02 + 0.0002 * batch)

    return TrialContext(
        backend=InProcessBackend(make, profile),
        profile=profile,
        audio=streams,
        objectives=[Objective.parse("p99<80ms"), Objective.parse("empty<1%")],
        clock="virtual",
        batching="continuous",
        session_length_s=LIFE_S,
        seed=0,
        observer=observer,
        stop=stop,
        max_sessions=4 * sessions,
    )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--frames", type=int, default=1_000_000)
    parser.add_argument("--target", choices=("fake", "engine"), default="fake")
    parser.add_argument("--sessions", type=int, default=64)
    parser.add_argument(
        "--output", type=Path, help="where events go; a directory that is removed, if not given"
    )
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as spare:
        return soak(args.frames, args.target, args.sessions, args.output or Path(spare))


def soak(frames: int, target: str, sessions: int, output: Path) -> int:
    """Run it and print what was seen; 0 when every frame was counted."""
    profile = load_profile("smoke")
    scales, events = Scales(frames), EventsFile(output)
    stop = StopRequest()
    context = context_of(profile, target, sessions, ObserverGroup(scales, events), stop)
    events.event("run", {"command": "capacity"})
    began_s = time.perf_counter()
    length_s = frames / sessions * profile.frame.period_s
    with stop.on_signals():  # stopped early, it reports what it has
        point = (
            Trial(context, TrialPlan(sessions, "soak", length_s=length_s, until="end")).run(into=[]).result
        )
    wall_s = time.perf_counter() - began_s
    events.close()
    size = events.path.stat().st_size
    kept = [weight for _, weight in scales.weights]
    minutes, lived = point.duration_s / 60, sessions * point.duration_s / LIFE_S
    print(f"{point.frames:,} frames of {sessions} sessions in {wall_s:.0f} s; verdict {point.verdict}")
    print(f"{point.batches:,} steps, {minutes:.0f} min of the run's clock, {lived:.0f} sessions lived")
    print(f"resident: median {statistics.median(kept) / 2**20:.1f} MiB, highest {max(kept) / 2**20:.1f} MiB")
    print(f"slope: {scales.slope(LEFT_OUT)}")
    print(f"slope of the second half: {scales.slope(STRETCHES // 2)}")
    print(f"timeline: {len(point.windows)} entries of {point.windows_merged} windows; events: {size:,} bytes, "
          f"{size / point.frames * 1e3:.0f} a thousand frames")  # fmt: skip
    return 0 if abs(point.frames - frames) < 0.01 * frames else 1


if __name__ == "__main__":
    sys.exit(main())
