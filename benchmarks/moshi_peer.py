"""This engine's Moshi frame beside PyPI `moshi`'s `LMGen.step`, same shapes, one run.

Measured: the language model's part of a frame (delays, 17 embeddings, temporal decoder, text head, sampling,
depth transformer), from the user's codes in memory to the model's tokens in memory; the codec is left out on
both sides, and so is opening sessions. Random weights, float32, two threads, sampling on as shipped.
Both sides run in processes of their own that take turns, a few frames each, so that a machine that slows
down slows both; times are medians over all frames and the ratio is of those medians. What is left of
disturbance is in the quartiles.

This engine is measured twice: with sessions some seconds old, and with sessions whose window is full. The
peer attends its whole ring from the first frame on, so its age does not matter.

    python benchmarks/moshi_peer.py                        # all of it, some minutes
    python benchmarks/moshi_peer.py --shapes small --batches 8 --json

The peer needs an environment of its own: `.ci/peers.sh moshi` makes it under `.peers/moshi`.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PEER_PYTHON = ROOT / ".peers" / "moshi" / "bin" / "python"
TEXT, CODES, BOOKS = 32_000, 2048, 8
THREADS = 2
YOUNG = 60  # frames that a young session has lived

# dim, layers, heads, depth dim, depth layers, context; hidden layers are 2/3 of 4.125 x dim
SHAPES: dict[str, dict[str, int]] = {
    "small": {"dim": 512, "layers": 8, "heads": 8, "depth_dim": 256, "depth_layers": 4, "context": 750},
    "medium": {"dim": 1024, "layers": 16, "heads": 16, "depth_dim": 512, "depth_layers": 6, "context": 3000},
}
DEPTH_HEADS = 8


def mlp(dim: int) -> int:
    """Inner width of the gated perceptron, as the authors' package derives it."""
    return 2 * int(4.125 * dim) // 3


# -- the two sides: `load` a shape, `open` a batch, `run` frames --


