"""Table of GPUs: memory, bandwidth and matrix rates from `gpus.yaml`, each with its source."""

from __future__ import annotations

import difflib
import re
from functools import cache
from importlib.resources import files

from pydantic import Field

from metronome_cli.config.fields import Size, StrictModel
from metronome_cli.core.errors import UsageError

_MAKERS = {
    "nvidia",
    "amd",
    "geforce",
    "tesla",
    "instinct",
    "gb",
    "gib",
    "gpu",
    "tensor",
    "core",
    "hbm3",
    "hbm3e",
}


class Gpu(StrictModel):
    """One card. Bandwidth in GB/s (1e9), rates in TF/s, dense."""

    title: str
    aliases: tuple[str, ...] = ()
    memory: Size
    bandwidth_gb_s: float = Field(gt=0)
    bf16_tflops: float = Field(gt=0)
    fp8_tflops: float | None = None
    source: str
    doubt: str = ""

    @property
    def bandwidth(self) -> float:
        """Bytes a second."""
        return self.bandwidth_gb_s * 1e9

    def flops(self, dtype: str) -> float:
        """Operations a second; bf16's rate where float8 has none of its own, half of it for float32."""
        if dtype == "float8" and self.fp8_tflops is not None:
            return self.fp8_tflops * 1e12
        return self.bf16_tflops * 1e12 * (0.5 if dtype == "float32" else 1.0)


@cache
def gpus() -> dict[str, Gpu]:
    """All cards by key."""
    import yaml

    text = files("metronome_cli.forecast").joinpath("gpus.yaml").read_text(encoding="utf-8")
    return {key: Gpu.model_validate(fields) for key, fields in yaml.safe_load(text).items()}


def find_gpu(name: str) -> tuple[str, Gpu]:
    """(key, card) for a key or alias. Raises UsageError that names the nearest ones."""
    wanted = name.strip().lower().replace("_", "-").replace(" ", "-")
    known = {alias: key for key, gpu in gpus().items() for alias in (key, *gpu.aliases)}
    if wanted in known:
        return known[wanted], gpus()[known[wanted]]
    titled = known | {gpu.title: key for key, gpu in gpus().items()}
    same = {key for title, key in titled.items() if _words(title) == _words(wanted)}
    if len(same) == 1:
        key = same.pop()
        return key, gpus()[key]
    near = difflib.get_close_matches(wanted, known, n=2, cutoff=0.5)
    meant = f"did you mean {' or '.join(near)}? " if near else ""
    raise UsageError(f"{name!r} is not a known GPU", hint=f"{meant}known: {', '.join(gpus())}")


def _words(name: str) -> frozenset[str]:
    """What tells cards apart in a product's name: "NVIDIA A100-SXM4-80GB" is {a100, 80}."""
    spaced = re.sub(r"\b(rtx|gtx)(\d)", r"\1 \2", name.lower())
    found = (re.sub(r"^(\d+)(gb|gib)$", r"\1", word) for word in re.split(r"[^a-z0-9]+", spaced))
    return frozenset(word for word in found if word and word not in _MAKERS and not word.startswith("sxm"))


def gpu_of_device(device: str) -> tuple[str, Gpu] | None:
    """The card that a driver's device name speaks of ("NVIDIA H200"), or None."""
    said = {word.removesuffix("gb") for word in device.lower().replace("-", " ").split()}
    best: tuple[int, str] | None = None
    for key in gpus():
        words = set(key.split("-")) - {"sxm"}
        if words <= said and (best is None or len(words) > best[0]):
            best = (len(words), key)
    return None if best is None else (best[1], gpus()[best[1]])


def device_of_limits(bytes_per_s: float, flops_per_s: float, dtype: str) -> Gpu:
    """A device that is in no table, by what was measured of it in `dtype`."""
    tflops = flops_per_s / 1e12 * (2.0 if dtype == "float32" else 1.0)  # `flops` halves for float32
    return Gpu.model_validate(
        {
            "title": "measured device",
            "memory": "0B",
            "bandwidth_gb_s": bytes_per_s / 1e9,
            "bf16_tflops": tflops,
            "fp8_tflops": tflops,
            "source": "measured",
        }
    )
