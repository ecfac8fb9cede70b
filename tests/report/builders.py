"""Reports as runs make them: figures are made up, their shape is not."""

import math
from datetime import UTC, datetime

from metronome_cli.results.audio_files import AudioFile, AudioFiles, RefusedAudioFile
from metronome_cli.results.capacity_result import Capacity, TrialResult
from metronome_cli.results.forecast_result import (
    FleetPlan,
    FleetSize,
    Forecast,
    GpuEstimate,
    HazardForecast,
    Interval,
    MemoryLine,
)
from metronome_cli.results.latency_result import (
    DeadlineLimit,
    DevicePeaksResult,
    GridCellResult,
    PolicyCost,
    ProbeResult,
)
from metronome_cli.results.load_generator import LoadGeneratorStats
from metronome_cli.results.measured import Collapse, LatencyMs, ObjectiveResult, Window
from metronome_cli.results.policy_runs import PolicyRun, RepeatSeries
from metronome_cli.results.quality_result import (
    AnsweredTurns,
    BreakdownResult,
    EstimateResult,
    FreeRunByAge,
    PerplexityByAge,
    QualityResult,
    QualityVariant,
    Recommended,
)
from metronome_cli.results.run_report import Report

STARTED = datetime(2026, 7, 2, 12, 0, tzinfo=UTC)
DEADLINE_MS = 80.0
ENVIRONMENT = {
    "metronome": "0.1.0",
    "python": "3.11.7",
    "implementation": "CPython",
    "packages": {"torch": "2.13.0", "transformers": "5.24.0", "numpy": "2.4.6"},
    "os": "Debian GNU/Linux 12 (bookworm)",
    "kernel": "Linux 6.1.0",
    "machine": "x86_64",
    "cpu": "Example Processor 9000",
    "cores": 2,
    "memory_bytes": 16 * 2**30,
    "devices": [],
    "torch_threads": 2,
}
PROFILE = {
    "name": "default",
    "title": "Built-in speech model",
    "frame": {"period": 0.08, "deadline": None, "sample_rate": 16000, "max_backlog": 25},
    "policy": "window(256, 16)",
    "session_length": 600.0,
    "verified": True,
    "unverified": [],
    "objectives": ["p99<80ms", "misses<1%", "empty<1%"],
}
SETTINGS = {
    "search_method": {"value": "ramp", "from": "default"},
    "session_length": {"value": 600.0, "from": "profile default"},
    "batching": {"value": "continuous", "from": "default"},
    "slo": {"value": ["p99<80ms"], "from": "flag --slo"},
}


def objective(text="p99<80ms", verdict="pass", measured=61.0, limit=80.0, unit="ms", **changes):
    return ObjectiveResult(
        objective=text, verdict=verdict, measured=measured, limit=limit, unit=unit, confidence=0.99, **changes
    )


def window(t_s, sessions, p99, occupancy=0.4, **changes):
    given = {
        "t_s": t_s, "occupancy": occupancy, "running": sessions, "waiting": 0, "sessions": sessions,
        "p50_ms": p99 * 0.7, "p99_ms": p99, "max_ms": p99 * 1.1, "frames": sessions * 12, **changes,
    }  # fmt: skip
    return Window(**given)


def p99_at(sessions):
    """A step time that grows with the batch: 24 sessions hold 80 ms, 25 do not."""
    return 12 + 2.0 * sessions + 0.032 * sessions**2


def point(sessions=24, verdict="pass", role="confirm", steps=1200, **changes):
    p99 = p99_at(sessions)
    misses = 0 if verdict == "pass" else steps // 10
    given = {
        "sessions": sessions,
        "verdict": verdict,
        "purpose": role,
        "policy": "window(256, 16)",
        "limited_by": "none" if verdict == "pass" else "deadline",
        "ended_by": "completed" if verdict == "pass" else "objective_failed",
        "frames": steps * 4,
        "batches": steps,
        "misses": misses,
        "late_batches": misses,
        "latency_ms": LatencyMs(p50=p99 * 0.7, p90=p99 * 0.9, p99=p99, p999=p99 * 1.05, max=p99 * 1.1),
        "occupancy_max": sessions / 58,
        "stages_ms": {"encode": p99 * 0.15, "prefill": p99 * 0.2, "decode": p99 * 0.35},
        "duration_s": 96.0,
        "load_generator_lateness_ms_p99": 0.4,
        "objectives": [
            objective(verdict=verdict, measured=p99),
            objective("empty<1%", measured=0.0, limit=0.01, unit="fraction"),
        ],
        "windows": [
            window(t, sessions, p99 + 3 * math.sin(t), sessions / 58 * min(1, t / 20)) for t in range(1, 60)
        ],
        **changes,
    }
    return TrialResult(**given)


