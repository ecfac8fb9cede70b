"""Arguments of vLLM's engine: the profile's pool, context and policy, overridden by the user's own arguments.

`--vllm-arg key=value` sets any argument of vLLM's engine; dashes and underscores are equivalent. The value is parsed as
YAML, so `true`, `4` and `{"a": 1}` are a boolean, a number and a mapping. Arguments for parallelism and several
machines are passed on unchanged.
"""

from __future__ import annotations

import math
import os
from collections.abc import Collection, Iterable, Mapping, MutableMapping
from typing import Any

import yaml

from metronome_cli.config.cache_groups import DTYPE_BYTES
from metronome_cli.config.cache_policy import CachePolicySpec
from metronome_cli.config.profile import Profile
from metronome_cli.config.validation import unknown_hint
from metronome_cli.core.errors import UsageError

Arguments = dict[str, Any]
OWN = {"model": "--model or --weights", "hf_overrides": "--policy, or sliding_window here"}
SIZES_THE_POOL = ("num_gpu_blocks_override", "gpu_memory_utilization", "kv_cache_memory_bytes")
MAX_SLOTS = 1024  # our choice; vLLM allocates a row per slot
CPU_SPACE = "VLLM_CPU_KVCACHE_SPACE"  # GiB, whole
_NULL_BLOCK = 1  # blocks that vLLM reserves for itself


def read_arguments(texts: Iterable[str]) -> Arguments:
    """Parse "key=value" texts; a later one overrides an earlier. Raises UsageError."""
    return dict(_read(text) for text in texts)


def _read(text: str) -> tuple[str, Any]:
    key, _, value = text.partition("=")
    name = key.strip().lstrip("-").replace("-", "_")
    if name == "model":
        raise UsageError(f"--vllm-arg {text}: metronome sets {name}", hint=f"use {OWN[name]}")
    try:
        return name, yaml.safe_load(value)
    except (yaml.YAMLError, ValueError):  # for example a number that is too long or an invalid date
        return name, value


def check_known(given: Mapping[str, Any], known: Collection[str]) -> None:
    """Raise UsageError for an argument that vLLM's engine does not accept."""
    for name in given:
        if name not in known:
            raise UsageError(f"--vllm-arg {name}: vLLM has no such argument", hint=unknown_hint(name, known))


def fitted(profile: Profile, given: Mapping[str, Any], block_multiple: int = 1) -> Profile:
    """Return the profile with vLLM's block size and context, and without a pool if vLLM sizes it itself.

    Blocks are a multiple of `block_multiple` positions; a pool in blocks keeps its positions.
    """
    shape, pool = profile.shape, profile.kv_pool
    if "max_model_len" in given:
        shape = shape.model_copy(update={"context_length": int(given["max_model_len"])})
    for key, field in (("dtype", "dtype"), ("kv_cache_dtype", "kv_dtype")):
        if given.get(key) in DTYPE_BYTES:
            shape = shape.model_copy(update={field: given[key]})
    if pool is not None:
        each = int(given.get("block_size") or math.ceil(pool.block_size / block_multiple) * block_multiple)
        blocks = None if pool.blocks is None else max(1, pool.blocks * pool.block_size // each)
        pool = pool.model_copy(update={"block_size": each, "blocks": blocks})
    if pool is not None and any(key in given for key in SIZES_THE_POOL):
        pool = None
    return profile.model_copy(update={"shape": shape, "kv_pool": pool})


def engine_arguments(
    profile: Profile, model: str, slots: int, seed: int, given: Mapping[str, Any]
) -> Arguments:
    """Return all arguments of one engine. `profile` is the fitted one. Raises UsageError for a policy that vLLM
    lacks."""
    own: Arguments = {
        "model": model,
        "seed": seed,
        "max_num_seqs": min(slots, MAX_SLOTS),
        "max_model_len": _longest(profile),
        "enable_prefix_caching": False,  # sessions share no prefix, and a shared block would hide growth
        "disable_log_stats": True,  # no log lines; the statistics are read directly
    }
    if profile.kv_pool is not None:
        own["block_size"] = profile.kv_pool.block_size
        own["num_gpu_blocks_override"] = _NULL_BLOCK + profile.kv_pool.block_count(
            profile.shape.kv_bytes_per_token
        )
    overrides = window_overrides(profile.policy_spec, profile.shape.layers)
    asked = given.get("hf_overrides")
    if overrides or asked:
        own["hf_overrides"] = overrides | (asked if isinstance(asked, dict) else {})
    return own | {key: value for key, value in given.items() if key != "hf_overrides"}


def _longest(profile: Profile) -> int:
    """Return the longest context that fits into the pool: vLLM does not start with a longer one."""
    context, pool = profile.shape.need("context_length"), profile.kv_pool
    if pool is None or not profile.policy_spec.grows:
        return context
    return min(context, pool.block_count(profile.shape.kv_bytes_per_token) * pool.block_size)


def window_overrides(policy: CachePolicySpec, layers: int) -> Arguments:
    """Return the overrides of a model's configuration for a window policy. Raises UsageError for other policies."""
    if policy.kind == "unbounded":
        return {}
    if policy.kind != "window" or policy.sinks:
        raise UsageError(
            f"--backend vllm does not support {policy}: vLLM has unbounded caches, and windows without sinks",
            hint=f"use 'window({policy.window})' or unbounded; --backend in-process supports {policy}",
        )
    return {
        "sliding_window": policy.window,
        "use_sliding_window": True,
        "layer_types": ["sliding_attention"] * layers,
    }


def make_room(
    arguments: Mapping[str, Any], profile: Profile, environ: MutableMapping[str, str] = os.environ
) -> None:
    """On a CPU, raise vLLM's limit of cache memory to the size of the pool."""
    blocks = arguments.get("num_gpu_blocks_override")
    if CPU_SPACE in environ or blocks is None or profile.kv_pool is None:
        return
    need = int(blocks) * profile.kv_pool.block_size * profile.shape.kv_bytes_per_token
    environ[CPU_SPACE] = str(max(1, -(-need // 2**30)))
