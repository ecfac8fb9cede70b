"""How a step on the processor is spread over cores: how its threads wait for each other, and how many there are.

A decoder's step is hundreds of short parallel loops with a barrier after each. Threads that spin at the barrier are
more than twice as fast as threads that sleep there, as long as every one of them has a core; when anything else
wants a core they hold up the whole step, twentyfold and worse. So whether they spin follows from how busy the machine
is before they exist (`prepare`), and how many there are from timing the model's own step (`fit`).
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, MutableMapping
from dataclasses import dataclass

from metronome_cli.measure.machine_load import COUNTED_BY_USER, CpuLoadSampler, MachineLoad

SPINS = (
    "2000"  # turns at a barrier before a thread sleeps: near the speed of endless spinning, a bounded loss
)
WATCH_S = 0.25
SPARE_CORES = 0.15  # what others may use of one core on a machine that counts as quiet
SET_BY_USER = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")
TRIAL_S = 0.3
TRIAL_STEPS = 3  # at the least


def prepare(environ: MutableMapping[str, str] = os.environ) -> None:
    """Choose how threads wait at a barrier. Does nothing once torch is loaded, or where the user has chosen."""
    if "torch" in sys.modules or any(name in environ for name in SET_BY_USER):
        return
    watch = CpuLoadSampler()
    time.sleep(WATCH_S)
    if quiet(watch.read(environ)):
        environ["GOMP_SPINCOUNT"] = SPINS
    else:
        environ["OMP_WAIT_POLICY"] = "PASSIVE"


def quiet(load: MachineLoad) -> bool:
    """Whether every thread of a step would have a core of its own; not where nobody says."""
    return load.free_cores is not None and load.free_cores + SPARE_CORES >= load.threads


@dataclass(frozen=True, slots=True)
class ThreadTrial:
    """Seconds of one step by number of threads, and the number that was chosen."""

    seconds: dict[int, float]
    chosen: int

    def __str__(self) -> str:
        steps = ", ".join(f"{n}: {s * 1e3:.1f} ms" for n, s in sorted(self.seconds.items()))
        return f"{self.chosen} ({steps} a step)"


def fit(step: Callable[[], object], environ: MutableMapping[str, str] = os.environ) -> ThreadTrial | None:
    """Time `step` with one thread, half of them and all, and keep the fastest. None where there is no choice."""
    import torch

    most = torch.get_num_threads()
    if most == 1 or any(environ.get(name) for name in COUNTED_BY_USER):
        return None
    seconds: dict[int, float] = {}
    for threads in sorted({1, max(1, most // 2), most}):
        torch.set_num_threads(threads)
        seconds[threads] = _median_s(step)
    chosen = min(seconds, key=lambda threads: seconds[threads])
    torch.set_num_threads(chosen)
    return ThreadTrial(seconds, chosen)


def _median_s(step: Callable[[], object]) -> float:
    step()
    taken: list[float] = []
    while len(taken) < TRIAL_STEPS or sum(taken) < TRIAL_S:
        began = time.perf_counter()
        step()
        taken.append(time.perf_counter() - began)
    return sorted(taken)[len(taken) // 2]