def report(**changes):
    given = {
        "command": "capacity",
        "status": "complete",
        "verdict": "pass",
        "exit_code": 0,
        "summary": "Safe concurrency: 24 sessions for 10 min (p99 latency 78 ms < 80 ms, 0 misses in 4,800 frames "
        "of 1,200 batches, 99 % confidence; KV pool 41 % full). Limited by: deadline. 25 sessions fail: p99 82 ms.",
        "clock": "virtual",
        "started_at": STARTED,
        "duration_s": 41.5,
        "argv": ["metronome", "capacity"],
        "version": "0.1.0",
        "seed": 0,
        "profile": PROFILE,
        "environment": ENVIRONMENT,
        "weights": "random",
        "settings": SETTINGS,
        "backend": {"device": "cpu", "path": "fast", "weights": "random", "pool_bytes": 2**27},
        **changes,
    }
    return Report(**given)


def ramp():
    caps = [4, 8, 12, 16, 20, 24, 28, 23, 27, 22]
    return [
        window(
            float(t), cap, p99_at(cap), cap / 58,
            session_limit=float(cap) + 0.5, misses=max(0, cap - 25), shed=max(0, cap - 27),
        )
        for t, cap in enumerate(caps, start=1)
    ]  # fmt: skip


def capacity_report(safe=24, **changes):
    """A search that ended: ramp, looks, confirmation, the step that fails."""
    points = [
        point(safe + 8, "fail", "screen", 120),
        point(safe - 4, "pass", "screen", 120),
        point(safe, "pass", "confirm"),
        point(safe + 1, "fail", "exceed", reason="p99 93 ms"),
    ]
    capacity = Capacity(
        safe_sessions=safe,
        lowest_failing_sessions=safe + 1,
        limited_by="deadline",
        session_length_s=600.0,
        method="ramp",
        slowest_stage="decode",
        memory_ceiling_sessions=58,
        controller={"target": 0.7, "increase": 4.0, "decrease": 0.85},
        ramp_windows=ramp(),
        trials=points,
    )
    given = {
        "capacity": capacity,
        "objectives": points[2].objectives,
        "load_generator": LoadGeneratorStats(lateness_ms_p99=0.4, on_time=True),
        "audio": AudioFiles(
            files_used=[
                AudioFile(file="call.wav", seconds=31.0),
                AudioFile(file="quiet.flac", seconds=12.5, notes=["silent throughout"]),
            ],
            files_refused=[RefusedAudioFile(file="noise.mp3", reason="no audio in it")],
        ),
        **changes,
    }
    return report(**given)


def collapse_windows(sessions=16, full_s=40, until_s=52):
    """On time all the way, and empty from the instant at which the pool is full."""
    for t in range(1, until_s):
        full = t >= full_s
        yield window(
            float(t), sessions, 5.0 if full else 42.0, min(1.0, t / full_s),
            running=0 if full else sessions, waiting=sessions if full else 0,
            empty_frames=sessions * 12 if full else 0,
        )  # fmt: skip


def collapse(full_s=40.0, sessions=16):
    return Collapse(
        t_s=full_s,
        occupancy=1.0,
        running=0,
        waiting=sessions,
        last_output_s=full_s - 0.1,
        last_output_period=499,
    )


def collapse_report(**changes):
    """One number of sessions on an unbounded cache: the pool fills, every session falls silent."""
    failing = point(
        16, "fail", "single",
        policy="unbounded", misses=0, late_batches=0, empty_frames=2304, occupancy_max=1.0, limited_by="memory",
        ended_by="pool_full", pool_full_at_s=40.0, collapse=collapse(), windows=list(collapse_windows()),
        reason="the KV pool was full at 40.0 s; no session produced output",
        objectives=[objective(measured=42.0), objective("empty<1%", "fail", 0.23, 0.01, "fraction")],
    )  # fmt: skip
    capacity = Capacity(
        lowest_failing_sessions=16,
        limited_by="memory",
        session_length_s=120.0,
        method="single",
        trials=[failing],
    )
    given = {
        "verdict": "fail",
        "exit_code": 3,
        "summary": "Fail: 16 sessions for 2 min: the KV pool was full at 40.0 s; no session produced output.",
        "capacity": capacity,
        "objectives": failing.objectives,
        **changes,
    }
    return report(**given)


