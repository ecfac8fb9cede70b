"""The number type of weights and of the cache, from wherever a configuration states it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from metronome_cli.config.cache_groups import DTYPE_BYTES, Dtype
from metronome_cli.core.errors import UsageError
from metronome_cli.core.quantities import shown
from metronome_cli.forecast.checkpoint_config.fields import Fields

DTYPES: Mapping[str, Dtype] = {
    "float32": "float32", "float": "float32", "fp32": "float32", "bfloat16": "bfloat16", "bf16": "bfloat16",
    "float16": "float16", "half": "float16", "fp16": "float16", "float8_e4m3fn": "float8",
    "float8_e5m2": "float8", "float8": "float8", "fp8": "float8", "fp8_e4m3": "float8", "fp8_e5m2": "float8",
    "int8": "float8",
}  # fmt: skip
_CACHE_KEYS = ("kv_cache_dtype", "kv_cache_quant_algo", "kv_cache_scheme")


def weight_dtype(config: Mapping[str, Any], path: tuple[str, ...], where: str) -> Dtype | None:
    """The type stated nearest to the decoder; None if no part states one. Raises UsageError for an unknown one."""
    for part in _outwards(config, path):
        for key in ("dtype", "torch_dtype"):
            stated = part.get(key)
            if stated is None or isinstance(stated, Mapping):
                continue
            name = str(stated).removeprefix("torch.").lower()
            if name == "auto":
                continue
            if not isinstance(stated, str) or name not in DTYPES:
                raise UsageError(
                    f"{where}: {key} is {shown(stated)}",
                    hint="float32, bfloat16, float16 and float8 are known",
                )
            return DTYPES[name]
    return None


def cache_dtype(
    config: Mapping[str, Any], path: tuple[str, ...], beside: Mapping[str, Any], where: str
) -> tuple[Dtype, str] | None:
    """A cache of another type than the weights, and the key that says so; `beside` is hf_quant_config.json.

    None if nothing says so. Raises UsageError for a scheme whose size is not known.
    """
    parts = [
        part for outer in _outwards(config, path) for part in (_inner(outer, "quantization_config"), outer)
    ]
    for part in [*parts, _inner(beside, "quantization")]:
        for key in _CACHE_KEYS:
            if (stated := part.get(key)) is not None and stated != "auto":
                return _scheme(stated, key, where), key
    return None


def weight_bits(config: Mapping[str, Any], path: tuple[str, ...], dtype: Dtype) -> float | None:
    """Bits of one stored weight: those of `dtype`, unless the file names a quantisation.

    None if its size is not known. Scales of 4-bit formats are counted as 1 bit in 4 (groups of 32) at most.
    """
    stated = next((q for part in _outwards(config, path) if (q := _inner(part, "quantization_config"))), None)
    if stated is None:
        return 8.0 * DTYPE_BYTES[dtype]
    groups = list(_inner(stated, "config_groups").values())
    inner = _inner(groups[0], "weights") if groups and isinstance(groups[0], Mapping) else {}
    for part, key in ((stated, "bits"), (stated, "w_bit"), (stated, "num_bits"), (inner, "num_bits")):
        bits = part.get(key)
        if isinstance(bits, int) and not isinstance(bits, bool) and 1 <= bits <= 16:
            return float(bits)
    method = f"{stated.get('quant_method', '')} {stated.get('quant_algo', '')}".lower()
    if "fp8" in method:
        return 8.0
    return 4.25 if "fp4" in method else None


def _scheme(stated: Any, key: str, where: str) -> Dtype:
    if isinstance(stated, Mapping):
        bits = Fields(stated, f"{where}: {key}").count("num_bits")
        if bits == 8:
            return "float8"
        raise UsageError(f"{where}: {key} has num_bits {bits}", hint="8 is known, for one byte per number")
    name = str(stated).lower().removeprefix("torch.")
    if name not in DTYPES:
        raise UsageError(
            f"{where}: {key} is {shown(stated)}; the size of such a cache is not known",
            hint="FP8 and INT8 (one byte per number) are known, and 16- and 32-bit floats",
        )
    return DTYPES[name]


def _outwards(config: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[Mapping[str, Any]]:
    """The group of the decoder, the groups around it, the root."""
    parts: list[Mapping[str, Any]] = [config]
    for key in path:
        parts.append(parts[-1][key])
    yield from reversed(parts)


def _inner(part: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = part.get(key)
    return value if isinstance(value, Mapping) else {}
