"""`doctor`: what this machine supports, what is missing, and what would disturb a measurement now.

Nothing is changed and nothing is sent. Takes about 2 s: 1 s of wake-ups (measure/timer_latency.py), during which the
load of other processes is measured (measure/machine_load.py), and the import of torch.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from importlib import metadata
from importlib.util import find_spec
from typing import Any, TextIO

from metronome_cli.config.settings import unknown_variables
from metronome_cli.core.quantities import format_size
from metronome_cli.measure.environment import environment
from metronome_cli.measure.machine_load import CpuLoadSampler, MachineLoad
from metronome_cli.measure.timer_latency import TimerLatency, measure_wakeups
from metronome_cli.results.checkup_result import Checkup, CheckupFinding

EXTRAS: Mapping[str, tuple[str, ...]] = {  # extra: the modules that it brings
    "net": ("websockets", "msgpack", "sphn"),
    "gguf": ("gguf",),
}
WANTED_FORMATS = ("WAV", "FLAC", "OGG", "MP3")
LATE_US = 2_000.0  # of p99: 2.5 % of an 80 ms frame
LEAST_MEMORY = 2 * 2**30
LEAST_SHARE = 0.9  # of one core


def examine(stream: TextIO, *, redraws: bool) -> Checkup:
    """Examine this machine. `stream`: where a live view would go; `redraws`: it is a terminal that can redraw."""
    watch = CpuLoadSampler()
    wakeups = measure_wakeups()
    load = watch.read()
    facts = environment(devices=find_spec("torch") is not None)
    findings = (
        *_machine(facts),
        *_torch(facts),
        *_packages(facts["packages"]),
        *_extras(),
        *_audio(_formats()),
        *_variables(os.environ),
        _terminal(stream, redraws),
        _timer(wakeups),
        *_load(load),
    )
    return Checkup(findings, facts, wakeups, load)


def _machine(facts: Mapping[str, Any]) -> Iterator[CheckupFinding]:
    yield CheckupFinding(
        "processor",
        "ok",
        f"{facts['cpu'] or 'unknown'}, {facts['cores']:g} core{'' if facts['cores'] == 1 else 's'}",
    )
    memory = facts["memory_bytes"]
    if memory is None:
        yield CheckupFinding("memory", "note", "the amount of memory is unknown")
    elif memory < LEAST_MEMORY:
        yield CheckupFinding(
            "memory",
            "note",
            format_size(memory),
            "use tiny profiles and a small pool, --kv-pool 256MiB",
        )
    else:
        yield CheckupFinding("memory", "ok", format_size(memory))


def _torch(facts: Mapping[str, Any]) -> Iterator[CheckupFinding]:
    version = facts["packages"]["torch"]
    if version is None:
        yield CheckupFinding("torch", "missing", "not installed", "pip install metronome-cli")
        return
    yield CheckupFinding("torch", "ok", version)
    devices: Sequence[Mapping[str, Any]] = facts["devices"] or ()
    for index, device in enumerate(devices):
        said = f"cuda:{index} {device['name']}, {format_size(device['memory_bytes'])}"
        yield CheckupFinding("device", "ok", said)
    if not devices:
        yield CheckupFinding(
            "device",
            "note",
            "CPU only",
            "with an NVIDIA card, install its driver and a torch built for CUDA; `metronome predict --gpu h100` "
            "plans without one",
        )


def _packages(packages: Mapping[str, str | None]) -> Iterator[CheckupFinding]:
    for name, version in packages.items():
        if name == "torch":
            continue
        if version is None:
            yield CheckupFinding(name, "missing", "not installed", f"pip install {name}")
        else:
            yield CheckupFinding(name, "ok", version)


def _extras() -> Iterator[CheckupFinding]:
    for extra, modules in EXTRAS.items():
        absent = [name for name in modules if find_spec(name) is None]
        if absent:
            said = f"without {', '.join(absent)}: {_serves(extra)} will not work"
            yield CheckupFinding(f"extra {extra}", "note", said, f"pip install 'metronome-cli[{extra}]'")
        else:
            versions = ", ".join(f"{name} {metadata.version(name)}" for name in modules)
            yield CheckupFinding(f"extra {extra}", "ok", versions)


def _serves(extra: str) -> str:
    return {"net": "`serve` and servers over the network", "gguf": "`--model FILE.gguf`"}[extra]


def _formats() -> tuple[str, frozenset[str]] | None:
    """libsndfile's version and what it reads; None where it cannot be loaded."""
    try:
        import soundfile
    except (ImportError, OSError):  # the library itself is absent
        return None
    return str(soundfile.__libsndfile_version__), frozenset(soundfile.available_formats())