def policy_report(**changes):
    steady = [window(float(t), min(t, 24), p99_at(min(t, 24)), 0.4, session_limit=26.0) for t in range(1, 52)]
    policy_runs = [
        PolicyRun(name="windowed", policy="window(256, 16)", mean_sessions_mid_run=24.0, collapsed=False,
            occupancy_max=0.41, windows=steady),
        PolicyRun(name="unbounded", policy="unbounded", mean_sessions_mid_run=24.0, collapsed=True, collapse=collapse(),
            sessions_lost=24, occupancy_max=1.0, windows=list(collapse_windows(24))),
        PolicyRun(name="unbounded, memory guard", policy="unbounded", admission_control="memory",
                  mean_sessions_mid_run=11.0,
            collapsed=False, occupancy_max=0.97, filled_share=0.94, windows=steady),
    ]  # fmt: skip
    trials = [
        RepeatSeries(policy="unbounded", sessions=16, session_length_s=60.0, repeats=20, collapsed=14,
                     collapsed_share_low=0.49,
               collapsed_share_high=0.86, forecast_probability=0.66, pool_full_at_s=[55.0] * 14 + [None] * 6),
        RepeatSeries(policy="window(256, 16)", sessions=16, session_length_s=60.0, repeats=20, collapsed=0,
               collapsed_share_low=0.0, collapsed_share_high=0.14, forecast_probability=0.0,
               pool_full_at_s=[None] * 20),
    ]  # fmt: skip
    return capacity_report(policy_runs=policy_runs, repeats=trials, **changes)


def forecast_report(**changes):
    forecast = Forecast(
        sessions=128,
        session_length_s=300.0,
        fill_time_s=Interval(estimate=148.0, low=131.0, high=167.0),
        collapse_probability=0.97,
        limited_by="memory",
        max_sessions=61,
        max_sessions_limited_by="memory",
        fitting_window_tokens=2048,
        confidence=0.95,
        hazards=[
            HazardForecast(
                name="pool", mean_growth_time_s=146.0, fill_time_s=Interval(estimate=148.0, low=131.0, high=167.0),
                collapse_probability=0.97, blocks=30000,
            ),
            HazardForecast(
                name="context", fill_time_s=Interval(estimate=None, low=None, high=None), collapse_probability=0.0
            ),
        ],
        memory=[
            MemoryLine(what="device memory", bytes=80 * 2**30, how="as given"),
            MemoryLine(what="weights", bytes=-60 * 2**30, how="2 bytes a parameter"),
        ],
        fill_rate_per_s=0.0066,
        occupancy=0.02,
        assumptions=["turns of 8 s, half of the time spoken by the model"],
    )  # fmt: skip
    gpus = [
        GpuEstimate(
            gpu="h100", title="H100 80 GB", memory_bytes=80 * 2**30, memory_sessions=61,
            deadline_sessions=Interval(estimate=190.0, low=120.0, high=300.0),
            sessions=Interval(estimate=61.0, low=61.0, high=61.0), limited_by="memory", spread=1.6, how="bandwidth",
        )
    ]  # fmt: skip
    fleet = FleetPlan(
        offered_erlangs=900.0, sessions_per_gpu=61, sessions_per_gpu_source="forecast", headroom=0.1,
        gpus_per_node=8, max_blocking=0.01, gpus_needed=18, gpus_with_spare_node=26,
        sizes=[
            FleetSize(gpus=n, slots=54 * n, utilisation=0.9, blocking=0.01, random_routing_blocking=0.02,
                      node_down_blocking=0.3, sessions_lost_with_node=400.0, readmitted_share=0.2)
            for n in (17, 18, 19)
        ],
    )  # fmt: skip
    given = {
        "command": "predict",
        "verdict": None,
        "clock": None,
        "weights": None,
        "summary": "128 sessions fill the pool after 148 s (131 s to 167 s): before they end at 5 min.",
        "forecast": forecast,
        "gpus": gpus,
        "fleet": fleet,
        **changes,
    }
    return report(**given)


def probe_report(**changes):
    """What a step costs: flat in age on a window, growing without one, one cell that did not fit."""
    cells = []
    for policy, per_minute in (("window(256, 16)", 0.0), ("unbounded", 0.4)):
        for sessions in (1, 8, 16):
            for minute in (1, 10, 60):
                fits = policy != "unbounded" or sessions * minute < 500
                median = 5.0 + 0.8 * sessions + per_minute * minute * sessions / 16
                cells.append(
                    GridCellResult(
                        policy=policy, sessions=sessions, age_s=60.0 * minute, resident_tokens=272, steps=60 * fits,
                        median_ms=median if fits else None, median_relative_error=0.02 if fits else None,
                        skipped=None if fits else "the pool does not hold it",
                    )
                )  # fmt: skip
    costs = [
        PolicyCost(
            policy="window(256, 16)", fixed_ms=5.0, per_session_ms=0.8, per_1000_tokens_ms=0.1, fit_relative_rmse=0.03,
            age_ratio=1.01, age_ratio_low=0.98, age_ratio_high=1.04, age_independent=True,
            deadline_limits=[DeadlineLimit(age_s=3600.0, sessions=93, extrapolated=True)],
        ),
        PolicyCost(policy="unbounded", age_ratio=2.4, age_independent=False),
    ]  # fmt: skip
    given = {
        "command": "probe",
        "verdict": None,
        "summary": "window(256, 16): flat in age (x1.01); at 1 h a step fits 80 ms with 93 sessions, extrapolated.",
        "probe": ProbeResult(
            kind="latency",
            cells=cells,
            policies=costs,
            time_breakdown=["encoder: 40 %", "attention: 12 %"],
            device_peaks=DevicePeaksResult(
                bytes_per_s=4e10,
                flops_per_s=2e11,
                weight_bytes=10**8,
                weight_read_floor_ms=2.5,
                share_of_bandwidth=0.6,
                share_of_compute=1.2,
            ),
        ),
        **changes,
    }
    return report(**given)