class Ours:
    """This engine."""

    def load(self, shape: dict[str, int]) -> None:
        from metronome_cli.config.frame import Frame, FrameTokens, TokensOut
        from metronome_cli.config.model_shape import ModelShape
        from metronome_cli.config.profile import Profile
        from metronome_cli.models.moshi import MoshiModel

        dim = shape["dim"]
        self.profile = Profile(
            name="peer",
            title="peer",
            adapter="moshi",
            frame=Frame(period="80ms", sample_rate=24_000),
            tokens=FrameTokens(prefill=1, decode=TokensOut(listening=9, speaking=9), fused=True),
            shape=ModelShape(
                layers=shape["layers"], heads=shape["heads"], kv_heads=shape["heads"], hidden_size=dim,
                intermediate_size=mlp(dim), head_dim=dim // shape["heads"], vocab_size=TEXT, dtype="float32",
                context_length=shape["context"],
            ),
            policy=f"ring({shape['context']})",
            adapter_options={
                "depth_hidden": shape["depth_dim"], "depth_layers": shape["depth_layers"],
                "depth_heads": DEPTH_HEADS, "depth_mlp": mlp(shape["depth_dim"]),
                "mimi_filters": 4, "mimi_hidden": 32, "mimi_layers": 1, "mimi_mlp": 32,
            },
        )  # fmt: skip
        self.weights = MoshiModel.from_profile(self.profile)

    def open(self, batch: int, age: int) -> None:
        from metronome_cli.engine.build_decoder import build_decoder

        self.stack = self.model = None  # the pool before goes first
        block = 16
        self.model = self.weights.fresh()
        self.stack = build_decoder(
            self.model.decoder,
            blocks=batch * -(-self.profile.shape.context_length // block),
            policy=self.profile.policy_spec,
            block_tokens=block,
        )
        self.slots = list(range(batch))
        for slot in self.slots:
            self.stack.open(slot, age)
            self.model.open(slot)

    def step(self) -> None:
        import torch

        from metronome_cli.engine.stage_timer import StageStopwatch

        codes = torch.randint(0, CODES, (len(self.slots), BOOKS))
        for slot in self.slots:
            self.stack.reserve(slot, 1)
        self.timer = StageStopwatch(self.model.stages, self.stack.device)
        self.model.reply(self.stack, self.slots, codes, self.timer)

    def stages(self) -> dict[str, float]:
        return self.timer.seconds


class Peer:
    """PyPI `moshi`."""

    def load(self, shape: dict[str, int]) -> None:
        import torch
        from moshi.models.lm import LMModel

        torch.manual_seed(1)
        dim = shape["dim"]
        self.model = LMModel(
            delays=[0, 0, *[1] * 7, 0, *[1] * 7], n_q=2 * BOOKS, dep_q=BOOKS, card=CODES, text_card=TEXT,
            dim=dim, num_heads=shape["heads"], num_layers=shape["layers"], hidden_scale=4.125, norm="rms_norm_f32",
            causal=True, context=shape["context"], max_period=10_000, gating="silu", layer_scale=None,
            positional_embedding="rope", depformer_dim=shape["depth_dim"],
            depformer_dim_feedforward=int(4.125 * shape["depth_dim"]), depformer_num_heads=DEPTH_HEADS,
            depformer_num_layers=shape["depth_layers"], depformer_layer_scale=None,
            depformer_multi_linear=True, depformer_context=BOOKS, depformer_gating="silu", depformer_pos_emb="none",
            depformer_weights_per_step=True, dtype=torch.float32, device="cpu",
        ).eval()  # fmt: skip
        self.streaming: Any = None

    def open(self, batch: int, age: int) -> None:
        from moshi.models.lm import LMGen

        if self.streaming is not None:
            self.streaming.__exit__(None, None, None)
        self.batch = batch
        self.generator = LMGen(self.model)
        self.streaming = self.generator.streaming(batch)
        self.streaming.__enter__()

    def step(self) -> None:
        import torch

        self.generator.step(torch.randint(0, CODES, (self.batch, BOOKS, 1)))

    def stages(self) -> dict[str, float]:
        return {}


def serve(side: Ours | Peer) -> None:
    """A worker: one JSON command a line in, one JSON answer a line out."""
    import torch

    torch.set_num_threads(THREADS)
    for line in sys.stdin:
        command = json.loads(line)
        answer: dict[str, Any] = {}
        if command["do"] == "load":
            side.load(SHAPES[command["shape"]])
            answer["versions"] = versions(side)
        elif command["do"] == "open":
            side.open(command["batch"], command["age"])
        else:
            answer = run(side, command["frames"])
        print(json.dumps(answer), flush=True)


def run(side: Ours | Peer, frames: int) -> dict[str, Any]:
    """Milliseconds of each frame, and of each stage where the side has them."""
    times, stages = [], []
    for _ in range(frames):
        start = time.perf_counter()
        side.step()
        times.append(1e3 * (time.perf_counter() - start))
        stages.append({name: 1e3 * seconds for name, seconds in side.stages().items()})
    return {"ms": times, "stages": stages}


def versions(side: Ours | Peer) -> dict[str, str]:
    from importlib.metadata import version

    import torch

    own = {"moshi": version("moshi")} if isinstance(side, Peer) else {}
    return {"torch": torch.__version__, **own}


# -- the driver --


class Worker:
    """One side in its own process."""

    def __init__(self, python: Path, side: str) -> None:
        quiet = {"NO_TORCH_COMPILE": "1", "NO_CUDA_GRAPH": "1", "PYTHONPATH": str(ROOT)}
        self.process = subprocess.Popen(
            [str(python), __file__, "--worker", side],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": str(THREADS), **quiet},
        )

    def ask(self, **command: Any) -> dict[str, Any]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(json.dumps(command), file=self.process.stdin, flush=True)
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit("a worker died; its message is above")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        assert self.process.stdin
        self.process.stdin.close()
        self.process.wait()


def measure(ours: Worker, peer: Worker, *, batch: int, age: int, rounds: int, frames: int) -> dict[str, Any]:
    """Both sides in turn."""
    for worker in (ours, peer):
        worker.ask(do="open", batch=batch, age=age)
        worker.ask(do="run", frames=4)  # first frames allocate
    mine: list[float] = []
    theirs: list[float] = []
    stages: list[dict[str, float]] = []
    for _ in range(rounds):
        answer = ours.ask(do="run", frames=frames)
        mine += answer["ms"]
        stages += answer["stages"]
        theirs += peer.ask(do="run", frames=frames)["ms"]
    return {
        "batch": batch,
        "age_frames": age,
        "ours_ms": spread(mine),
        "peer_ms": spread(theirs),
        "ratio": statistics.median(theirs) / statistics.median(mine),
        "ours_stages_ms": {name: statistics.median(s[name] for s in stages) for name in stages[0]},
    }


def spread(times: list[float]) -> list[float]:
    """First quartile, median, third quartile."""
    return [round(value, 2) for value in statistics.quantiles(times, n=4)]


def compare(shape: str, batches: list[int], rounds: int, frames: int) -> dict[str, Any]:
    ours, peer = Worker(Path(sys.executable), "ours"), Worker(PEER_PYTHON, "peer")
    try:
        said = {
            name: w.ask(do="load", shape=shape)["versions"] for name, w in (("ours", ours), ("peer", peer))
        }
        ages = (YOUNG, SHAPES[shape]["context"] + 100)
        points = [
            measure(ours, peer, batch=batch, age=age, rounds=rounds, frames=frames)
            for batch in batches
            for age in ages
        ]
    finally:
        ours.close()
        peer.close()
    return {"shape": shape, "versions": said, "points": points}


def table(result: dict[str, Any]) -> str:
    lines = [f"{result['shape']}: {result['versions']}"]
    lines.append(f"{'batch':>5} {'age':>6} {'ours ms':>20} {'peer ms':>20} {'ratio':>6}  ours by stage")
    for point in result["points"]:
        ours, peer = ("{1:.1f} [{0:.1f}, {2:.1f}]".format(*point[side]) for side in ("ours_ms", "peer_ms"))
        stages = ", ".join(f"{name} {ms:.1f}" for name, ms in point["ours_stages_ms"].items() if ms)
        beside = f"{ours:>20} {peer:>20} {point['ratio']:>6.2f}"
        lines.append(f"{point['batch']:>5} {point['age_frames']:>6} {beside}  {stages}")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description="This engine's Moshi frame beside PyPI moshi's.")
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=list(SHAPES))
    parser.add_argument("--batches", nargs="+", type=int, default=[1, 8, 16])
    parser.add_argument("--rounds", type=int, default=12, help="turns of each side")
    parser.add_argument("--frames", type=int, default=3, help="frames a turn")
    parser.add_argument("--json", action="store_true", help="one JSON object a shape instead of tables")
    parser.add_argument("--worker", choices=["ours", "peer"], help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker:
        serve(Ours() if given.worker == "ours" else Peer())
        return
    if not PEER_PYTHON.exists():
        raise SystemExit(f"{PEER_PYTHON} is not there; run `.ci/peers.sh moshi`")
    for shape in given.shapes:
        result = compare(shape, given.batches, given.rounds, given.frames)
        print(json.dumps(result) if given.json else table(result), flush=True)


if __name__ == "__main__":
    main()
