"""What makes two reports incomparable: another machine, profile, load or way of measuring.

Versions of software, the operating system and the seed are what one compares across, so they are said and not
refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from metronome_cli.report.conditions import flat, setting
from metronome_cli.results.run_report import Report

MEMORY_SLACK = 0.03  # a kernel reserves a little more or less
_LOAD_SETTINGS = (
    "batching", "speaking_share", "sessions", "soak", "search_method", "compare_policies", "admission_control",
    "offered_sessions", "arrival_rate", "repeat", "device_memory",
)  # fmt: skip
_PROFILE_WORDS = ("title", "description", "notes", "sources", "objectives", "verified", "unverified", "clock")

Difference = tuple[str, str, str]  # what, base, new


def mismatches(base: Sequence[Report], new: Sequence[Report]) -> list[Difference]:
    """Every difference that forbids a comparison, among all reports of both sides, each named once."""
    first = base[0]
    found: dict[str, Difference] = {}
    for report in [*base[1:], *new]:
        for what, one, other in _between(first, report):
            found.setdefault(what, (what, one, other))
    return list(found.values())


def _between(one: Report, other: Report) -> Iterator[Difference]:
    pairs = {
        "command": (one.command, other.command),
        "clock": (one.clock, other.clock),
        "weights": (one.weights, other.weights),
        "session length": (_length(one), _length(other)),
        "objectives": (_objectives(one), _objectives(other)),
        "audio": (_audio(one), _audio(other)),
        "engine device": (one.backend.get("device"), other.backend.get("device")),
    }
    for what, (left, right) in pairs.items():
        if left != right:
            yield what, _shown(left), _shown(right)
    yield from _machines(one.environment, other.environment)
    yield from _tables("profile", _profile(one), _profile(other))
    yield from _tables("setting", _settings(one), _settings(other))


def _machines(one: dict[str, Any], other: dict[str, Any]) -> Iterator[Difference]:
    for key in ("cpu", "cores", "machine", "devices"):
        left, right = one.get(key), other.get(key)
        unasked = key == "devices" and (left is None or right is None)
        if left != right and not unasked:
            yield f"machine {key}", _shown(left), _shown(right)
    left, right = one.get("memory_bytes"), other.get("memory_bytes")
    if (
        isinstance(left, int)
        and isinstance(right, int)
        and abs(left - right) > MEMORY_SLACK * max(left, right)
    ):
        yield "machine memory", _shown(left), _shown(right)


def _tables(what: str, one: dict[str, str], other: dict[str, str]) -> Iterator[Difference]:
    for key in dict.fromkeys([*one, *other]):
        if one.get(key) != other.get(key):
            yield f"{what} {key}", one.get(key, "-"), other.get(key, "-")


def _profile(report: Report) -> dict[str, str]:
    profile = {key: value for key, value in (report.profile or {}).items() if key not in _PROFILE_WORDS}
    return dict(flat(profile))


def _settings(report: Report) -> dict[str, str]:
    return dict(flat({key: setting(report.settings, key) for key in _LOAD_SETTINGS}))


def _length(report: Report) -> float | None:
    return report.capacity.session_length_s if report.capacity else None


def _objectives(report: Report) -> list[str]:
    return sorted(result.objective for result in report.objectives)


def _audio(report: Report) -> list[str]:
    return sorted(file.file for file in report.audio.files_used)


def _shown(value: Any) -> str:
    text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    return "-" if value is None or value == [] else text[:120]


def remarks(base: Sequence[Report], new: Sequence[Report]) -> list[str]:
    """Differences that one compares across, and doubts about single reports."""
    found = []
    for what in ("metronome", "python", "os", "kernel", "packages"):
        left, right = ({_shown_version(r.environment.get(what)) for r in side} for side in (base, new))
        if left != right:
            found.append(f"{what}: {'; '.join(sorted(left))} on base, {'; '.join(sorted(right))} on new")
    for name, side in (("base", base), ("new", new)):
        partial = sum(report.status != "complete" for report in side)
        if partial:
            found.append(
                f"{partial} of {len(side)} reports on {name} are partial: the run did not end by itself."
            )
        late = sum(report.load_generator.on_time is False for report in side)
        if late:
            found.append(f"{late} of {len(side)} runs on {name} had a load generator that was late itself.")
    return found


def _shown_version(value: Any) -> str:
    return ", ".join(f"{k} {v}" for k, v in value.items()) if isinstance(value, dict) else str(value)
