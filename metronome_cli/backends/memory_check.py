"""Compares the memory that a model needs with the free memory, before anything is loaded.

    needed = weights + KV pool + activations of one step + session state + one copy of the largest tensor

Free memory is MemAvailable of /proc/meminfo, or what the control group's limit leaves where that is less;
on a CUDA device, what its driver says is free. On a processor weights and caches are float32, whatever the
profile's dtype. Left out: the program and its libraries (about 0.5 GiB), and files that the system caches.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from metronome_cli.config.cache_groups import DTYPE_BYTES
from metronome_cli.config.profile import Profile
from metronome_cli.config.profile_files import profile_names
from metronome_cli.core.errors import UsageError
from metronome_cli.core.quantities import format_size
from metronome_cli.forecast.memory import activations, profile_weights, state_outside, weights_known
from metronome_cli.measure.environment import available_memory

FLOAT32_BYTES = 4
_CUDA_FILES = ("/dev/nvidiactl", "/dev/dxg", "/dev/kfd")  # one of them is there if a driver is loaded


@dataclass(frozen=True, slots=True)
class MemoryNeed:
    """Bytes of each part."""

    weights: int
    pool: int
    activations: int
    session_state: int
    load_copy: int

    @property
    def total(self) -> int:
        """Bytes in all."""
        return self.weights + self.pool + self.activations + self.session_state + self.load_copy


@dataclass(frozen=True, slots=True)
class FreeMemory:
    """The device whose memory a run uses, and its free bytes; None if unknown."""

    place: str
    size: int | None


def memory_need(profile: Profile, sessions: int = 1, *, on_cpu: bool = True) -> MemoryNeed:
    """Return the memory need of `sessions` by the profile. Weights that the profile does not state count as 0."""
    shape = profile.shape
    scale = FLOAT32_BYTES / DTYPE_BYTES[shape.dtype] if on_cpu else 1.0
    per_token, pool = shape.kv_bytes_per_token, profile.kv_pool
    widest = max(
        shape.vocab_size or 0,
        2 * (shape.intermediate_size or 0),
        (shape.heads + 2 * shape.kv_heads) * shape.head_dim,
    )
    sizes = (
        profile_weights(profile).size if weights_known(profile) else 0,
        pool.block_count(per_token) * pool.block_size * per_token if pool is not None else 0,
        activations(profile, sessions),
        state_outside(profile) * sessions,
        widest * shape.hidden_size * DTYPE_BYTES[shape.dtype],
    )
    return MemoryNeed(*(round(size * scale) for size in sizes))


def free_memory(device: str) -> FreeMemory:
    """Return the free memory of a `--device`. Imports torch only if there may be a CUDA device."""
    if device != "cpu" and any(Path(file).exists() for file in _CUDA_FILES):
        import torch

        if torch.cuda.is_available():
            place = torch.device("cuda" if device == "auto" else device)
            return FreeMemory(f"device {place}", int(torch.cuda.mem_get_info(place)[0]))
    return FreeMemory("this machine", available_memory())


def check_memory(
    profile: Profile, device: str, sessions: int = 1, free: Callable[[str], FreeMemory] = free_memory
) -> None:
    """Raise UsageError if the model needs more than is free; the hint names a profile or pool that fits."""
    there = free(device)
    need = memory_need(profile, sessions, on_cpu=there.place == "this machine")
    if there.size is not None and need.total > there.size:
        message, hint = shortage(profile, need, there)
        raise UsageError(message, hint=hint)


def shortage(profile: Profile, need: MemoryNeed, free: FreeMemory) -> tuple[str, str]:
    """Return the message and the hint for a profile that needs more than is free."""
    parts = [f"weights {format_size(need.weights)}"] if need.weights else []
    parts += [f"KV pool {format_size(need.pool)}"] if need.pool else []
    message = (
        f"{profile.name} needs about {format_size(need.total)} ({', '.join(parts)}); "
        f"{free.place} has {format_size(free.size or 0)} free"
    )
    if need.total - need.pool <= (free.size or 0):
        return message, "give a smaller KV pool, such as --kv-pool 256MiB, or `kv_pool` in the profile"
    published = profile_names()
    tiny = f"{profile.name.rsplit('-', 1)[0]}-tiny" if "-" in profile.name else f"{profile.name}-tiny"
    small = next((name for name in (f"{profile.name}-tiny", tiny) if name in published), "smoke")
    named = profile.name if profile.name in published else "FILE"
    return message, f"try `metronome predict --profile {named} --gpu h100`, or `--profile {small}` here"


@dataclass(frozen=True, slots=True)
class MemoryEstimate:
    """Bytes of each part, and how each was computed. `sessions`: for how many, the largest batch if unknown."""

    sessions: int
    weights: int
    weights_how: str
    pool: int | None  # None: the profile has none
    blocks: int | None
    activations: int
    session_state: int
    needed: int = 0  # on the device of the run, with what loading takes
    free: int | None = None  # None: unknown
    shortage: str = ""  # what to do if `needed` is more

    @property
    def total(self) -> int:
        return self.weights + (self.pool or 0) + self.activations + self.session_state


def memory_of(profile: Profile, sessions: int, device: str = "cpu") -> MemoryEstimate:
    """Return what `sessions` need by the profile's figures, bytes, and what the device has free."""
    there = free_memory(device)
    need = memory_need(profile, on_cpu=there.place == "this machine")
    short = there.size is not None and need.total > there.size
    weights, pool, per_token = profile_weights(profile), profile.kv_pool, profile.shape.kv_bytes_per_token
    blocks = None if pool is None else pool.block_count(per_token)
    return MemoryEstimate(
        sessions=sessions,
        weights=weights.size,
        weights_how=weights.how,
        pool=None if pool is None or blocks is None else blocks * pool.block_size * per_token,
        blocks=blocks,
        activations=activations(profile, sessions),
        session_state=state_outside(profile) * sessions,
        needed=need.total,
        free=there.size,
        shortage="; ".join(shortage(profile, need, there)) if short else "",
    )
