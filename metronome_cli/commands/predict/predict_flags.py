"""The flags of `predict` that no other command has: how each is read, and which of them belong together."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from metronome_cli.commands.predict.describe_checkpoint import describe_checkpoint
from metronome_cli.commands.predict.from_checkpoint import load_from, read_checkpoint
from metronome_cli.commands.predict.from_metrics import ONCE_INTERVAL_S, ScrapePlan, forecast_from_metrics
from metronome_cli.commands.predict.from_profile import ForecastPlan, predict_most, predict_profile
from metronome_cli.commands.predict.from_trace import TracePlan, predict_trace
from metronome_cli.commands.predict.size_fleet import FleetQuery, GpuQuery, predict_cards, predict_fleet
from metronome_cli.commands.provenance import argv_of, settings_of
from metronome_cli.config import readers
from metronome_cli.config.settings import Settings
from metronome_cli.core.errors import UsageError
from metronome_cli.core.formatting import percent
from metronome_cli.core.quantities import shown
from metronome_cli.core.secrets import scrub_all
from metronome_cli.core.stop import StopRequest
from metronome_cli.forecast.gpus import find_gpu
from metronome_cli.forecast.memory import DEFAULT_SHARE
from metronome_cli.forecast.pool_forecast import DEFAULT_CONFIDENCE
from metronome_cli.results.events import Observer
from metronome_cli.results.run_report import Report

Source = Literal["profile", "trace", "watch", "fleet"]


def _number(given: Any) -> float:
    try:
        value = float(str(given))
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1e6:
        raise UsageError(f"{given!r} is not a number of positions", hint="a number from 0 on, such as 27")
    return value


def _tokens_out(given: Any) -> tuple[int, int]:
    """(speaking, listening) in "25" or "25/1"."""
    speaking, _, listening = str(given).partition("/")
    return readers.whole()(speaking), readers.whole()(listening or "0")


def _names(given: Any) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(name.strip() for name in str(given).split(",") if name.strip()))
    if not names:
        raise UsageError(f"{shown(given)} names no card", hint="such as h100,l40s")
    return names


def _share(least: float = 0.0, below: float = math.inf, *, some: bool = False) -> readers.ValueReader:
    """A fraction from `least`, or above nothing where `some`, to below a bound."""

    def read(given: Any) -> float:
        share = readers.fraction(given)
        if not least <= share < below or (some and share == 0):
            low = "above 0" if some else f"from {percent(least)}"
            high = "at most 100%" if below > 1 else "below 100%"
            raise UsageError(f"{shown(given)} is out of range", hint=f"{low}, {high}")
        return share

    return read


READERS: Mapping[str, Callable[[Any], Any]] = {
    "model": readers.path, "trace": readers.path, "metrics_url": readers.text,
    "ramp_up": readers.duration, "initial_occupancy": _share(below=1), "confidence": _share(0.5, below=1),
    "observed_fill_time": readers.duration, "fail_within": readers.duration,
    "fail_probability": _share(some=True, below=1),
    "period": readers.duration, "prefill_tokens": _number, "decode_tokens": _tokens_out, "tokens_per_second": _number,
    "turn_length": readers.duration, "memory_utilization": _share(some=True),
    "trial": readers.text, "time_column": readers.text, "occupancy_column": readers.text,
    "fit_share": _share(some=True), "fit_until": readers.duration,
    "scrape_interval": readers.duration, "once": readers.flag, "watch_time": readers.duration,
    "occupancy_metric": readers.text, "fit_window": readers.duration,
    "arrival_rate": readers.rate, "mean_session_length": readers.duration, "peak_sessions": readers.whole(1),
    "max_blocking": readers.fraction, "headroom": readers.fraction, "gpus_per_node": readers.whole(1),
    "gpus": readers.whole(1), "sessions_per_gpu": readers.whole(1), "capacity_report": readers.path, "gpu": _names,
}  # fmt: skip
ARGUMENTS = ("trace", "metrics_url")  # given without a flag
MODEL_ONLY = ("period", "prefill_tokens", "decode_tokens", "tokens_per_second", "turn_length")
DEFAULT_FAIL_PROBABILITY = 0.05


@dataclass(frozen=True, slots=True)
class PredictFlags:
    """What was given, read; `options[key]` is None for what was not."""

    source: Source
    given: Mapping[str, Any]

    def __getitem__(self, key: str) -> Any:
        if key not in READERS:
            raise KeyError(key)
        return self.given.get(key)

    def get(self, key: str, default: Any) -> Any:
        """As `[key]`, and `default` for what was not given: a zero that was given stays one."""
        value = self[key]
        return default if value is None else value


def takes(given: Iterable[str]) -> list[str]:
    """Those of a command's parameters that are read here; the others are settings."""
    return [key for key in given if key in READERS]


