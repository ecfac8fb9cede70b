"""How busy the machine is with other work, and how many threads a step would use.

Measured: over one span, the cores' busy time from /proc/stat less this process's own, in cores; and the share of one
core that a spinning loop gets, its processor time over wall time, which also shows a quota that /proc/stat cannot.
Left out: memory bandwidth and caches, which neighbours use as well. Known error: /proc/stat counts in ticks of 10 ms,
so a span of 1 s knows a core to within a few percent; in a container it counts the whole host.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from metronome_cli.measure.environment import usable_cores

COUNTED_BY_USER = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")  # how many threads, where they are set
_STAT = Path("/proc/stat")
SPIN_S = 0.15


@dataclass(frozen=True, slots=True)
class MachineLoad:
    """Load of the machine, in cores.

    `cores`: those that this process may use. `busy_cores`: used by other processes; None if /proc/stat cannot be read.
    `core_share`: share of one core that a spinning loop got. `threads`: most threads of a step; `threads_from`: the
    variable that sets them, if any.
    """

    cores: float
    busy_cores: float | None
    core_share: float
    threads: int
    threads_from: str
    load_average: float | None

    @property
    def free_cores(self) -> float | None:
        """Cores that no other process uses, at least 0."""
        return None if self.busy_cores is None else max(0.0, self.cores - self.busy_cores)


class CpuLoadSampler:
    """Measures the processor use of other processes since its creation."""

    def __init__(self) -> None:
        self._began = _busy_s(), time.process_time(), time.perf_counter()

    def others(self) -> float | None:
        """Return the mean number of cores used by other processes since creation; None if /proc/stat cannot be read."""
        busy, own, wall = self._began
        now_busy = _busy_s()
        if busy is None or now_busy is None:
            return None
        spent = (now_busy - busy) - (time.process_time() - own)
        return max(0.0, spent / max(1e-9, time.perf_counter() - wall))

    def read(self, environ: Mapping[str, str] = os.environ) -> MachineLoad:
        """Return the load since creation."""
        others = self.others()
        cores = usable_cores()
        threads, source = step_threads(cores, environ)
        return MachineLoad(cores, others, spin_share(), threads, source, _load_average())


def step_threads(cores: float, environ: Mapping[str, str]) -> tuple[int, str]:
    """Return the most threads of one step, and the variable that sets them; "" if they are chosen by timing
    (backends/in_process/threads.py). If the variable is not a number, OpenMP uses one thread per core.
    """
    fixed = {name: environ[name].partition(",")[0].strip() for name in COUNTED_BY_USER if environ.get(name)}
    for name, first in fixed.items():
        if first.isdigit() and int(first) > 0:
            return int(first), name
    return max(1, int(cores)), next(iter(fixed), "")


def spin_share(seconds: float = SPIN_S) -> float:
    """Return processor time / wall time of a spinning loop; 1.0 if it has a core to itself."""
    began, clocked = time.process_time(), time.perf_counter()
    while time.perf_counter() - clocked < seconds:
        pass
    return min(1.0, (time.process_time() - began) / (time.perf_counter() - clocked))


def _busy_s() -> float | None:
    """Return the busy time of all cores since boot, seconds; None if /proc/stat cannot be read."""
    try:
        fields = _STAT.read_text(encoding="ascii").splitlines()[0].split()[1:9]
        user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, fields)
        return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return None


def _load_average() -> float | None:
    try:
        return os.getloadavg()[0]
    except (OSError, AttributeError):
        return None
