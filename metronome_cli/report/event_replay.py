"""State of a run rebuilt from its events, and the report of it.

A phase that was never judged becomes a point of its own, inconclusive, with the windows that were kept. A
search that did not end never passes: what it confirmed is reported, and that it was cut off.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from pydantic import TypeAdapter

from metronome_cli.core.errors import Verdict, exit_code_for
from metronome_cli.core.quantities import format_duration
from metronome_cli.core.strict_json import dumps
from metronome_cli.measure.objective import Objective
from metronome_cli.report.conditions import setting
from metronome_cli.report.report_file import parse_report
from metronome_cli.results.audio_files import AudioFiles
from metronome_cli.results.capacity_result import Capacity, TrialResult
from metronome_cli.results.load_generator import generator_of
from metronome_cli.results.measured import Collapse, LatencyMs, ObjectiveResult, Window
from metronome_cli.results.policy_runs import PolicyRun, RepeatSeries
from metronome_cli.results.run_report import Report
from metronome_cli.results.timeline import WindowTimeline

CONDITIONS = (
    "command", "argv", "profile", "environment", "settings", "started_at", "clock", "version", "seed",
    "weights",
)  # fmt: skip
RAMP = "ramp"
_T = TypeVar("_T")


@dataclass(slots=True)
class EventReplay:
    """State after the events so far."""

    conditions: dict[str, Any] | None = None
    final: Report | None = None
    engine: dict[str, Any] = field(default_factory=dict)
    audio: AudioFiles = field(default_factory=AudioFiles)
    trials: list[TrialResult] = field(default_factory=list)
    policy_runs: list[PolicyRun] = field(default_factory=list)
    repeats: list[RepeatSeries] = field(default_factory=list)
    ramp: list[Window] = field(default_factory=list)
    phase: str = ""
    timeline: WindowTimeline = field(default_factory=WindowTimeline)  # of the phase that is not judged yet
    collapse: Collapse | None = None
    last_t_s: float = 0.0

    def take(self, event: dict[str, Any]) -> None:
        """Apply one event. Kinds that do not affect the report are ignored."""
        kind, data, time_s = event["kind"], event["data"], event["t"]
        if not isinstance(kind, str) or not isinstance(data, dict) or not isinstance(time_s, int | float):
            raise TypeError("t, kind and data have to be a number, text and an object")
        self.last_t_s = max(self.last_t_s, float(time_s))
        takers = {
            "run_started": self._take_run_started, "audio": self._take_audio, "phase": self._take_phase,
            "window": self._take_window, "trial": self._take_trial, "collapse": self._take_collapse,
            "policy_run": self._take_policy_run, "repeats": self._take_repeats,
            "backend_started": self._take_backend,
            "report": self._take_report,
        }  # fmt: skip
        if kind in takers:
            takers[kind](data)

    def _take_run_started(self, data: dict[str, Any]) -> None:
        conditions = {key: data[key] for key in CONDITIONS if key in data}
        unknown = {"status": "interrupted", "verdict": None, "exit_code": 0, "duration_s": 0.0}
        _of(Report, conditions | unknown)  # malformed conditions are refused at their line
        self.conditions = conditions

    def _take_backend(self, data: dict[str, Any]) -> None:
        self.engine = data

    def _take_audio(self, data: dict[str, Any]) -> None:
        self.audio = _of(AudioFiles, data)

    def _take_phase(self, data: dict[str, Any]) -> None:
        if self.phase != RAMP:
            self.timeline, self.collapse = WindowTimeline(), None
        self.phase = str(data["name"])

    def _take_window(self, data: dict[str, Any]) -> None:
        phase = str(data.get("phase", ""))
        window = _of(Window, {key: value for key, value in data.items() if key != "phase"})
        if phase == RAMP:
            self.ramp.append(window)
        else:
            self.timeline.add(window)

    def _take_trial(self, data: dict[str, Any]) -> None:
        self.trials.append(_of(TrialResult, data))
        self.timeline, self.collapse = WindowTimeline(), None

    def _take_collapse(self, data: dict[str, Any]) -> None:
        self.collapse = _of(Collapse, {key: value for key, value in data.items() if key != "policy_run"})

    def _take_policy_run(self, data: dict[str, Any]) -> None:
        self.policy_runs.append(_of(PolicyRun, data))
        self.timeline, self.collapse = WindowTimeline(), None

    def _take_repeats(self, data: dict[str, Any]) -> None:
        self.repeats.append(_of(RepeatSeries, data))

    def _take_report(self, data: dict[str, Any]) -> None:
        self.final = parse_report(data, "event 'report'")

    # -- the report --------------------------------------------------------------------------------

    def report(self) -> Report:
        """What is known, as the report of an interrupted run."""
        assert self.conditions is not None
        windows = self.timeline.windows
        points = self.trials + ([self._unjudged(windows)] if windows else [])
        capacity = self._capacity(points) if self.conditions.get("command") == "capacity" else None
        verdict = self._verdict()
        return _of(
            Report,
            {
                **self.conditions,
                "weights": self._weights(),
                "backend": self.engine,
                "status": "interrupted",
                "verdict": verdict,
                "exit_code": int(exit_code_for("interrupted", verdict)),
                "summary": self._answer(capacity),
                "duration_s": self.last_t_s,
                "audio": self.audio.model_dump(mode="json"),
                "capacity": capacity.model_dump(mode="json") if capacity else None,
                "policy_runs": [run.model_dump(mode="json") for run in self.policy_runs],
                "repeats": [series.model_dump(mode="json") for series in self.repeats],
                "objectives": [o.model_dump(mode="json") for o in self._objectives()],
                "load_generator": generator_of(self.trials).model_dump(mode="json"),
            },
        )

    def _unjudged(self, windows: list[Window]) -> TrialResult:
        """The phase that was cut off: its counts are sums of its windows, its percentiles are not known."""
        counted = [w for w in windows if not w.warm_up]
        latest = [w.max_ms for w in counted if w.max_ms is not None]
        filled = [w.occupancy for w in windows if w.occupancy is not None]
        return TrialResult(
            sessions=max(w.sessions for w in windows),
            verdict="inconclusive",
            reason="the run was cut off before this point was judged",
            ended_by="interrupted",
            purpose=self.phase,
            policy=str((self.conditions or {}).get("profile", {}).get("policy", "")),
            frames=sum(w.frames for w in counted),
            misses=sum(w.misses for w in counted),
            empty_frames=sum(w.empty_frames for w in counted),
            duration_s=windows[-1].t_s,
            latency_ms=LatencyMs(max=max(latest, default=None)),
            occupancy_max=max(filled, default=None),
            collapse=self.collapse,
            windows=windows,
            windows_merged=self.timeline.each,
        )

    def _single(self) -> bool:
        return any(point.purpose == "single" for point in self.trials) or self.phase == "single"

    def _verdict(self) -> Verdict:
        """One judged number of sessions stands; a search that did not end is inconclusive."""
        return self.trials[-1].verdict if self._single() and self.trials else "inconclusive"

    def _capacity(self, trials: list[TrialResult]) -> Capacity:
        failed = [point for point in self.trials if point.verdict == "fail" and point.purpose != "screen"]
        first = min(failed, key=lambda point: point.sessions, default=None)
        settings = (self.conditions or {}).get("settings", {})
        profile = (self.conditions or {}).get("profile") or {}
        length = setting(settings, "session_length") or profile.get("session_length", 0.0)
        return Capacity(
            safe_sessions=confirmed(self.trials),
            lowest_failing_sessions=first.sessions if first else None,
            limited_by=first.limited_by if first else "none",
            session_length_s=float(length),
            method="single" if self._single() else str(setting(settings, "search_method") or "ramp"),
            ramp_windows=self.ramp,
            trials=trials,
        )

    def _weights(self) -> Any:
        """As the engine said; before it was loaded, random where that was asked for."""
        conditions = self.conditions or {}
        asked = setting(conditions.get("settings", {}), "weights")
        return (
            self.engine.get("weights")
            or conditions.get("weights")
            or ("random" if asked == "random" else None)
        )

    def _objectives(self) -> list[ObjectiveResult]:
        """Those of the last judged point; before one, those that were asked for."""
        if self.trials:
            return self.trials[-1].objectives
        asked = setting((self.conditions or {}).get("settings", {}), "slo") or []
        wanted = [Objective.parse(str(text)) for text in asked]
        return [
            ObjectiveResult(
                objective=str(o), verdict="inconclusive", limit=o.limit, unit=o.unit, reason="not measured"
            )
            for o in wanted
        ]

    def _answer(self, capacity: Capacity | None) -> str:
        text = f"Cut off after {format_duration(self.last_t_s)}, rebuilt from its events."
        if capacity is None:
            return text
        judged = len(self.trials)
        text += f" {judged} point{'' if judged == 1 else 's'} judged."
        if capacity.safe_sessions is None:
            return text + " No number of sessions was confirmed as safe."
        return text + f" Largest number of sessions confirmed: {capacity.safe_sessions}."


def confirmed(points: Iterable[TrialResult]) -> int | None:
    """Largest number of sessions that a judged run held and none failed at.

    A screening trial or a memory trial confirms nothing.
    """
    points = list(points)
    failed = {point.sessions for point in points if point.verdict == "fail"}
    held = [point.sessions for point in points if point.verdict == "pass" and _confirms(point)]
    return max((sessions for sessions in held if sessions not in failed), default=None)


def _confirms(point: TrialResult) -> bool:
    return point.purpose in ("confirm", "exceed", "soak", "single")


def _of(kind: type[_T], data: Any) -> _T:
    return TypeAdapter(kind).validate_json(dumps(data), strict=True)
