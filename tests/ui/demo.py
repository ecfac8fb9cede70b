"""A pretended run that ends in a silent collapse: `python -m tests.ui.demo [seconds] [mode] [--crash]`.

Made to look at the views: nothing is measured, the figures are a fixed curve. `--crash` raises half way.
"""

import math
import sys
import time

from metronome_cli.results.events import Snapshot, WindowHistogram
from metronome_cli.ui import make_observer

DEADLINE_MS = 80.0


def snapshot_at(share, sessions=24, elapsed_s=None):
    """The run at `share` of its way: latency swings, the pool fills, answers stop at the end."""
    full = share > 0.9
    p50 = 38 + 10 * math.sin(7 * share)
    recent = [_step(share - (200 - k) / 2000) for k in range(200)]
    elapsed_s = 60 * share if elapsed_s is None else elapsed_s
    return Snapshot(
        phase="confirm",
        detail=f"{sessions} sessions",
        elapsed_s=elapsed_s,
        run_s=600 * share,
        clock="virtual",
        progress=share,
        eta_s=elapsed_s * (1 - share) / share if share else None,
        offered=sessions + 7,
        admitted=sessions,
        shed=7,
        running=0 if full else sessions,
        waiting=sessions if full else 0,
        cap=sessions + 2.75,
        deadline_ms=DEADLINE_MS,
        p50_ms=p50,
        p99_ms=p50 * 1.6,
        max_ms=p50 * 1.9,
        misses=sum(kind == "late" for _, kind in recent),
        empty_frames=sessions * 40 if full else 0,
        frames=round(4820 * share),
        steps=round(1205 * share),
        occupancy=min(1.0, share / 0.9),
        stages_ms={"encode": 6.2, "prefill": 11.4, "decode": p50 - 17.6},
        recent=recent,
        verdict="p99 64 ms of 80 ms so far; 131 more steps for 99 % confidence",
        random_weights=True,
        session_views=_views(sessions, share),
        window=_window(p50),
        done=f"step {round(480 * share)} of 480",
    )


def _views(sessions, share):
    """Every eighth session is late; at the end all wait."""
    if share > 0.9:
        return ("waiting",) * sessions
    return tuple("late" if each % 8 == 3 else "on time" for each in range(sessions))


def _window(p50):
    bounds = (10, 20, 30, 40, 50, 60, 80, 100, 150)
    at_most = [round(120 / (1 + math.exp((p50 - bound) / 8))) for bound in bounds]
    return WindowHistogram(120, 120 - at_most[6], 0, 30, bounds, at_most, 120 * p50)


def _step(share):
    latency = 45 + 25 * math.sin(900 * share) + 20 * math.sin(410 * share)
    if share > 0.9:
        return 5.0, "empty"
    return latency, "late" if latency > DEADLINE_MS else "ok"


def drive(observer, seconds, frames=40, crash=False):
    """Tell the observer a run's story in `seconds`."""
    observer.phase("load", "loading a pretended model")
    time.sleep(seconds / 10)
    observer.notice("left out noise.mp3: no audio in it")
    observer.event("trial", {"sessions": 16, "verdict": "pass", "reason": ""})
    observer.event("trial", {"sessions": 32, "verdict": "fail", "reason": "p99 93 ms"})
    observer.event("point", {"sessions": 28, "verdict": "inconclusive", "reason": "too few batches"})
    observer.phase("confirm", "24 sessions")
    for frame in range(1, frames + 1):
        observer.snapshot(snapshot_at(frame / frames, elapsed_s=seconds * frame / frames))
        time.sleep(seconds / frames)
        if crash and frame > frames // 2:
            raise RuntimeError("crashed on purpose")
    observer.event("collapse", {"t_s": 540.0, "occupancy": 1.0, "running": 0, "waiting": 24})


def main(argv):
    seconds = float(argv[1]) if len(argv) > 1 else 10.0
    mode = argv[2] if len(argv) > 2 else "auto"
    observer = make_observer(mode)
    try:
        drive(observer, seconds, crash="--crash" in argv)
    finally:
        observer.close()
    print("Fail: 24 sessions for 10 min: the KV pool was full at 540 s. Limited by: memory.")


if __name__ == "__main__":
    main(sys.argv)
