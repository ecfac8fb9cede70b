"""Conditions of a result, and caveats that limit its validity."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from metronome_cli.core.formatting import duration, format_ms, number, plural
from metronome_cli.core.quantities import digits, format_size
from metronome_cli.results.capacity_result import TrialResult
from metronome_cli.results.phrases import other_load
from metronome_cli.results.policy_runs import PolicyRun
from metronome_cli.results.run_report import Report

RANDOM_WEIGHTS = (
    "Weights were random: load and memory are those of the model's shape; its output has no meaning."
)
VIRTUAL_CLOCK = (
    "Virtual clock: idle time was skipped; the time of every engine step was measured and counted in full."
)
_MOST_FACTS = 400


def notes(report: Report) -> list[str]:
    """Yield one sentence per caveat."""
    return [*_state(report), *_conditions(report), *_wires(report), *_audio(report), *_profile(report)]


def _state(report: Report) -> Iterator[str]:
    if report.status == "interrupted":
        yield "The run was interrupted: this report is partial."
    if report.status == "failed":
        yield f"The run failed: {report.error or 'the reason is not known'}."


def _conditions(report: Report) -> Iterator[str]:
    if report.weights == "random":
        yield RANDOM_WEIGHTS
    if report.clock == "virtual":
        yield VIRTUAL_CLOCK
    replayed = report.settings.get("replay")
    if isinstance(replayed, dict):
        yield f"The load was replayed from {str(replayed.get('value'))[:200]}."
    busy = other_load(report)
    if busy:
        yield f"The machine was busy: {busy}. Steps took longer; measure again on an idle machine."
    if report.load_generator.on_time is False:
        yield f"{_late(report)}: latency there includes its delay."
    each = max((part.windows_merged for part in _measured(report)), default=1)
    if each > 1:
        yield f"Timelines are shortened: up to {each} windows in one, peaks kept."


def _wires(report: Report) -> Iterator[str]:
    wires = [point.network for point in (report.capacity.trials if report.capacity else []) if point.network]
    again = sum(wire.reconnects for wire in wires)
    if again:
        yield f"{plural(again, 'connection')} was lost and made again; frames between count as empty."
    scraped = sum(wire.scrapes for wire in wires)
    failed = sum(wire.failed_scrapes for wire in wires)
    if failed:
        yield f"{failed:,} of {scraped + failed:,} scrapes of the server's metrics failed."


def _measured(report: Report) -> list[TrialResult | PolicyRun]:
    points = report.capacity.trials if report.capacity else []
    return [*points, *report.policy_runs]


def _late(report: Report) -> str:
    """In which points, and why."""
    points = report.capacity.trials if report.capacity else []
    spoilt = [point for point in points if point.ended_by == "load_generator"]
    if not spoilt:
        return f"The load generator was late (p99 {format_ms(report.load_generator.lateness_ms_p99)} ms)"
    where = f"{len(spoilt)} of {plural(len(points), 'trial')}"
    return f"The load generator was late in {where} ({spoilt[-1].reason})"


def _audio(report: Report) -> Iterator[str]:
    refused, odd = report.audio.files_refused, [file for file in report.audio.files_used if file.notes]
    if refused:
        yield f"{plural(len(refused), 'audio file')} refused: " + "; ".join(
            f"{file.file} ({file.reason})" for file in refused
        )
    for file in odd:
        yield f"Audio {file.file}: {'; '.join(file.notes)}"


def _profile(report: Report) -> Iterator[str]:
    profile = report.profile or {}
    doubts = profile.get("unverified")
    if profile.get("verified") is False or doubts:
        named = f": {', '.join(map(str, doubts))}" if isinstance(doubts, list) and doubts else ""
        yield f"The profile rests on figures that are not verified{named}."


def conditions(report: Report) -> list[tuple[str, str]]:
    """Return the conditions of the run in a few lines."""
    profile, environment, engine = report.profile or {}, report.environment, report.backend
    server = server_of(report)
    facts = [
        ("server", _joined(server, engine.get("protocol"), by=", ")),
        ("load", _beat(profile))
        if server
        else ("profile", _joined(profile.get("name"), profile.get("title"))),
        ("weights", None if server else report.weights),
        ("policy", "the server's own" if server else profile.get("policy")),
        ("session length", duration(report.capacity.session_length_s) if report.capacity else None),
        ("clock", report.clock),
        ("seed", None if report.seed is None else str(report.seed)),
        ("modelled device", _modelled(report)),
        ("computed on" if report.command == "predict" else "machine", machine(environment)),
        ("versions", _versions(report)),
        ("audio", _audio_summary(report)),
        ("took", duration(report.duration_s)),
    ]
    return [(name, str(value)) for name, value in facts if value]


def server_of(report: Report) -> str:
    """The address of the server that answered; empty where the engine ran here."""
    return str(report.backend.get("url") or "")


def _modelled(report: Report) -> str:
    """The GPUs or the memory that a forecast is for; empty for what was measured here."""
    memory = (
        next((line.bytes for line in report.forecast.memory if line.what == "memory"), None)
        if report.forecast
        else None
    )
    named = ", ".join(gpu.title or gpu.gpu for gpu in report.gpus)
    return named or ("" if memory is None else f"a device with {format_size(memory)}")


def _beat(profile: Mapping[str, Any]) -> str:
    """How a server was driven: of the profile only that counts, its model answered nothing."""
    frame = profile.get("frame")
    period_s = frame.get("period") if isinstance(frame, Mapping) else None
    every = f", a frame every {duration(period_s)}" if isinstance(period_s, int | float) else ""
    return f"with the period of profile {profile.get('name')}{every}" if profile.get("name") else ""


def _joined(*parts: Any, by: str = ": ") -> str:
    return by.join(str(part) for part in parts if part)


def machine(environment: Mapping[str, Any]) -> str:
    """ "Xeon, 2 cores, 15.6 GiB; NVIDIA H200": processor, memory, accelerators."""
    parts = [environment.get("cpu"), _cores(environment.get("cores")), _size(environment.get("memory_bytes"))]
    devices = environment.get("devices")
    listed = devices if isinstance(devices, list) else []
    names = [str(device.get("name")) for device in listed if isinstance(device, Mapping)]
    return "; ".join(filter(None, [", ".join(str(part) for part in parts if part), ", ".join(names)]))


def _cores(count: Any) -> str:
    return f"{number(count)} core{'' if count == 1 else 's'}" if isinstance(count, int | float) else ""


def _size(size: Any) -> str:
    return format_size(size) if isinstance(size, int | float) else ""


def _versions(report: Report) -> str:
    packages = report.environment.get("packages")
    torch = packages.get("torch") if isinstance(packages, Mapping) else None
    python = report.environment.get("python")
    named = (("metronome", report.version), ("torch", torch), ("Python", python))
    return ", ".join(f"{name} {version}" for name, version in named if version)


def _audio_summary(report: Report) -> str:
    used = report.audio.files_used
    if not used:
        return ""
    return f"{plural(len(used), 'file')}, {duration(sum(file.seconds or 0.0 for file in used))}"


def flat(value: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """Nested settings as dotted keys and text, at most a few hundred."""
    return list(_flat(value, prefix))[:_MOST_FACTS]


def _flat(value: Any, prefix: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping) and value:
        for key, item in value.items():
            yield from _flat(item, f"{prefix}.{key}" if prefix else str(key))
    elif isinstance(value, list) and value and any(isinstance(item, Mapping | list) for item in value):
        for index, item in enumerate(value):
            yield from _flat(item, f"{prefix}[{index}]")
    else:
        yield prefix, _plain(value)


def _plain(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(_plain(item) for item in value) or "-"
    if isinstance(value, Mapping):
        return "-"
    return digits(value, 6) if isinstance(value, float) and math.isfinite(value) else str(value)


def deciding_point(report: Report) -> TrialResult | None:
    """The point that the answer rests on: a judged run at the safe number, else the last point."""
    capacity = report.capacity
    if capacity is None or not capacity.trials:
        return None
    safe = capacity.safe_sessions
    held = [
        p for p in capacity.trials if p.sessions == safe and p.verdict == "pass" and p.purpose != "screen"
    ]
    return held[0] if held else capacity.trials[-1]


def failing_point(report: Report) -> TrialResult | None:
    """The point that shows the first failing number, preferring one that was judged to one that was looked at."""
    capacity = report.capacity
    if capacity is None or capacity.lowest_failing_sessions is None:
        return None
    failed = [
        p for p in capacity.trials if p.sessions == capacity.lowest_failing_sessions and p.verdict == "fail"
    ]
    return max(failed, key=lambda point: point.purpose != "screen", default=None)


def setting(settings: Mapping[str, Any], key: str) -> Any:
    """A setting's value, with or without a note of who gave it."""
    value = settings.get(key)
    return value.get("value") if isinstance(value, Mapping) and "value" in value else value


def settings_of(report: Report) -> dict[str, str]:
    """Every setting as text, and who gave it."""
    found = {}
    for key, value in report.settings.items():
        origin = value.get("from") if isinstance(value, Mapping) else None
        found[key] = _plain(setting(report.settings, key)) + (f" (from {origin})" if origin else "")
    return found
