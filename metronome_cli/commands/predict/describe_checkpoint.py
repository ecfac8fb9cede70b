"""`predict --model` without a load: describes one session from a checkpoint's configuration."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from metronome_cli.commands.predict.cache_part import cache_part
from metronome_cli.config.cache_groups import describe_groups
from metronome_cli.forecast.checkpoint_config.read_config import DecoderConfig, read_checkpoint_config
from metronome_cli.results.forecast_result import Forecast, Interval
from metronome_cli.results.report_draft import ReportDraft
from metronome_cli.results.run_report import Report

NO_LOAD = "no load and no memory are given, so nothing is forecast"


def describe_checkpoint(
    path: Path, argv: tuple[str, ...] = (), settings: dict[str, Any] | None = None
) -> Report:
    """Return cache, context and rotary base. Raises UsageError naming the file and the key."""
    decoder, file = read_checkpoint_config(path)
    forecast = Forecast(
        source="config",
        fill_time_s=Interval(estimate=None, low=None, high=None),
        collapse_probability=None,
        limited_by="none",
        max_sessions=None,
        fitting_window_tokens=None,
        reason=NO_LOAD,
        cache=cache_part(decoder.groups),
        context_length=decoder.context,
        rope_theta=decoder.rope_theta,
        assumptions=[f"shape from {file.name}", *decoder.notes],
        details={
            "parameters": decoder.parameters,
            "active_parameters": decoder.active,
            "layers": decoder.layers,
        },
    )
    return ReportDraft(argv, settings or {}).report(_sentence(decoder), forecast=forecast)


def _sentence(decoder: DecoderConfig) -> str:
    context = "not in the file" if decoder.context is None else f"{decoder.context:,} positions"
    weights = (
        "of unknown size"
        if decoder.parameters is None
        else f"{decoder.parameters / 1e9:.3g} billion parameters"
    )
    return (
        f"A session's cache {describe_groups(decoder.groups)}. Context: {context}. Decoder: {weights}. "
        "Give --tokens-per-second, --sessions and --device-memory for a forecast."
    )