def _audio(found: tuple[str, frozenset[str]] | None) -> Iterator[CheckupFinding]:
    if found is None:
        yield CheckupFinding(
            "audio",
            "missing",
            "libsndfile cannot be loaded",
            "pip install soundfile, or the system's libsndfile",
        )
        return
    version, formats = found
    absent = [name for name in WANTED_FORMATS if name not in formats]
    said = f"libsndfile {version} reads {', '.join(f for f in WANTED_FORMATS if f in formats)} and more"
    if absent:
        said += f"; not {', '.join(absent)}"
    yield CheckupFinding(
        "audio", "note" if absent else "ok", said, "libsndfile 1.1 or later reads MP3" if absent else ""
    )


def _variables(environ: Mapping[str, str]) -> Iterator[CheckupFinding]:
    for name, hint in unknown_variables(environ).items():
        yield CheckupFinding(
            "variable", "wrong", f"{name} is unknown, so commands reject it", f"{hint} Else unset it"
        )


def _terminal(stream: TextIO, redraws: bool) -> CheckupFinding:
    encoding = getattr(stream, "encoding", None) or "unknown"
    if redraws:
        return CheckupFinding("terminal", "ok", f"live view, {encoding}")
    term = os.environ.get("TERM", "")
    why = "not a terminal" if not stream.isatty() else f"TERM={term or 'not set'}"
    return CheckupFinding("terminal", "ok", f"plain lines ({why}), {encoding}")


def _timer(wakeups: TimerLatency) -> CheckupFinding:
    said = (
        f"wake-ups {wakeups.min_us:.0f} / {wakeups.avg_us:.0f} / {wakeups.p99_us:.0f} / {wakeups.max_us:.0f} us "
        f"late (min / avg / p99 / max of {wakeups.count}, {wakeups.interval_ms:g} ms apart), clock steps of "
        f"{wakeups.resolution_ns:.0f} ns"
    )
    if wakeups.p99_us <= LATE_US:
        return CheckupFinding("timer", "ok", said)
    return CheckupFinding(
        "timer",
        "note",
        said,
        "stop other work on the machine, or use --clock virtual, which does not wait",
    )


def _load(load: MachineLoad) -> Iterator[CheckupFinding]:
    others = (
        "unknown" if load.busy_cores is None else f"others use {load.busy_cores:.1f} of {load.cores:g} cores"
    )
    said = f"{others}; one loop gets {load.core_share:.0%} of a core"
    free = load.cores if load.free_cores is None else load.free_cores
    busy = load.core_share < LEAST_SHARE or free < 1
    yield CheckupFinding(
        "load",
        "note" if busy else "ok",
        said,
        "other processes would disturb timings: stop them, or measure later" if busy else "",
    )
    yield _threads(load, free)


def _threads(load: MachineLoad, free: float) -> CheckupFinding:
    """Check the threads. If no variable fixes their number, it is tuned when a model is loaded."""
    cores = f"{free:.1f} cores free"
    if not load.threads_from:
        chosen = (
            "1 per step"
            if load.threads == 1
            else f"1 to {load.threads} per step, the fastest number when a model is loaded"
        )
        return CheckupFinding("threads", "ok", f"{chosen}; {cores}")
    said = f"{load.threads} per step, fixed by {load.threads_from}; {cores}"
    if load.threads <= max(1.0, free):
        return CheckupFinding("threads", "ok", said)
    return CheckupFinding(
        "threads",
        "note",
        said,
        f"unset {load.threads_from}: the fastest number is then found when a model is loaded; threads that "
        "wait for a core slow the whole step down, up to tenfold",
    )
