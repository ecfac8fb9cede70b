"""How exactly one process paces many live sessions: its pacing error, apart from any server's speed.

What: the time between the planned sending of a frame and the instant at which it is handed to its socket, over all
frames of all sessions. The server answers each message with one step and does nothing else, in a process of its own,
so its speed is not part of the figure. From: the plan. Left out: handshakes, the first second. Known error: reading
the clock.

    python benchmarks/generator.py [--sessions 500] [--seconds 10] [--workers 1]

With several workers, each is a process with its share of the sessions, and the worst of them counts. Exits with 1
when the 99.9th percentile reaches 5 ms or a session was lost.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import json
import multiprocessing
import resource
import sys
import time
from multiprocessing.queues import Queue
from typing import Any

import numpy as np

from metronome_cli.config.loading import load_profile
from metronome_cli.load.paced import PacedDriver, WirePopulation
from metronome_cli.measure.histogram import LogHistogram
from metronome_cli.measure.ledger import Ledger
from metronome_cli.run.remote_lab import at_rate
from metronome_cli.targets.endpoint import Limits, endpoint
from metronome_cli.targets.remote import RemoteTarget

LIMIT_MS = 5.0
GOLDEN = 0.6180339887498949


class Tone:
    """The same frame for everybody: making audio is not what is measured."""

    def __init__(self, samples: int, period_s: float) -> None:
        self._frame = (0.1 * np.sin(np.arange(samples) / 9)).astype(np.float32)
        self._period_s = period_s

    def stream(self, index: int) -> Tone:
        return self

    def phase_s(self, index: int) -> float:
        return index * GOLDEN % 1.0 * self._period_s

    def frame(self, k: int) -> Any:
        return self._frame


def echo(port: Any) -> None:
    """Answers every piece of audio with one delta, made once."""
    from websockets.asyncio.server import ServerConnection, serve

    from metronome_cli.targets.protocols.realtime import RealtimeHost

    async def meet(socket: ServerConnection) -> None:
        host = RealtimeHost()
        for message in host.greeting():
            await socket.send(message)
        first, delta = host.answer(np.zeros(480, dtype=np.float32), "", 0)
        await socket.recv()  # session.update
        await socket.send(first)
        async for _ in socket:
            await socket.send(delta)

    async def main() -> None:
        async with await serve(meet, "127.0.0.1", 0, compression=None, ping_interval=None) as server:
            port.put(next(iter(server.sockets)).getsockname()[1])
            await asyncio.sleep(600)

    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(main())


def generate(url: str, sessions: int, seconds: float, out: Queue[dict[str, Any]]) -> None:
    """One process's share."""
    found = endpoint(url, "realtime", Limits(connect_s=30.0, ready_s=30.0), environ={})
    profile = at_rate(load_profile("smoke"), found.traits.sample_rate)
    streams = Tone(profile.frame.samples, profile.frame.period_s)
    population = WirePopulation(RemoteTarget(found), found, streams, profile)
    driver = PacedDriver(population, Ledger(profile.frame.deadline_s * 1e3))
    driver.seat_all(sessions)
    gc.collect()
    gc.freeze()
    driver.run_until(driver.clock.now() + 1.0)
    driver.wire.pacing = LogHistogram()
    before, began = _cpu_s(), time.perf_counter()
    driver.run_until(driver.clock.now() + seconds)
    cpu = (_cpu_s() - before) / (time.perf_counter() - began)
    ended = dict(population.ended)
    late, latency = driver.wire.pacing, driver.ledger.total.latency
    driver.close()
    out.put({"late": late, "latency": latency, "cpu": cpu, "ended": ended})


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sessions", type=int, default=500)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--workers", type=int, default=1)
    wanted = parser.parse_args()
    spawn = multiprocessing.get_context("spawn")
    ports: Any = spawn.Queue()
    servers = [spawn.Process(target=echo, args=(ports,), daemon=True) for _ in range(wanted.workers)]
    for server in servers:
        server.start()
    out: Any = spawn.Queue()
    share = wanted.sessions // wanted.workers
    workers = [
        spawn.Process(target=generate, args=(f"ws://127.0.0.1:{ports.get()}", share, wanted.seconds, out))
        for _ in servers
    ]
    for worker in workers:
        worker.start()
    found = [out.get() for _ in workers]
    for process in [*workers, *servers]:
        process.terminate()
        process.join()
    return tell(wanted, found)


def tell(wanted: argparse.Namespace, found: list[dict[str, Any]]) -> int:
    """One JSON line, and whether it is good enough."""
    frames = sum(share["late"].total for share in found)
    lost = sum(sum(share["ended"].values()) for share in found)
    result = {
        "sessions": wanted.sessions,
        "workers": wanted.workers,
        "frames": frames,
        "frames_per_s": round(frames / wanted.seconds, 1),
        "late_ms": worst("late", found),
        "echo_ms": worst("latency", found),
        "cpu_share": [round(share["cpu"], 2) for share in found],
        "lost": lost,
    }
    print(json.dumps(result))
    tail = worst("late", found)["p99.9"]
    return 0 if tail is not None and tail < LIMIT_MS and not lost else 1


def worst(what: str, found: list[dict[str, Any]]) -> dict[str, float | None]:
    """Percentiles of the worker that has the largest."""
    rows = {f"p{q * 100:g}": [share[what].percentile(q) for share in found] for q in (0.5, 0.99, 0.999, 1.0)}
    return {name: None if None in row else round(max(row), 3) for name, row in rows.items()}


if __name__ == "__main__":
    sys.exit(main())
