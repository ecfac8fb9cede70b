"""Metric names of inference servers for pool occupancy, sessions, tokens and steps.

A session that waits for its next input counts neither as running nor as waiting there, and an engine that stalls
preempts nothing; so what is read is occupancy and delivered tokens.

- Names are compared with `:` and `_` alike: exporters and proxies rewrite one to the other.
- Several engines, workers or replicas have one series each: occupancies are kept apart by their labels, and the
  fullest one decides; sessions and tokens are summed.
- Stages of one pipeline (label `stage`) serve the same sessions: each session is counted once, by the server's own
  total or the busiest stage, and tokens are those of the first stage.
- A figure that is NaN, infinite or impossible is left out; its name is kept in `not_told`.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from metronome_cli.core.errors import UsageError
from metronome_cli.protocols.prometheus_text import MetricSample

TOLERANCE = 1e-6  # by which an occupancy may leave 0..1, for its rounding
_START = "process_start_time_seconds"
_SHARE = "name the gauge that holds the pool's used share, 0..1, with --occupancy-metric"
UNDERRUN_S = 0.1  # a gap in playback that a listener hears


@dataclass(frozen=True, slots=True)
class MetricNames:
    """One server's metric names, with `:` as `_`; of several the first that is there counts, older ones last."""

    server: str
    occupancy: tuple[str, ...] = ()
    running: tuple[str, ...] = ()
    waiting: tuple[str, ...] = ()
    delivered: tuple[str, ...] = ()
    prompt: str = ""
    preempted: str = ""
    step: str = ""  # a histogram of step times in seconds
    instead: str = ""  # what a server without occupancy offers


VLLM = MetricNames(
    "vLLM",
    ("vllm_kv_cache_usage_perc", "vllm_gpu_cache_usage_perc"),
    ("vllm_omni_num_requests_running", "vllm_num_requests_running"),
    ("vllm_omni_num_requests_waiting", "vllm_num_requests_waiting"),
    ("vllm_generation_tokens_total",),
    "vllm_prompt_tokens_total",
    "vllm_num_preemptions_total",
)
SGLANG = MetricNames(
    "SGLang",
    ("sglang_token_usage", "sglang_full_token_usage"),
    ("sglang_num_running_reqs",),
    ("sglang_num_queue_reqs",),
    ("sglang_generation_tokens_total",),
    "sglang_prompt_tokens_total",
    "sglang_num_retracted_requests_total",
)
TENSORRT_LLM = MetricNames(
    "TensorRT-LLM",
    ("trtllm_kv_cache_utilization",),
    ("trtllm_num_requests_running",),
    ("trtllm_num_requests_waiting",),
)
LMDEPLOY = MetricNames(
    "LMDeploy",
    ("lmdeploy_gpu_cache_usage_perc",),
    ("lmdeploy_num_requests_running",),
    ("lmdeploy_num_requests_waiting",),
    ("lmdeploy_generation_tokens_total",),
)
LLAMA_CPP = MetricNames(
    "llama.cpp",
    ("llamacpp_kv_cache_usage_ratio",),
    ("llamacpp_requests_processing",),
    ("llamacpp_requests_deferred",),
    ("llamacpp_tokens_predicted_total",),
    "llamacpp_prompt_tokens_total",
    instead="its newer versions count requests and tokens and no cache; its largest context so far is n_tokens_max",
)
TGI = MetricNames(
    "Text Generation Inference",
    running=("tgi_batch_current_size",),
    waiting=("tgi_queue_size",),
    instead="it counts requests in the batch and in the queue",
)
MOSHI_SERVER = MetricNames(
    "moshi-server",
    running=("asr_open_channels", "tts_open_channels"),
    step="asr_model_step_duration",
    instead="it allocates its caches when it starts; its open channels and the time of its steps are read",
)
KNOWN = (VLLM, SGLANG, TENSORRT_LLM, LMDEPLOY, LLAMA_CPP, TGI, MOSHI_SERVER)


