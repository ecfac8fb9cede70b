"""The first quarter of an hour on a machine with a GPU: is the GPU path right, and is it as fast as it was counted?

    python benchmarks/day_one.py --out day_one.json

Each part stands alone, writes its result at once and says what it decides; a second run takes up the parts that
are missing (`--again` repeats all). On a CPU the parts run in a reduced form: the kernel by Triton's interpreter, the
model at `moshi-tiny`, and nothing that only a GPU has.

    kernel    the paged kernel in the pool's dtype against the gathering attention in float32; GB/s
    graphs    token by token, captured graphs against forwards without one; capture time and memory
    frames    ms a frame at 1, 8 and 32 sessions of full windows, beside the counted roofline of this card
    waits     a frame under PyTorch's sync debug mode: every place where the host waits
    mixture   one layer of 128 experts: the grouped kernel against PyTorch's own products
    capacity  the most sessions that hold the profile's objectives, by `metronome capacity`
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")  # read when Triton is imported
sys.path.insert(0, str(Path(__file__).parent))

import numpy as np

from metronome_cli.config.profile import Profile
from metronome_cli.config.profile_files import load_profile
from metronome_cli.core.types import FrameInput
from metronome_cli.engine import step_table
from metronome_cli.engine.attention import PagedAttention
from metronome_cli.engine.attention_span import AttentionSpan
from metronome_cli.engine.block_manager import BlockManager
from metronome_cli.engine.block_pool import BlockPool
from metronome_cli.engine.build_decoder import build_decoder
from metronome_cli.engine.device_peaks import DevicePeaks
from metronome_cli.engine.frame_engine import FrameEngine
from metronome_cli.engine.rotary import Rotary
from metronome_cli.engine.step_plan import StepPlanner
from metronome_cli.models.registry import LoadedModel, load_adapter
from metronome_cli.models.weights.experts import Experts, ExpertShape

Result = dict[str, Any]
ON_GPU = torch.cuda.is_available()
DEVICE = torch.device("cuda:0" if ON_GPU else "cpu")
SEED = 1
FRAMES = 20 if ON_GPU else 3  # compared token by token
TOLERANCE = {
    torch.bfloat16: 2e-2,
    torch.float32: 1e-4,
}  # of the largest output: two roundings of 8 bits; float32


def fastest_s(work: Callable[[], object], repeats: int = 20) -> float:
    """Seconds of the fastest run, after two that compile and warm up."""
    times = []
    for _ in range(repeats + 2):
        began = time.perf_counter()
        work()
        if ON_GPU:
            torch.cuda.synchronize()
        times.append(time.perf_counter() - began)
    return min(times[2:])


def kernel() -> Result:
    from metronome_cli.config.cache_policy import CachePolicySpec

    rows = []
    dtype = torch.bfloat16 if ON_GPU else torch.float32
    window, dim = (3000, 128) if ON_GPU else (20, 16)
    for name, kv_heads, group, sessions, policy in (
        ("moshi", 32 if ON_GPU else 2, 1, 32 if ON_GPU else 2, f"ring({window})"),
        ("grouped", 4 if ON_GPU else 1, 7, 8 if ON_GPU else 2, f"window({window}, 16)"),
    ):
        spec = CachePolicySpec.parse(policy)
        blocks = sessions * (window // 16 + 8)
        pool = BlockPool(
            layers=1,
            kv_heads=kv_heads,
            head_dim=dim,
            blocks=blocks,
            block_tokens=16,
            dtype=dtype,
            device=DEVICE,
        )
        manager = BlockManager(pool, spec, chunk=1, keep_inputs=False, seed=SEED)
        for slot in range(sessions):
            manager.open(slot, 2 * window + 3 * slot)
            manager.reserve(slot, 1)
        pool.data.normal_()
        tables = [manager._tables[slot] for slot in range(sessions)]
        for table in tables:
            table.turn(1)
        span = AttentionSpan(manager.policy.sinks, manager.policy.window, rolling=True)
        rotary = Rotary.plain(dim, 1e4)
        queries = torch.randn(sessions, kv_heads * group, dim, device=DEVICE, dtype=dtype)
        planner = step_table.TablePlanner(pool, rotary, span)
        flat = torch.from_numpy(planner.pack(tables, [1] * sessions, sessions, 1)).to(DEVICE)
        plan = planner.plan(flat, sessions, 1)
        attention = PagedAttention(pool, kv_heads * group, dim**-0.5)
        got = attention.attend(0, queries, plan).float().cpu()
        exact = BlockPool(layers=1, kv_heads=kv_heads, head_dim=dim, blocks=blocks, block_tokens=16)
        exact.data.copy_(pool.data)
        host = StepPlanner(exact, group, rotary, span).plan(tables, [1] * sessions, 1)
        wanted = PagedAttention(exact, kv_heads * group, dim**-0.5).attend(0, queries.float().cpu(), host)
        error = float((got - wanted).abs().max() / wanted.abs().max())
        taken = fastest_s(lambda a=attention, q=queries, p=plan: a.attend(0, q, p)) if ON_GPU else 1.0  # type: ignore[misc]
        read = 2 * sum(table.count for table in tables) * 16 * kv_heads * dim * dtype.itemsize
        rows.append(
            {
                "shape": name,
                "relative_error": error,
                "right": error < TOLERANCE[dtype],
                "us": 1e6 * taken if ON_GPU else None,
                "gb_s": read / 1e9 / taken if ON_GPU else None,
            }
        )
    return {
        "decides": "whether the GPU path may be used at all, and its share of the bandwidth",
        "rows": rows,
    }


def loaded_profile() -> tuple[Profile, LoadedModel]:
    profile = load_profile("moshi" if ON_GPU else "moshi-tiny")
    return profile, load_adapter(profile, weights=None, device=str(DEVICE), seed=SEED)


def engine_of(profile: Profile, loaded: LoadedModel, sessions: int, *, graphs: bool, age: int) -> FrameEngine:
    spec = profile.policy_spec
    decoder = build_decoder(
        loaded.decoder,
        blocks=sessions * ((spec.window or 0) // 16 + 6),
        policy=spec,
        chunk=loaded.chunk,
        seed=SEED,
    )
    engine = FrameEngine(loaded.fresh(), decoder, sessions)
    if graphs:
        engine.warm_up()
    for _ in range(sessions):
        engine.open(age)
    return engine


def frames(profile: Profile, sessions: int, number: int) -> list[FrameInput]:
    rng = np.random.default_rng(number)
    samples = profile.frame.samples
    return [
        FrameInput(
            slot, rng.standard_normal(samples).astype(np.float32) * 0.1, profile.tokens.decode.speaking
        )
        for slot in range(sessions)
    ]


def graphs() -> Result:
    profile = load_profile("moshi-tiny")
    loaded = load_adapter(profile, weights=None, device=str(DEVICE), seed=SEED)
    before = torch.cuda.memory_reserved() if ON_GPU else None
    said = []
    described: Result = {}
    for captured in (True, False):
        engine = engine_of(profile, loaded, 3, graphs=captured, age=0)
        described = described or engine.describe()
        said.append(
            [[list(o.tokens) for o in engine.step(frames(profile, 3, n)).outcomes] for n in range(20)]
        )
    return {
        "decides": "whether graphs may be used",
        "right": said[0] == said[1],
        "frames": FRAMES,
        "graphs": described.get("cuda_graphs"),
        "capture_s": described.get("cuda_graphs_s"),
        "memory_bytes": torch.cuda.memory_reserved() - before if before is not None else None,
    }


def timed_frames() -> Result:
    import traffic

    from metronome_cli.forecast.gpus import gpu_of_device

    profile, loaded = loaded_profile()
    card = gpu_of_device(torch.cuda.get_device_name(0)) if ON_GPU else None
    rows = []
    for sessions in (1, 8, 32) if ON_GPU else (1,):
        engine = engine_of(profile, loaded, sessions, graphs=True, age=2 * (profile.policy_spec.window or 0))
        taken, stages = [], {}
        for n in range(30 if ON_GPU else 2):
            given = frames(profile, sessions, n)
            began = time.perf_counter()
            stages = dict(engine.step(given).stages_s)
            taken.append(1e3 * (time.perf_counter() - began))
        count, _ = traffic.count_frame(profile, sessions, "full")
        works = list(count.stages.values())
        rows.append(
            {
                "sessions": sessions,
                "ms": statistics.median(taken[3:] or taken),
                "stages_s": stages,
                "counted_bytes": count.total.moved,
                "least_bytes": count.total.least,
                "roofline_ms": None if card is None else 1e3 * traffic.roofline_s(works, card[1]),
                "graphs_s": engine.describe().get("cuda_graphs_s"),
            }
        )
        del engine
    return {
        "decides": "the factor between counted bytes and time on this card",
        "profile": profile.name,
        "rows": rows,
    }


def waits() -> Result:
    if not ON_GPU:
        return {"decides": "where the host waits", "skipped": "only a GPU makes the host wait"}
    profile, loaded = loaded_profile()
    engine = engine_of(profile, loaded, 8, graphs=True, age=0)
    for n in range(3):
        engine.step(frames(profile, 8, n))
    torch.cuda.set_sync_debug_mode("warn")
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            engine.step(frames(profile, 8, 9))
    finally:
        torch.cuda.set_sync_debug_mode("default")
    places = sorted({f"{Path(w.filename).name}:{w.lineno}" for w in caught})
    return {"decides": "where the host waits", "waits": len(caught), "places": places}


def mixture() -> Result:
    hidden, width, count, dtype = (2048, 768, 128, torch.bfloat16) if ON_GPU else (32, 16, 8, torch.float32)
    torch.manual_seed(SEED)
    shape = ExpertShape(count=count, per_token=8 if ON_GPU else 2, mlp=width)
    parts = [
        (torch.randn(*size, device=DEVICE) * size[-1] ** -0.5).to(dtype)
        for size in ((count, hidden), (count, 2 * width, hidden), (count, hidden, width))
    ]
    experts = Experts(shape, *parts)
    rows = []
    for tokens in (1, 8, 64) if ON_GPU else (3,):
        x = torch.randn(tokens, hidden, device=DEVICE).to(dtype)
        routed = experts._route(x)
        kernel_out = experts.sorted(x, *routed, grouped=True)
        again = experts.sorted(x, *routed, grouped=True)
        each = experts.sorted(x, *routed, grouped=False)
        error = float((kernel_out - each).abs().max() / each.abs().max())
        row = {"tokens": tokens, "relative_error": error, "repeats": bool(torch.equal(kernel_out, again))}
        if ON_GPU:
            row["us"] = 1e6 * fastest_s(lambda x=x, r=routed: experts.sorted(x, *r, grouped=True))  # type: ignore[misc]
            row["us_each"] = 1e6 * fastest_s(lambda x=x, r=routed: experts.sorted(x, *r, grouped=False))  # type: ignore[misc]
        rows.append(row | {"right": error < 2 * TOLERANCE[dtype]})
    return {"decides": "whether mixtures may run on this card", "rows": rows}


def capacity() -> Result:
    if not ON_GPU:
        return {
            "decides": "the first real capacity",
            "skipped": "on a CPU `metronome capacity` says it by itself",
        }
    command = [sys.executable, "-m", "metronome_cli", "capacity", "--profile", "moshi", "--device", "cuda:0"]
    command += ["--pool", "60GiB", "--search-time", "4m", "--json", "-"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=480, check=False)
    try:
        report = json.loads(run.stdout)
    except json.JSONDecodeError:
        return {
            "decides": "the first real capacity",
            "failed": run.stderr[-2000:],
            "exit_code": run.returncode,
        }
    return {"decides": "the first real capacity", "exit_code": run.returncode, "report": report}


PARTS: dict[str, Callable[[], Result]] = {
    "kernel": kernel, "graphs": graphs, "frames": timed_frames, "waits": waits, "mixture": mixture,
    "capacity": capacity,
}  # fmt: skip


def device() -> Result:
    from metronome_cli.engine.device_peaks import measure_limits

    peaks: DevicePeaks = measure_limits(DEVICE, torch.bfloat16 if ON_GPU else torch.float32)
    return {
        "name": torch.cuda.get_device_name(0) if ON_GPU else "CPU",
        "torch": torch.__version__,
        "bytes_per_s": peaks.bytes_per_s,
        "flops_per_s": peaks.flops_per_s,
    }


@contextmanager
def stored(path: Path, again: bool) -> Iterator[dict[str, Any]]:
    """What earlier runs found, if this is the same device."""
    found: dict[str, Any] = json.loads(path.read_text("utf-8")) if path.is_file() and not again else {}
    now = device()
    if found.get("device", {}).get("name", now["name"]) != now["name"]:
        found = {}
    yield found | {"device": now}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path("day_one.json"))
    parser.add_argument("--only", choices=PARTS, action="append", help="a part, repeatable")
    parser.add_argument("--again", action="store_true", help="repeat the parts that are done")
    parser.add_argument("--limit", type=float, default=900, help="seconds after which no part is begun")
    arguments = parser.parse_args()
    began = time.monotonic()
    failed = False
    with stored(arguments.out, arguments.again) as found:
        for name in arguments.only or PARTS:
            if name in found and "failed" not in found[name]:
                continue
            if time.monotonic() - began > arguments.limit:
                print(f"{name}: not begun, {arguments.limit:g} s have passed; run again to go on")
                continue
            start = time.monotonic()
            try:
                with torch.inference_mode():
                    found[name] = PARTS[name]()
            except Exception as error:
                found[name] = {"failed": f"{type(error).__name__}: {error}"}
            found[name]["took_s"] = round(time.monotonic() - start, 1)
            failed = failed or "failed" in found[name]
            arguments.out.write_text(json.dumps(found, indent=2) + "\n", "utf-8")
            print(f"{name}: {json.dumps(found[name])[:400]}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
