"""What a run ran on: versions, processor, memory, devices, operating system.

Nothing that names a person or a machine: no host name, no user name, no path. Versions come from the
packages' metadata, so nothing is imported to learn them.
"""

from __future__ import annotations

import os
import platform
import re
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

from metronome_cli import __version__

PACKAGES = ("torch", "transformers", "numpy", "scipy", "soundfile")
_CGROUP = Path("/sys/fs/cgroup")


def environment(*, devices: bool | None = None) -> dict[str, Any]:
    """Machine and versions, for a report.

    `devices` asks torch for accelerators: True imports it, False never asks, None asks only where torch is
    loaded already. Missing facts are None.
    """
    return {
        "metronome": __version__,
        "python": platform.python_version(),
        "implementation": platform.python_implementation(),
        "packages": {name: _version_of(name) for name in PACKAGES},
        "os": _os_name(),
        "kernel": _kernel(),
        "machine": platform.machine(),
        "cpu": _cpu_model(),
        "cores": usable_cores(),
        "memory_bytes": usable_memory(),
        **_torch_facts(devices),
    }


def _version_of(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _os_name() -> str:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME", platform.system())
    except OSError:
        return f"{platform.system()} {platform.mac_ver()[0]}".strip()


def _kernel() -> str:
    """Name and number only: the rest of a release string may carry whatever its builder put there."""
    number = re.match(r"[\d.]+", platform.release())
    return f"{platform.system()} {number[0] if number else ''}".strip()


def _cpu_model() -> str | None:
    try:
        listing = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return platform.processor() or None
    match = re.search(r"^(?:model name|Model|cpu model)\s*:\s*(.+)$", listing, re.MULTILINE)
    return match[1].strip() if match else platform.processor() or None


def usable_cores() -> float:
    """Cores that this process may use: its affinity, and the quota of its control group."""
    affinity = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota, _, period = _read(_CGROUP / "cpu.max").partition(" ")
    if quota.isdigit() and period.strip().isdigit():
        return min(float(affinity), int(quota) / int(period))
    return affinity


def usable_memory() -> int | None:
    """Bytes of memory: the machine's, or its control group's limit where that is lower."""
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return None
    limit = _read(_CGROUP / "memory.max").strip()
    return min(total, int(limit)) if limit.isdigit() else total


def available_memory() -> int | None:
    """Bytes that this process can still take: MemAvailable, or what its control group leaves where that is less."""
    found = re.search(r"^MemAvailable:\s+(\d+) kB", _read(Path("/proc/meminfo")), re.MULTILINE)
    total, limit = usable_memory(), _read(_CGROUP / "memory.max").strip()
    free = int(found[1]) * 1024 if found else total
    if free is None or not limit.isdigit():
        return free
    used = _read(_CGROUP / "memory.current").strip()
    cached = re.search(r"^inactive_file (\d+)", _read(_CGROUP / "memory.stat"), re.MULTILINE)
    return min(free, int(limit) - int(used or 0) + (int(cached[1]) if cached else 0))


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError):
        return ""


def _torch_facts(devices: bool | None) -> dict[str, Any]:
    if devices is False or (devices is None and "torch" not in sys.modules):
        return {"devices": None, "torch_threads": None}
    import torch

    return {
        "devices": [
            {"name": torch.cuda.get_device_name(index), "memory_bytes": _device_memory(index)}
            for index in range(torch.cuda.device_count())
        ],
        "torch_threads": torch.get_num_threads(),
    }


def _device_memory(index: int) -> int:
    import torch

    return int(torch.cuda.get_device_properties(index).total_memory)