@dataclass(frozen=True, slots=True)
class PlaybackGaps:
    """How often and how long audio came too late to be played without a gap, since the server started."""

    count: int
    mean_s: float | None
    over: int | None  # gaps longer than UNDERRUN_S; None: no such bucket


@dataclass(frozen=True, slots=True)
class ServerReading:
    """One scrape: occupancy of each engine by its labels, and sums over engines. None: not exported."""

    server: str
    metric: str
    occupancy: dict[str, float]
    running: float | None = None
    waiting: float | None = None
    delivered: float | None = None  # tokens since the server started
    prompt: float | None = None  # prompt tokens since the server started
    started: float | None = None  # start of the server, as it reports
    pool_tokens: float | None = None
    preempted: float | None = None  # since the server started
    step_s: float | None = None  # sum of the times of all steps since then
    steps: float | None = None
    gaps: PlaybackGaps | None = None
    not_told: tuple[str, ...] = field(default=())  # figures that were NaN, infinite or impossible

    @property
    def told(self) -> dict[str, float]:
        """The occupancies that are numbers."""
        return {key: value for key, value in self.occupancy.items() if math.isfinite(value)}


def read_any(
    samples: Sequence[MetricSample], metric: str | None = None, where: str = "scrape"
) -> ServerReading:
    """As `read`, and a known server without a pool to show has a reading without occupancy. Raises UsageError
    if no server is known by its names.
    """
    page = _Page.of(samples)
    if metric is None and not any(name in page.by_name for known in KNOWN for name in known.occupancy):
        for known in KNOWN:
            if any(name in page.by_name for name in known.running):
                return _reading(page, known, None, where)
    return read(samples, metric, where)


def read(samples: Sequence[MetricSample], metric: str | None = None, where: str = "scrape") -> ServerReading:
    """Find the occupancy. `metric` names it for servers not known here. Raises UsageError if it is not there."""
    page = _Page.of(samples)
    if metric is not None:
        if _plain(metric) not in page.by_name:
            raise _missing([metric], page, where)
        occupancy = page.occupancy(_plain(metric), where)
        return ServerReading(
            "server", metric, occupancy, started=page.first(_START), not_told=tuple(page.not_told)
        )
    for known in KNOWN:
        for candidate in known.occupancy:
            if candidate in page.by_name:
                return _reading(page, known, candidate, where)
    raise _missing([name for known in KNOWN for name in known.occupancy[:1]], page, where)


@dataclass(slots=True)
class _Page:
    """Group samples by name, with `:` read as `_`."""

    by_name: Mapping[str, list[MetricSample]]
    not_told: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, samples: Sequence[MetricSample]) -> _Page:
        by_name: dict[str, list[MetricSample]] = defaultdict(list)
        for sample in samples:
            by_name[_plain(sample.name)].append(sample)
        return cls(dict(by_name))

    def occupancy(self, name: str, where: str) -> dict[str, float]:
        """Each series by its labels; NaN for one without a usable value. Raises UsageError for one outside 0..1."""
        found = {_key(sample): sample.value for sample in self.by_name.get(name, [])}
        for value in found.values():
            if math.isfinite(value) and not -TOLERANCE <= value <= 1 + TOLERANCE:
                shown = self.by_name[name][0].name
                raise UsageError(f"{where}: {shown} is {value:g}, which lies outside 0..1", hint=_SHARE)
        if any(not math.isfinite(value) for value in found.values()):
            self._note(self.by_name[name][0].name)
        return {key: value if math.isfinite(value) else math.nan for key, value in found.items()}

    def first(self, *names: str) -> float | None:
        """The sum over engines of the first of these that is there: sessions, which stages share."""
        by_stage = self._by_stage(*names)
        return max(by_stage.values()) if by_stage else None

    def first_stage(self, *names: str) -> float | None:
        """The same of the first stage, for tokens."""
        by_stage = self._by_stage(*names)
        return by_stage[min(by_stage, key=_order)] if by_stage else None

    def bucket(self, name: str, least: float) -> float | None:
        """Observations of a histogram at or below `least`."""
        found = [
            s for s in self.by_name.get(f"{name}_bucket", []) if _is_number(s.labels.get("le", ""), least)
        ]
        return sum(sample.value for sample in found) if found else None

    def _by_stage(self, *names: str) -> dict[str, float]:
        name = next((name for name in names if name and name in self.by_name), None)
        sums: dict[str, float] = {}
        for sample in self.by_name.get(name or "", []):
            if not math.isfinite(sample.value) or sample.value < 0:
                self._note(sample.name)
                return {}
            stage = sample.labels.get("stage", "")
            sums[stage] = sums.get(stage, 0.0) + sample.value
        return sums

    def _note(self, name: str) -> None:
        if name not in self.not_told:
            self.not_told.append(name)


