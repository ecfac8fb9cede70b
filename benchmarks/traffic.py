"""What one frame of a profile asks of a GPU, counted without one: kernels, bytes, waits, and a roofline time by card.

    python benchmarks/traffic.py --profile moshi --sessions 32 --age full
    python benchmarks/traffic.py --profile qwen2.5-omni-7b --sessions 8 --age young --json

The engine's own code runs on CUDA tensors without memory (benchmarks/fake_cuda.py says what is counted and how).
`moved_bytes` is everything read and written; `least_bytes` is what no engine can spare: each weight once per
forward pass, the resident keys and values once, the new ones. The frame counted is the second of its engine.

Roofline time of a frame on a card: for each stage the longest of bytes / bandwidth, operations / matrix rate and
kernels x launch time (4 us one by one, 1.5 us inside a graph: typical of recent drivers, not measured here). It is
a lower estimate: a card reaches 80 to 90 % of its bandwidth.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parent))

from fake_cuda import Count, Meter, Work, fake_cuda

from metronome_cli.config.profile import Profile
from metronome_cli.config.profile_files import load_profile
from metronome_cli.core.types import FrameInput
from metronome_cli.engine import cuda_graphs, frame_engine, paged_decoder, step_table
from metronome_cli.engine.build_decoder import build_decoder
from metronome_cli.engine.cache_policies import EVERYTHING
from metronome_cli.engine.frame_engine import FrameEngine
from metronome_cli.engine.stage_timer import StageStopwatch
from metronome_cli.forecast.gpus import Gpu, gpus
from metronome_cli.models.registry import LoadedModel, load_adapter

Age = Literal["full", "young"]
LAUNCH_S, REPLAY_S = 4e-6, 1.5e-6
FULL_S = 600.0  # age of a session whose policy has no window
DEVICE = "cuda:0"


def full_positions(profile: Profile) -> int:
    """Positions after which a session's cache grows no more, or those of 10 minutes."""
    spec = profile.policy_spec
    if spec.kind in ("ring", "window"):
        return 2 * (spec.window + spec.sinks)
    return int(profile.positions_at(FULL_S))