def quality_report(**changes):
    """A window that was shown to be as good, one that lost, one whose sinks stay behind and break."""
    ages = [0, 2000, 4000, 6000, 8000, 10_000]
    healthy = [12.0, 10.0, 11.0, 10.5, 9.0, 9.5]

    def variant(name, sinks, factor, standing, **more):
        by_age = [
            PerplexityByAge(age=age, tokens=2000, perplexity=value * factor)
            for age, value in zip(ages, healthy, strict=True)
        ]
        spoken = [
            FreeRunByAge(
                age=age, repetition=0.1, distinct_1=0.6, distinct_2=0.9, entropy=2.5, pinned_repetition=0.01
            )
            for age in (0, 128, 256)
        ]
        bounded = name != "unbounded"
        return QualityVariant(
            **{
                "name": name, "policy": name.split(", a")[0], "window": 256 * bounded, "sinks": sinks,
                "sink_positions": "absolute" if "absolute" in name else "rolling",
                "bytes_per_session": 12 * 2**20 if bounded else None, "tested_up_to_tokens": 12_001,
                "perplexity": 10.4 * factor, "by_age": by_age, "free_run": spoken, "standing": standing,
                "excess_loss_nats": interval_of(math.log(factor), 0.01) if bounded else None,
                "turns": AnsweredTurns(
                    turns=32, keywords=EstimateResult(value=0.5, low=0.36, high=0.64),
                    ended=EstimateResult(value=1.0, low=0.92, high=1.0), reference_loss=interval_of(1.2, 0.2),
                    agreement=interval_of(0.8, 0.1) if bounded else None,
                ),
                "why": f"text: perplexity {100 * (factor - 1):+.1f} %" if bounded else "", **more,
            }
        )  # fmt: skip

    broke = BreakdownResult(age=10_000, how="predicts the text half as well as before")
    variants = [
        variant("unbounded", 0, 1.0, "baseline", text_breakdown=broke),
        variant("window(256, 0)", 0, 1.9, "worse"),
        variant("window(256, 4)", 4, 1.02, "equivalent"),
        variant(
            "window(256, 4), absolute", 4, 1.03, "breaks_down", text_breakdown=broke, free_run_breakdown=broke
        ),
    ]
    variants[-1].by_age[-1].perplexity = 380.0
    best = Recommended(
        name="window(256, 4)",
        bytes_per_session=12 * 2**20,
        tested_up_to_tokens=12_001,
        compared_up_to_tokens=8192,
        why="text",
    )
    part = QualityResult(
        model="a small model", text="a.txt", text_tokens=36_003, text_sessions=3, questions=24, sessions=4,
        context=8192, age_bucket_tokens=2000, margin=math.log(1.05), variants=variants, recommended=best,
    )  # fmt: skip
    given = {
        "command": "probe",
        "verdict": None,
        "summary": "Smallest that cannot be told from unbounded (within 5 %): window(256, 4).",
        "weights": "a checkpoint",
        "probe": ProbeResult(kind="quality", quality=part),
        **changes,
    }
    return report(**given)


def interval_of(value, half):
    return EstimateResult(value=value, low=value - half, high=value + half)


def nothing_report(**changes):
    """Interrupted before anything was measured."""
    given = {
        "status": "interrupted",
        "verdict": "inconclusive",
        "exit_code": 130,
        "summary": "Interrupted before anything was measured.",
        "profile": None,
        "environment": {},
        "settings": {},
        "backend": {},
        "weights": None,
        "capacity": Capacity(session_length_s=600.0, method="ramp"),
        **changes,
    }
    return report(**given)


def every_report():
    """One of each kind, by name."""
    return {
        "capacity": capacity_report(),
        "collapse": collapse_report(),
        "policy_runs": policy_report(),
        "forecast": forecast_report(),
        "probe": probe_report(),
        "quality": quality_report(),
        "nothing": nothing_report(),
    }