def _reading(page: _Page, known: MetricNames, metric: str | None, where: str) -> ServerReading:
    shown = page.by_name[metric or next(name for name in known.running if name in page.by_name)][0].name
    return ServerReading(
        server=known.server,
        metric=shown,
        occupancy=page.occupancy(metric, where) if metric else {},
        running=page.first(*known.running),
        waiting=page.first(*known.waiting),
        delivered=page.first_stage(*known.delivered),
        prompt=page.first_stage(known.prompt),
        started=page.first(_START),
        pool_tokens=_pool_tokens(page),
        preempted=page.first(known.preempted),
        step_s=page.first(f"{known.step}_sum") if known.step else None,
        steps=page.first(f"{known.step}_count") if known.step else None,
        gaps=_gaps(page),
        not_told=tuple(page.not_told),
    )


def _gaps(page: _Page) -> PlaybackGaps | None:
    name = "vllm_omni_audio_underrun_s"
    count, total = page.first(f"{name}_count"), page.first(f"{name}_sum")
    if count is None:
        return None
    within = page.bucket(name, UNDERRUN_S)
    mean = total / count if total is not None and count else None
    return PlaybackGaps(round(count), mean, None if within is None else round(count - within))


def _pool_tokens(page: _Page) -> float | None:
    """Return the size of one engine's pool in tokens, if the server reports it."""
    if (stated := page.first("sglang_max_total_num_tokens")) is not None:
        return stated
    for sample in page.by_name.get("vllm_cache_config_info", []):
        blocks, size = sample.labels.get("num_gpu_blocks", ""), sample.labels.get("block_size", "")
        if blocks.isdecimal() and size.isdecimal() and len(blocks + size) < 30:
            return float(int(blocks) * int(size))
    return None


def _plain(name: str) -> str:
    return name.replace(":", "_")


def _key(sample: MetricSample) -> str:
    return ",".join(f"{name}={value}" for name, value in sorted(sample.labels.items()))


def _order(stage: str) -> tuple[float, str]:
    return (float(stage) if stage.isdecimal() and len(stage) < 10 else math.inf, stage)


def _is_number(text: str, value: float) -> bool:
    try:
        return math.isclose(float(text), value)
    except ValueError:
        return False


def _missing(wanted: Sequence[str], page: _Page, where: str) -> UsageError:
    """Error for metrics without an occupancy; names the server and what it exports instead."""
    for known in KNOWN:
        if any(name in page.by_name for name in known.running):
            figures = [
                f"{samples[0].name} {samples[0].value:g}"
                for name, samples in page.by_name.items()
                if name in (*known.running, *known.waiting, *known.delivered)
            ]
            instead = f"; {known.instead}" if known.instead else ""
            return UsageError(
                f"{where}: {known.server} exports no cache occupancy{instead}; there are {', '.join(figures)}",
                hint=_SHARE,
            )
    names = {samples[0].name for samples in page.by_name.values()}
    near = sorted(name for name in names if any(word in name for word in ("cache", "usage", "kv")))[:6]
    there = f"; there are {', '.join(near)}" if near else f"; {len(names)} other metrics are there"
    return UsageError(
        f"{where}: no occupancy among its metrics (looked for {', '.join(wanted)}){there}", hint=_SHARE
    )
