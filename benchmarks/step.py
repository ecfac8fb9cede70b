"""One decode step of this engine beside stock `transformers` and beside what memory bandwidth allows.

Measured: from the embeddings of one new token a session to the logits of all sessions, in memory on both
sides; room in the pool and the step's plan are included, opening sessions is not. Sessions are of mixed ages,
spread evenly over `--ages`; stock caches hold one length for all rows, so stock serves them padded on the
left to the oldest and masked. The dynamic cache grows as it does in use; the static one has room for the run
and no more.

Variants take turns, a few steps each, so that a machine that slows down slows all; a time is the median over
all steps of a variant, a ratio is of those medians. Random weights, float32, SmolLM2-135M's shape (30 layers,
hidden 576, 9 heads on 3 KV heads of 64, MLP 1536, vocabulary 49,152), the same weights on both sides.

The floor is the bytes of every weight that a step reads, divided by a bandwidth measured in the same run:
`gemv`, a matrix-vector product from a plain matrix larger than any cache, as a decode step is made of, and
`read`, the best rate at which this machine reads memory at all (a sum). The cache's own bytes are left out.

Flatness: a windowed session an hour old beside one a minute old, the same batch, taking turns as above; and
unbounded sessions one and five minutes old, for contrast.

python benchmarks/step.py python benchmarks/step.py --batches 1 16 --json
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
import transformers
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM, StaticCache

from metronome_cli.config.cache_policy import CachePolicySpec
from metronome_cli.engine.build_decoder import LayerPath, build_decoder
from metronome_cli.engine.paged_decoder import PagedDecoder
from metronome_cli.engine.projection import Projection

LAYERS, HIDDEN, HEADS, KV_HEADS, HEAD_DIM, MLP, VOCAB = 30, 576, 9, 3, 64, 1536, 49_152
BLOCK_TOKENS = 16
TOKENS_PER_S = 27.0  # cache positions a session adds a second in the flatness part
Step = Callable[[], object]


def model() -> Any:
    """SmolLM2-135M's shape with random weights."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCAB,
        hidden_size=HIDDEN,
        intermediate_size=MLP,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=KV_HEADS,
        head_dim=HEAD_DIM,
        max_position_embeddings=8192,
        tie_word_embeddings=True,
    )
    lm: Any = LlamaForCausalLM(config)
    return lm.eval()