def make_engine(
    profile: Profile, loaded: LoadedModel, sessions: int, age: Age
) -> tuple[FrameEngine, list[int]]:
    """An engine with that many sessions of one age, its graphs captured."""
    spec, size = profile.policy_spec, profile.kv_pool.block_size if profile.kv_pool else 16
    positions = full_positions(profile) if age == "full" else 0
    held = min(positions, spec.resident_tokens(positions)) + 8 * (loaded.chunk + 64)
    if spec.kind in ("ring", "window"):
        held = max(held, spec.window + spec.sinks + 2 * loaded.chunk)
    decoder = build_decoder(
        loaded.decoder,
        blocks=sessions * (held // size + 4),
        block_tokens=size,
        policy=spec,
        sink_positions=profile.sink_positions,
        chunk=loaded.chunk,
    )
    engine = FrameEngine(loaded.fresh(), decoder, sessions)
    engine.warm_up()
    return engine, [engine.open(positions) for _ in range(sessions)]


@contextmanager
def watched(meter: Meter) -> Iterator[None]:
    """Tells the meter of stages, and of the positions that each forward reads."""
    pack = step_table.pack

    def counted(tables: Any, counts: Any, batch: int, tokens: int, span: Any) -> Any:
        meter.resident = meter.new = 0
        for table, count in zip(tables, counts, strict=True):
            newest = table.length + count
            reach = newest if span.window >= EVERYTHING else span.window + count + span.sinks
            meter.resident += min(newest, reach)
            meter.new += count
        return pack(tables, counts, batch, tokens, span)

    class Staged(StageStopwatch):
        @contextmanager
        def __call__(self, stage: str) -> Iterator[None]:
            before, meter.stage = meter.stage, stage
            with super().__call__(stage):
                yield
            meter.stage = before

    saved = frame_engine.StageStopwatch, paged_decoder.kernels_available, cuda_graphs.WARM_UP_RUNS
    cuda_graphs.WARM_UP_RUNS = 0  # nothing is compiled here
    step_table.pack = counted
    frame_engine.StageStopwatch = Staged  # type: ignore[misc]
    paged_decoder.kernels_available = lambda: True  # type: ignore[assignment]
    try:
        yield
    finally:
        step_table.pack = pack
        frame_engine.StageStopwatch, paged_decoder.kernels_available, cuda_graphs.WARM_UP_RUNS = saved  # type: ignore[misc]


def count_frame(profile: Profile, sessions: int, age: Age) -> tuple[Count, float]:
    """What the second frame asks of the device, and the seconds that the host took for it (on this machine)."""
    with fake_cuda() as meter, watched(meter):
        meter.loading = True
        loaded = load_adapter(profile, weights=None, device=DEVICE, seed=0)
        meter.loading = False
        engine, slots = make_engine(profile, loaded, sessions, age)
        audio = np.random.default_rng(0).standard_normal(profile.frame.samples).astype(np.float32)
        frames = [FrameInput(slot, audio, profile.tokens.decode.speaking) for slot in slots]
        engine.step(frames)  # the first differs: nothing is left from a frame before
        problems = meter.count.problems  # of the captures too
        meter.reset()
        began = time.perf_counter()
        engine.step(frames)
        took = time.perf_counter() - began
        meter.count.problems.update(problems)
        return meter.count, took


def roofline_s(stages: Sequence[Work], gpu: Gpu) -> float:
    """Seconds of a frame, no stage overlapping another."""
    return sum(
        max(
            work.moved / gpu.bandwidth,
            (work.flops - work.flops_float32) / gpu.flops("bfloat16")
            + work.flops_float32 / gpu.flops("float32"),
            work.launched * LAUNCH_S + work.replayed * REPLAY_S,
        )
        for work in stages
    )


def result(profile: Profile, sessions: int, age: Age) -> dict[str, Any]:
    """The count as plain data."""
    count, _ = count_frame(profile, sessions, age)
    total = count.total
    return {
        "profile": profile.name,
        "sessions": sessions,
        "age": age,
        "policy": str(profile.policy_spec),
        "torch": torch.__version__,
        "kernels": total.launched,
        "kernels_in_graphs": total.replayed,
        "graph_launches": count.replays,
        "moved_bytes": total.moved,
        "least_bytes": total.least,
        "ratio": total.moved / total.least,
        "copies_to_device": count.to_device.total(),
        "pageable_copies": count.pageable.total(),
        "waits": count.waits.total(),
        "problems": dict(count.problems),
        "stages": {
            name: asdict(work) | {"moved_bytes": work.moved, "least_bytes": work.least}
            for name, work in count.stages.items()
        },
        "waits_by_line": dict(count.waits.most_common()),
        "pageable_by_line": dict(count.pageable.most_common()),
        "roofline_ms": {
            key: round(1e3 * roofline_s(list(count.stages.values()), gpu), 3) for key, gpu in gpus().items()
        },
    }


def show(found: dict[str, Any]) -> None:
    """The result as text."""
    print(f"{found['profile']}, {found['sessions']} sessions, {found['age']} caches, {found['policy']}")
    print(
        f"{found['kernels']} kernels one by one, {found['kernels_in_graphs']} in {found['graph_launches']} graphs; "
        f"moved {found['moved_bytes'] / 1e9:.2f} GB, least {found['least_bytes'] / 1e9:.2f} GB, "
        f"ratio {found['ratio']:.2f}"
    )
    print(
        f"host: {found['copies_to_device']} pinned copies, {found['pageable_copies']} pageable ones, "
        f"waits for the device {found['waits']} times"
    )
    for name, stage in found["stages"].items():
        least = max(1, stage["least_bytes"])
        print(
            f"  {name:9} {stage['launched']:6} + {stage['replayed']:6} kernels, "
            f"{stage['moved_bytes'] / 1e9:8.3f} GB, {stage['moved_bytes'] / least:6.2f} of the least"
        )
    print("roofline ms: " + ", ".join(f"{card} {ms:g}" for card, ms in found["roofline_ms"].items()))
    for problem, times in found["problems"].items():
        print(f"problem: {problem} ({times} times)")


def main() -> int:
    parser = argparse.ArgumentParser(description="What one frame asks of a GPU, counted without one.")
    parser.add_argument("--profile", required=True)
    parser.add_argument("--sessions", type=int, default=8)
    parser.add_argument("--age", choices=("full", "young"), default="full")
    parser.add_argument("--option", action="append", default=[], help="adapter option, KEY=VALUE, repeatable")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    profile = load_profile(arguments.profile)
    if arguments.option:
        options = {key: json.loads(value) for key, _, value in (o.partition("=") for o in arguments.option)}
        profile = profile.model_copy(update={"adapter_options": {**profile.adapter_options, **options}})
    found = result(profile, arguments.sessions, arguments.age)
    if arguments.json:
        json.dump(found, sys.stdout, indent=2)
        print()
    else:
        show(found)
    return 1 if found["problems"] else 0


if __name__ == "__main__":
    sys.exit(main())
