"""Names that changed: options, settings, profile keys, metrics and values, each with its present name.

An old name is refused with the new one named. SYNONYMS are words of other load tools; they only give a hint.
"""

from __future__ import annotations

OPTIONS: dict[str, str] = {
    "engine": "backend", "engine-arg": "vllm-arg", "target": "url", "exhaustion": "on-pool-full", "pool": "kv-pool",
    "max-batch": "max-batch-size", "memory": "device-memory", "memory-share": "memory-utilization",
    "method": "search-method", "budget": "search-time", "guard": "admission-control", "offered": "offered-sessions",
    "trials": "repeat", "scrape": "metrics-url", "scrape-metric": "occupancy-metric", "metric": "occupancy-metric",
    "every": "scrape-interval", "watch": "watch-time", "served-model": "served-model-name",
    "seat-timeout": "ready-timeout", "ray": "ray-address", "prometheus": "prometheus-listen", "for": "duration",
    "when-full": "on-full", "batch": "batch-size", "stretch": "age-bucket", "spoken": "free-run-tokens",
    "streams": "text-sessions", "stream": "text-tokens", "turns": "questions-per-session",
    "margin": "perplexity-margin", "start-over": "ramp-up", "tokens-in": "prefill-tokens",
    "tokens-out": "decode-tokens", "turn": "turn-length", "seen-t-sat": "observed-fill-time",
    "occupied": "initial-occupancy", "run": "trial", "arrivals": "arrival-rate", "mean-call": "mean-session-length",
    "block": "max-blocking", "fail": "fail-on",
}  # fmt: skip
SYNONYMS: dict[str, tuple[str, ...]] = {  # in order; the first that the command has is named
    "users": ("sessions", "peak-sessions", "max-sessions"), "vus": ("sessions",), "clients": ("sessions",),
    "concurrency": ("sessions", "max-sessions"), "num-sessions": ("sessions", "max-sessions"),
    "seats": ("max-sessions", "sessions"), "slots": ("max-sessions",),
    "duration": ("session-length", "watch-time"), "length": ("session-length",), "time": ("search-time",),
    "timeout": ("search-time", "ready-timeout"), "rate": ("arrival-rate",), "rps": ("arrival-rate",),
    "qps": ("arrival-rate",), "spawn-rate": ("arrival-rate",), "request-rate": ("arrival-rate",),
    "base-url": ("url",), "endpoint": ("url",), "server": ("url",), "ws": ("url",), "uri": ("url",),
    "objective": ("slo",), "objectives": ("slo",), "threshold": ("slo",), "goodput": ("slo",),
    "kv-cache": ("kv-pool",), "kv-cache-memory": ("kv-pool",), "gpu-memory-utilization": ("memory-utilization",),
    "vram": ("device-memory",), "gpu-memory": ("device-memory",), "cache-policy": ("policy",),
    "ramp-up-period": ("ramp-up",), "out": ("output",), "output-dir": ("output",), "random-seed": ("seed",),
    "metrics": ("metrics-url",), "interval": ("scrape-interval",), "checkpoint": ("weights", "model"),
    "wav": ("audio",), "file": ("audio",), "repeats": ("repeat",), "threads": ("workers",),
    "processes": ("workers",), "headers": (), "quiet": ("ui",),
}  # fmt: skip
PREDICT_COMMANDS: dict[str, str] = {
    "trace": "predict trace FILE", "scrape": "predict watch URL", "metrics-url": "predict watch URL",
    "fleet": "predict fleet",
}  # fmt: skip
PROFILE_KEYS: dict[str, str] = {
    "tokens.into": "tokens.prefill", "tokens.out": "tokens.decode", "turns": "turn_taking",
    "turns.turn": "turn_taking.mean_turn", "turns.speaking_share": "turn_taking.speaking_share",
    "turn_taking.turn": "turn_taking.mean_turn", "pool": "kv_pool", "exhaustion": "on_pool_full",
    "max_batch": "max_batch_size", "head_tokens": "prompt_tokens", "block_tokens": "block_size",
    "frame.backlog_limit": "frame.max_backlog", "shape.context": "shape.context_length",
    "shape.hidden": "shape.hidden_size", "shape.mlp": "shape.intermediate_size", "shape.vocab": "shape.vocab_size",
}  # fmt: skip
METRICS: dict[str, str] = {"streak": "miss_streak", "lost_beat": "fell_behind", "t_sat": "fill_time"}
VALUES: dict[str, str] = {"tick": "periodic"}


def option(name: str) -> str | None:
    """The present name of an option, without dashes before it; None if `name` never was one."""
    return OPTIONS.get(name.replace("_", "-"))


def setting(key: str) -> str | None:
    """The present key of a setting; None if `key` never was one."""
    found = option(key)
    return found.replace("-", "_") if found else None


def profile_key(dotted: str) -> str | None:
    """The present name of a profile's key, such as "tokens.into" or "stages.talker.pool.block_tokens"."""
    if dotted in PROFILE_KEYS:
        return PROFILE_KEYS[dotted]
    parent, _, last = dotted.rpartition(".")
    if last not in PROFILE_KEYS or not parent.endswith("pool"):
        return None
    return f"{parent}.{PROFILE_KEYS[last]}"


def schema_hint(found: object, expected: str) -> str:
    """What to do about a file of format `found` where `expected` is read."""
    name, _, version = expected.partition("/")
    if found == f"{name}/1":
        return f"{found} became {expected}, in which fields have other names; write the file again with this version"
    return f"give a file of format {name}/{version}"