def spread(low: int, high: int, batch: int) -> list[int]:
    """Ages of a batch: evenly from low to high, or the middle of them for one."""
    if batch == 1:
        return [(low + high) // 2]
    return [low + round(i * (high - low) / (batch - 1)) for i in range(batch)]


def engine_step(decoder: Any, head: Projection, ages: Sequence[int], policy: str, way: LayerPath) -> Step:
    """A step of all sessions of these ages on a stack of their own."""
    spec = CachePolicySpec.parse(policy)
    per_session = [spec.resident_tokens(age) // BLOCK_TOKENS + 24 for age in ages]  # 24: room to grow
    stack: PagedDecoder = build_decoder(
        decoder, blocks=sum(per_session), block_tokens=BLOCK_TOKENS, policy=spec, way=way
    )
    slots = list(range(len(ages)))
    for slot, age in zip(slots, ages, strict=True):
        stack.open(slot, age)
    embeds = torch.randn(len(ages), 1, HIDDEN)
    counts = [1] * len(ages)

    def step() -> object:
        for slot in slots:
            if not stack.reserve(slot, 1):
                raise RuntimeError("the pool is too small for the run")
        return head(stack.forward(slots, embeds, counts))

    return step


def stock_step(lm: Any, ages: Sequence[int], kind: str, room: int) -> Step:
    """A step of all sessions through the stock forward, padded on the left to the oldest."""
    batch, longest = len(ages), max(ages)
    cache = (
        DynamicCache(config=lm.config)
        if kind == "dynamic"
        else StaticCache(config=lm.config, max_cache_len=longest + room)
    )
    for layer in range(LAYERS):
        past = 0.5 * torch.randn(2, batch, KV_HEADS, longest, HEAD_DIM)
        cache.update(past[0], past[1], layer)
    embeds = torch.randn(batch, 1, HIDDEN)
    mask = torch.zeros(batch, longest + room, dtype=torch.long)
    for row, age in enumerate(ages):
        mask[row, longest - age :] = 1
    at = {"seen": longest}

    def step() -> object:
        at["seen"] += 1
        positions = torch.tensor([[age + at["seen"] - longest - 1] for age in ages])
        seen = mask[:, : at["seen"]]
        return lm(inputs_embeds=embeds, attention_mask=seen, position_ids=positions, cache=cache).logits

    return step


def take_turns(steps: dict[str, Step], rounds: int, each: int) -> dict[str, list[float]]:
    """Milliseconds of every step of every variant, after two that are not counted."""
    times: dict[str, list[float]] = {name: [] for name in steps}
    for step in steps.values():
        step()
        step()
    for _ in range(rounds):
        for name, step in steps.items():
            for _ in range(each):
                start = time.perf_counter()
                step()
                times[name].append(1e3 * (time.perf_counter() - start))
    return times


def best_rate(work: Callable[[], object], size: int) -> float:
    """GB/s: `size` bytes over the median time of the work."""
    return size / 1e6 / statistics.median(take_turns({"": work}, rounds=9, each=1)[""])


def bandwidths() -> dict[str, float]:
    """GB/s of reading memory, measured on 512 MiB."""
    matrix = torch.randn(131_072, 1024)
    vector = torch.randn(1024)
    size = 4 * matrix.numel()
    return {
        "gemv": best_rate(lambda: torch.mv(matrix, vector), size),
        "read": best_rate(matrix.sum, size),
    }


def quartiles(times: Sequence[float]) -> dict[str, float]:
    low, mid, high = statistics.quantiles(times, n=4)
    return {"p25": round(low, 2), "median": round(mid, 2), "p75": round(high, 2)}


def against_stock(lm: Any, head: Projection, batches: Sequence[int], ages: Sequence[int], rounds: int) -> Any:
    """Times of each variant at each batch size."""
    rows = []
    for batch in batches:
        mixed = spread(ages[0], ages[1], batch)
        room = 4 * rounds + 8
        lm.set_attn_implementation("sdpa")
        steps = {
            "fast": engine_step(lm.model, head, mixed, "unbounded", "fast"),
            "stock dynamic": stock_step(lm, mixed, "dynamic", room),
            "stock static": stock_step(lm, mixed, "static", room),
        }
        measured = {name: quartiles(times) for name, times in take_turns(steps, rounds, 4).items()}
        del steps
        general = {"general": engine_step(lm.model, head, mixed, "unbounded", "general")}
        measured["general"] = quartiles(take_turns(general, rounds, 4)["general"])
        best = min(measured["stock dynamic"]["median"], measured["stock static"]["median"])
        rows.append(
            {"batch": batch, "ages": mixed, "ms": measured, "speedup": best / measured["fast"]["median"]}
        )
    return rows


def flatness(lm: Any, head: Projection, batch: int, rounds: int) -> list[dict[str, Any]]:
    """Step time of sessions of two ages under each policy, and the ratio old / young."""
    rows = []
    for policy, minutes in (("window(1024, 16)", (1, 60)), ("unbounded", (1, 5))):
        tokens = [round(60 * m * TOKENS_PER_S) for m in minutes]
        steps = {
            f"{m} min": engine_step(lm.model, head, [age] * batch, policy, "fast")
            for m, age in zip(minutes, tokens, strict=True)
        }
        measured = {name: quartiles(t) for name, t in take_turns(steps, rounds, 4).items()}
        young, old = (measured[name]["median"] for name in steps)
        rows.append(
            {"policy": policy, "batch": batch, "tokens": tokens, "ms": measured, "ratio": old / young}
        )
    return rows


def cpu_name() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return "unknown"


@torch.inference_mode()
def run(arguments: argparse.Namespace) -> dict[str, Any]:
    lm = model()
    head = Projection(lm.lm_head.weight)
    weight_bytes = 4 * sum(p.numel() for p in lm.parameters())
    rates = bandwidths()
    stock = against_stock(lm, head, arguments.batches, arguments.ages, arguments.rounds)
    floors = {name: weight_bytes / 1e6 / rate for name, rate in rates.items()}
    alone = [row["ms"]["fast"]["median"] for row in stock if row["batch"] == 1]
    return {
        "environment": {
            "cpu": cpu_name(),
            "threads": torch.get_num_threads(),
            "torch": torch.__version__,
            "transformers": transformers.__version__,
        },
        "weight_bytes": weight_bytes,
        "bandwidth_gb_s": rates,
        "floor_ms": floors,
        "share_of_floor_at_batch_1": {name: floor / alone[0] for name, floor in floors.items()}
        if alone
        else None,
        "steps": stock,
        "flatness": flatness(lm, head, arguments.flat_batch, arguments.rounds)
        if arguments.flat_batch
        else [],
    }


def show(result: dict[str, Any]) -> None:
    """The result as text."""
    environment = result["environment"]
    print(
        f"{environment['cpu']}, {environment['threads']} threads, torch {environment['torch']}, "
        f"transformers {environment['transformers']}"
    )
    print("\nms a step   fast  general  stock dynamic  stock static   best stock / fast")
    for row in result["steps"]:
        ms = {name: times["median"] for name, times in row["ms"].items()}
        print(
            f"batch {row['batch']:>3} {ms['fast']:>7.1f} {ms['general']:>8.1f} {ms['stock dynamic']:>14.1f} "
            f"{ms['stock static']:>13.1f} {row['speedup']:>18.2f}"
        )
    for name, floor in result["floor_ms"].items():
        share = result["share_of_floor_at_batch_1"]
        reached = f", reached at batch 1: {share[name]:.0%}" if share else ""
        print(f"floor ({name}, {result['bandwidth_gb_s'][name]:.1f} GB/s): {floor:.1f} ms{reached}")
    for row in result["flatness"]:
        ages = ", ".join(f"{name} {times['median']:.1f} ms" for name, times in row["ms"].items())
        print(f"{row['policy']}, batch {row['batch']}: {ages}; ratio {row['ratio']:.3f}")


def main() -> int:
    parser = argparse.ArgumentParser(
        description="Step time beside stock transformers and the bandwidth floor."
    )
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 4, 16])
    parser.add_argument("--ages", type=int, nargs=2, default=[128, 384], metavar=("YOUNGEST", "OLDEST"))
    parser.add_argument("--rounds", type=int, default=8, help="turns of four steps a variant")
    parser.add_argument(
        "--flat-batch", type=int, default=4, help="batch of the flatness part; 0 leaves it out"
    )
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    result = run(arguments)
    if arguments.json:
        json.dump(result, sys.stdout, indent=2)
        print()
    else:
        show(result)
    return 0


if __name__ == "__main__":
    sys.exit(main())