def read_options(source: Source, raw: Mapping[str, object]) -> PredictFlags:
    """Read them all. Raises UsageError naming the flag, and for flags that contradict each other."""
    given = {
        key: readers.read_as(_flag(key), READERS[key], value)
        for key, value in raw.items()
        if value is not None and value is not False
    }
    if stray := [key for key in MODEL_ONLY if key in given and not given.get("model")]:
        raise UsageError(f"{_flag(stray[0])} is for --model", hint="add --model, or leave it out")
    if "fail_probability" in given and "fail_within" not in given and not given.get("once"):
        raise UsageError("--fail-probability needs --fail-within", hint="add it, such as --fail-within 10m")
    return PredictFlags(source, given)


def _flag(key: str) -> str:
    if key in ARGUMENTS:
        return "URL" if key == "metrics_url" else "FILE"
    return "--" + key.replace("_", "-")


def predict(settings: Settings, options: PredictFlags, observer: Observer, stop: StopRequest) -> Report:
    """Answer whichever question was asked. Raises UsageError."""
    conditions: dict[str, Any] = {
        "argv": argv_of(settings),
        "settings": settings_of(settings) | scrub_all(_plain(options)),
    }
    if options.source == "trace":
        return predict_trace(_trace_plan(settings, options, conditions))
    if options.source == "watch":
        return forecast_from_metrics(_scrape_plan(settings, options, conditions), observer, stop)
    if options.source == "fleet":
        return predict_fleet(_fleet_question(settings, options, conditions))
    if options["gpu"]:
        return predict_cards(_cards(settings, options), sessions=settings["sessions"], **conditions)
    if options["model"] and not _loaded(settings, options):
        return describe_checkpoint(options["model"], **conditions)
    if settings["sessions"] is not None or options["observed_fill_time"] is not None:
        _need_sessions(settings)
        return predict_profile(_profile_plan(settings, options, conditions))
    if not (options["model"] or settings.given("profile")):
        _need_sessions(settings)
    plan = _profile_plan(settings, options, conditions)
    if plan.memory is None and plan.profile.kv_pool is None:
        raise UsageError(
            "the size of the KV pool is not known", hint="give --device-memory, such as 80GiB, or --kv-pool"
        )
    return predict_most(plan)


def _need_sessions(settings: Settings) -> None:
    if settings["sessions"] is None:
        raise UsageError("--sessions is missing", hint="give it, such as --sessions 32")


def _loaded(settings: Settings, options: PredictFlags) -> bool:
    """Whether more is asked of a checkpoint than what its file says."""
    given = (
        settings["sessions"] is not None or settings["device_memory"] is not None or settings.given("kv_pool")
    )
    return given or settings.given("profile") or any(key != "model" for key in options.given)


def _plain(options: PredictFlags) -> dict[str, Any]:
    return {key: {"value": str(value), "from": _flag(key)} for key, value in options.given.items()}


