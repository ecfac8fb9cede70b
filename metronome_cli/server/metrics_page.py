"""Metrics page of the reference server, under vLLM's metric names so that the same scraper reads both."""

from __future__ import annotations

import time

from metronome_cli.server.engine_loop import EngineLoop


def metrics_text(room: EngineLoop, started_at: float) -> str:
    """The Prometheus text. `started_at`: seconds since the epoch."""
    pool, profile = room.pool, room.profile
    assert profile.kv_pool is not None
    label = f'{{model_name="{profile.name}"}}'
    size = f'{{num_gpu_blocks="{pool.total_blocks}",block_size="{profile.kv_pool.block_size}"}}'
    rows = [
        ("vllm:kv_cache_usage_perc", "gauge", "Used share of the KV pool, 0 to 1.", label, pool.occupancy),
        ("vllm:num_requests_running", "gauge", "Sessions that are not waiting for a block.", label, pool.running),
        ("vllm:num_requests_waiting", "gauge", "Sessions that wait for a block.", label, pool.waiting),
        ("vllm:num_preemptions_total", "counter", "Sessions that gave up their blocks.", label, room.preemptions),
        ("vllm:generation_tokens_total", "counter", "Tokens delivered.", label, room.tokens),
        ("vllm:cache_config_info", "gauge", "The KV pool.", size, 1),
        ("process_start_time_seconds", "gauge", "Start of the server.", "", started_at),
    ]  # fmt: skip
    return "".join(
        f"# HELP {name} {text}\n# TYPE {name} {kind}\n{name}{labels} {value}\n"
        for name, kind, text, labels, value in rows
    )


def now() -> float:
    """Seconds since the epoch."""
    return time.time()
