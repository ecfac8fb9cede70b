"""What vLLM, SGLang and moshi-server call their pool's occupancy, their sessions, tokens and steps.

A session that waits for its next input counts neither as running nor as waiting there, and an engine that
stalls preempts nothing; so what is read is occupancy and delivered tokens. A server with several engines
has one series each; they are kept apart by their labels, and the fullest one decides. moshi-server allocates
its caches when it starts and has no pool to show: its open channels and the time of its steps are read.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from metronome_cli.core.errors import UsageError
from metronome_cli.forecast.occupancy_trace import SLACK
from metronome_cli.protocols.prometheus_text import MetricSample

_START = "process_start_time_seconds"
_SHARE = "name the gauge that holds the pool's used share, 0..1, with --metric"


@dataclass(frozen=True, slots=True)
class ServerMetricNames:
    """One server's metric names; of `occupancy` the first that is there counts, older ones last."""

    server: str
    occupancy: tuple[str, ...]
    running: str
    waiting: str
    delivered: str
    preempted: str = ""
    step: str = ""  # a histogram of step times in seconds


VLLM = ServerMetricNames(
    "vLLM",
    ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"),
    "vllm:num_requests_running",
    "vllm:num_requests_waiting",
    "vllm:generation_tokens_total",
    "vllm:num_preemptions_total",
)
SGLANG = ServerMetricNames(
    "SGLang",
    ("sglang:token_usage",),
    "sglang:num_running_reqs",
    "sglang:num_queue_reqs",
    "sglang:generation_tokens_total",
    "sglang:num_retracted_requests_total",
)
MOSHI_SERVER = ServerMetricNames(
    "moshi-server", (), "asr_open_channels", "", "", step="asr_model_step_duration"
)


@dataclass(frozen=True, slots=True)
class ServerReading:
    """One scrape: occupancy of each engine by its labels, and sums over engines. None: not exported."""

    server: str
    metric: str
    occupancy: dict[str, float]
    running: float | None = None
    waiting: float | None = None
    delivered: float | None = None  # tokens since the server started
    started: float | None = None  # its start, as it says
    pool_tokens: float | None = None
    preempted: float | None = None  # since the server started
    step_s: float | None = None  # sum of the times of all steps since then
    steps: float | None = None


def read_any(
    samples: Sequence[MetricSample], metric: str | None = None, where: str = "scrape"
) -> ServerReading:
    """As `read`, and a server without a pool to show has a reading without occupancy. Raises UsageError when
    nothing is known.
    """
    if metric is None and any(sample.name == MOSHI_SERVER.running for sample in samples):
        return _reading(samples, MOSHI_SERVER, None, where)
    return read(samples, metric, where)


def read(samples: Sequence[MetricSample], metric: str | None = None, where: str = "scrape") -> ServerReading:
    """Find the occupancy. `metric` names it for servers not known here. Raises UsageError when it is not
    there.
    """
    names = {sample.name for sample in samples}
    if metric is not None:
        if metric not in names:
            raise _missing([metric], names, where)
        return ServerReading("server", metric, _series(samples, metric, where), started=_sum(samples, _START))
    for known in (VLLM, SGLANG):
        for candidate in known.occupancy:
            if candidate in names:
                return _reading(samples, known, candidate, where)
    raise _missing([*VLLM.occupancy, *SGLANG.occupancy], names, where)


def _reading(
    samples: Sequence[MetricSample], known: ServerMetricNames, metric: str | None, where: str
) -> ServerReading:
    return ServerReading(
        server=known.server,
        metric=metric or known.running,
        occupancy=_series(samples, metric, where) if metric else {},
        running=_sum(samples, known.running),
        waiting=_sum(samples, known.waiting),
        delivered=_sum(samples, known.delivered),
        started=_sum(samples, _START),
        pool_tokens=_pool_tokens(samples),
        preempted=_sum(samples, known.preempted),
        step_s=_sum(samples, f"{known.step}_sum"),
        steps=_sum(samples, f"{known.step}_count"),
    )


def _series(samples: Sequence[MetricSample], metric: str, where: str) -> dict[str, float]:
    found = {_key(sample): sample.value for sample in samples if sample.name == metric}
    for value in found.values():
        if math.isfinite(value) and not -SLACK <= value <= 1 + SLACK:
            raise UsageError(f"{where}: {metric} is {value:g}, which lies outside 0..1", hint=_SHARE)
    return found


def _key(sample: MetricSample) -> str:
    return ",".join(f"{name}={value}" for name, value in sorted(sample.labels.items()))


def _sum(samples: Sequence[MetricSample], name: str) -> float | None:
    values = [sample.value for sample in samples if sample.name == name]
    return sum(values) if values else None


def _pool_tokens(samples: Sequence[MetricSample]) -> float | None:
    """The pool of one engine, in tokens, where the server says it."""
    for sample in samples:
        if sample.name == "sglang:max_total_num_tokens":
            return sample.value
        if sample.name == "vllm:cache_config_info":
            blocks, size = sample.labels.get("num_gpu_blocks", ""), sample.labels.get("block_size", "")
            if blocks.isdecimal() and size.isdecimal() and len(blocks + size) < 30:
                return float(int(blocks) * int(size))
    return None


def _missing(wanted: Sequence[str], names: set[str], where: str) -> UsageError:
    near = sorted(name for name in names if any(word in name for word in ("cache", "usage", "kv")))[:6]
    there = f"; there are {', '.join(near)}" if near else f"; {len(names)} other metrics are there"
    return UsageError(
        f"{where}: no occupancy among its metrics (looked for {', '.join(wanted)}){there}",
        hint=_SHARE,
    )