def _profile_plan(settings: Settings, options: PredictFlags, conditions: dict[str, Any]) -> ForecastPlan:
    if settings.given("kv_pool") and settings["device_memory"] is not None:
        raise UsageError(
            "--kv-pool and --device-memory contradict each other", hint="a pool, or a device's memory"
        )
    common: dict[str, Any] = {
        "sessions": settings["sessions"] or 1,
        "session_length_s": settings["session_length"],
        "over_s": options["ramp_up"] or 0.0,
        "occupied": options["initial_occupancy"] or 0.0,
        "confidence": options.get("confidence", DEFAULT_CONFIDENCE),
        "memory": settings["device_memory"],
        "memory_share": options.get("memory_utilization", DEFAULT_SHARE),
        "seen_t_sat_s": options["observed_fill_time"],
        "fail_within_s": options["fail_within"],
        "fail_probability": options.get("fail_probability", DEFAULT_FAIL_PROBABILITY),
        **conditions,
    }
    if not options["model"]:
        notes = (
            ("the pool is sized from --device-memory, not the profile's",)
            if settings["device_memory"] is not None
            else ()
        )
        return ForecastPlan(settings.profile, notes=notes, **common)
    found = read_checkpoint(options["model"], _load(settings, options), settings["session_length"])
    profile = found.profile
    if settings.given("policy"):
        profile = profile.model_copy(update={"policy": settings["policy"]})
    if settings.given("kv_pool"):
        profile = profile.model_copy(update={"kv_pool": settings.profile.kv_pool})
    return ForecastPlan(
        profile, weights=found.weights, source="config", decoder=found.decoder, notes=found.notes, **common
    )


def _load(settings: Settings, options: PredictFlags) -> Any:
    """Flags, or a profile that was named to lend its load."""
    share = settings["speaking_share"] if settings.given("speaking_share") else None
    flags = load_from(
        options["period"], options["prefill_tokens"], options["decode_tokens"], options["tokens_per_second"], share,
        options["turn_length"],
    )  # fmt: skip
    if flags is not None:
        return flags
    if settings.given("profile"):
        return settings.profile
    raise UsageError(
        "a config has no positions per second of a session",
        hint="give --tokens-per-second 27, or --period 2s --prefill-tokens 28 --decode-tokens 25, "
        "or a --profile's load",
    )


def _trace_plan(settings: Settings, options: PredictFlags, conditions: dict[str, Any]) -> TracePlan:
    return TracePlan(
        options["trace"],
        run=options["trial"],
        time_column=options["time_column"],
        occupancy_column=options["occupancy_column"],
        fit_share=options["fit_share"],
        fit_until_s=options["fit_until"],
        session_length_s=settings["session_length"] if settings.given("session_length") else None,
        fail_within_s=options["fail_within"],
        fail_probability=options.get("fail_probability", DEFAULT_FAIL_PROBABILITY),
        **conditions,
    )


def _scrape_plan(settings: Settings, options: PredictFlags, conditions: dict[str, Any]) -> ScrapePlan:
    return ScrapePlan(
        options["metrics_url"],
        every_s=options["scrape_interval"] or (ONCE_INTERVAL_S if options["once"] else 1.0),
        once=bool(options["once"]),
        watch_s=options["watch_time"],
        fail_within_s=options["fail_within"],
        fail_probability=options.get("fail_probability", DEFAULT_FAIL_PROBABILITY),
        metric=options["occupancy_metric"],
        window_s=options["fit_window"] or 300.0,
        session_length_s=settings["session_length"] if settings.given("session_length") else None,
        **conditions,
    )


def _cards(settings: Settings, options: PredictFlags) -> GpuQuery:
    for name in options["gpu"]:
        find_gpu(name)
    if not (settings.given("profile") or options["model"]):
        raise UsageError(
            "--gpu needs a model",
            hint="give --profile, such as --profile moshi; `metronome profiles` lists them",
        )
    return GpuQuery(
        options["gpu"],
        settings.profile,
        settings["session_length"],
        measured=options["capacity_report"],
        memory_share=options.get("memory_utilization", DEFAULT_SHARE),
        confidence=options.get("confidence", DEFAULT_CONFIDENCE),
    )


def _fleet_question(settings: Settings, options: PredictFlags, conditions: dict[str, Any]) -> FleetQuery:
    return FleetQuery(
        arrivals_per_s=options["arrival_rate"],
        mean_call_s=options["mean_session_length"],
        peak_sessions=options["peak_sessions"],
        block=options.get("max_blocking", 0.01),
        headroom=options["headroom"] or 0.0,
        gpus_per_node=options["gpus_per_node"] or 1,
        gpus=options["gpus"],
        sessions_per_gpu=options["sessions_per_gpu"],
        capacity_report=options["capacity_report"],
        cards=_cards(settings, options) if options["gpu"] else None,
        **conditions,
    )
