"""Threads of an engine step on the CPU: how they wait for each other, and how many there are.

A decoder's step is hundreds of short parallel loops with a barrier after each. Threads that spin at the barrier are
more than twice as fast as threads that sleep there, as long as every one of them has a core; when anything else
needs a core, they slow the whole step down by a factor of 20 or more. So whether they spin follows from how busy the
machine is before they exist (`prepare`), and how many there are from timing the model's own step (`fit`).
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, MutableMapping
from dataclasses import dataclass

from metronome_cli.measure.machine_load import COUNTED_BY_USER, CpuLoadSampler, MachineLoad

SPINS = "2000"  # spins at a barrier before a thread sleeps: nearly as fast as endless spinning, with a bounded loss
WATCH_S = 0.25
SPARE_CORES = 0.15  # share of one core that other processes may use on a quiet machine
SET_BY_USER = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")
TRIAL_S = 0.3
TRIAL_STEPS = 3  # at the least


def prepare(environ: MutableMapping[str, str] = os.environ) -> None:
    """Choose how threads wait at a barrier. Does nothing if torch is loaded or the user has chosen."""
    if "torch" in sys.modules or any(name in environ for name in SET_BY_USER):
        return
    watch = CpuLoadSampler()
    time.sleep(WATCH_S)
    if quiet(watch.read(environ)):
        environ["GOMP_SPINCOUNT"] = SPINS
    else:
        environ["OMP_WAIT_POLICY"] = "PASSIVE"


def quiet(load: MachineLoad) -> bool:
    """Return True if each thread of a step would have its own core; False if the load is unknown."""
    return load.free_cores is not None and load.free_cores + SPARE_CORES >= load.threads


@dataclass(frozen=True, slots=True)
class ThreadTrial:
    """Seconds of one step by number of threads, and the number that was chosen."""

    seconds: dict[int, float]
    chosen: int

    def __str__(self) -> str:
        steps = ", ".join(f"{n}: {s * 1e3:.1f} ms" for n, s in sorted(self.seconds.items()))
        return f"{self.chosen} ({steps} per step)"


def fit(step: Callable[[], object], environ: MutableMapping[str, str] = os.environ) -> ThreadTrial | None:
    """Time `step` with one, half and all threads, and keep the fastest number. None if there is only one core."""
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
