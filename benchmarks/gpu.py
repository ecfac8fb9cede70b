"""What this device holds, for one profile or all that an adapter runs: one table, and JSON with the device's name.

    python benchmarks/gpu.py --profile moshi --weights random
    python benchmarks/gpu.py --profile all --json results.json

Weights are random unless a checkpoint is named: load and memory are those of the model's shape. Profiles without a
pool get `--pool`, by default 60 % of the device's memory less the weights. On a CPU only the small profiles are
practical: `--profile moshi-tiny`.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from metronome_cli.capacity.capacity_run import run_capacity
from metronome_cli.capacity.plan import CapacityPlan
from metronome_cli.config.model_shape import KvPoolSpec
from metronome_cli.config.profile import Profile
from metronome_cli.config.profile_files import list_profiles, load_profile
from metronome_cli.core.errors import MetronomeError
from metronome_cli.core.quantities import format_size, parse_size
from metronome_cli.forecast.memory import profile_weights
from metronome_cli.ui import make_observer


def device_memory(device: str) -> tuple[str, int]:
    """(name, bytes) of the device that will be measured."""
    import torch

    if device.startswith("cuda"):
        index = torch.device(device).index or 0
        return torch.cuda.get_device_name(index), torch.cuda.get_device_properties(index).total_memory
    from metronome_cli.measure.environment import environment, usable_memory

    return str(environment().get("cpu", "CPU")), usable_memory() or 0


def with_pool(profile: Profile, memory: int, asked: str | None) -> Profile:
    """The profile with a pool: its own, the one asked for, or a share of what the weights leave."""
    if asked is None and profile.kv_pool is not None:
        return profile
    size = parse_size(asked) if asked else int(0.6 * max(0, memory - profile_weights(profile).size))
    if size == 0:
        raise MetronomeError(f"{profile.name}: its weights do not fit {format_size(memory)}")
    tokens = profile.kv_pool.block_size if profile.kv_pool else 16
    return profile.model_copy(update={"pool": KvPoolSpec(bytes=size, block_size=tokens)})


def measure(profile: Profile, args: argparse.Namespace, device: str) -> dict[str, Any]:
    """One row of the table."""
    weights = None if args.weights == "random" else Path(args.weights)
    plan = CapacityPlan(
        profile=profile, device=device, weights=weights, clock=args.clock, sessions=args.sessions
    )
    report = run_capacity(plan, make_observer("plain"))
    capacity = report.capacity
    return {
        "profile": profile.name,
        "safe_sessions": capacity.safe_sessions if capacity else None,
        "first_failing": capacity.lowest_failing_sessions if capacity else None,
        "binding": capacity.limited_by if capacity else None,
        "binding_stage": capacity.slowest_stage if capacity else None,
        "verdict": report.verdict,
        "weights": report.weights,
        "answer": report.summary,
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--profile", action="append", required=True, help="a profile, repeatable, or all")
    parser.add_argument("--weights", default="random")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--pool", help="KV pool, such as 40GiB")
    parser.add_argument("--sessions", type=int, help="judge this many only")
    parser.add_argument("--clock", choices=("real", "virtual"), default="virtual")
    parser.add_argument("--json", type=Path, help="file for the results")
    args = parser.parse_args()
    from metronome_cli.backends.in_process.engine import pick_device

    device = pick_device(args.device)
    name, memory = device_memory(device)
    chosen = (
        [p for p in list_profiles() if p.adapter]
        if "all" in args.profile
        else map(load_profile, args.profile)
    )
    rows = []
    for profile in chosen:
        try:
            rows.append(measure(with_pool(profile, memory, args.pool), args, device))
        except MetronomeError as error:
            rows.append({"profile": profile.name, "answer": f"not measured: {error.message}"})
    print(f"{name}, {format_size(memory)}, {device}, {args.clock} clock")
    for row in rows:
        print(f"{row['profile']:20} {row['answer']}")
    if args.json:
        results = {"device": name, "memory_bytes": memory, "torch_device": device, "rows": rows}
        args.json.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
