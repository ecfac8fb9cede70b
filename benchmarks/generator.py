"""How exactly live sessions over websockets are paced: the generator's own error, apart from any server's speed.

What: the time between the planned sending of a frame and the instant after it was handed to the kernel, over all frames
of all sessions. From: the plan. Left out: handshakes, the first second. Known error: reading the clock.

    python benchmarks/generator.py [--sessions 500] [--workers 1] [--server null|reference]

Against `null` (benchmarks/null_server.py) the server costs next to nothing, so what a frame takes in all is the
generator's: `echo_ms` is the whole way there and back, `cpu_us` the processor time of a frame. Against `reference`
(`metronome serve`) the server may be as late as it likes; the pacing error must not follow it. Server and generator are
in processes of their own, and with --pin on cores of their own. --first takes the cores away from whatever else runs
(SCHED_RR, needs the right to it): on a machine with other work the error is otherwise that of the machine.
--workers 0 keeps the sockets in the process that also counts, as `metronome capacity` does unless told.

Each round is one JSON line; `busy` is the share of the machine in use, by this or anything else.
Exits with 1 when the median round's 99.9th percentile reaches 5 ms, or a session was lost.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import multiprocessing
import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from null_server import serve_null

from metronome_cli.audio.library import load_library, sample_paths
from metronome_cli.audio.streams import LoopedSpeech
from metronome_cli.backends.interface import RunSetup
from metronome_cli.backends.websocket.backend import WebsocketBackend, at_rate, start_local_host
from metronome_cli.backends.websocket.endpoint import SessionTimeouts, endpoint
from metronome_cli.backends.websocket.process_workers import ProcessChannel
from metronome_cli.backends.websocket.socket_host import HostSetup, SocketHost
from metronome_cli.backends.websocket.worker_client import WorkerClient
from metronome_cli.config.profile_files import load_profile
from metronome_cli.core.session import SessionSpec
from metronome_cli.load.workload import generated_workload
from metronome_cli.measure.histogram import LatencyHistogram
from metronome_cli.measure.recorder import Recorder

LIMIT_MS = 5.0
PREFACE = {"realtime": 1, "vllm-realtime": 2}  # messages before the audio
PATIENT = SessionTimeouts(connect_s=60.0, ready_s=60.0, idle_s=300.0, stall_s=300.0)


def favour(pid: int, core: int | None, first: bool) -> None:
    """All threads that a process has now; later ones will be as the one that makes them."""
    for thread in map(int, os.listdir(f"/proc/{pid}/task")):
        if core is not None:
            os.sched_setaffinity(thread, {core})
        if first:
            os.sched_setscheduler(thread, os.SCHED_RR, os.sched_param(1))


def last_core(wanted: argparse.Namespace) -> int | None:
    return (os.cpu_count() or 1) - 1 if wanted.pin else None


def null(port: Any, protocol: str) -> None:
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(serve_null(protocol, port, PREFACE.get(protocol, 0)))


@contextlib.contextmanager
def null_server(wanted: argparse.Namespace) -> Iterator[str]:
    spawn = multiprocessing.get_context("spawn")
    port: Any = spawn.Queue()
    server = spawn.Process(target=null, args=(port, wanted.protocol), daemon=True)
    server.start()
    try:
        url = f"ws://127.0.0.1:{port.get(timeout=60)}"
        favour(server.pid or 0, last_core(wanted), wanted.first)
        yield url
    finally:
        server.terminate()
        server.join()


@contextlib.contextmanager
def reference_server(wanted: argparse.Namespace) -> Iterator[str]:
    line = [sys.executable, "-m", "metronome_cli", "serve", "--profile", "smoke", "--protocol", wanted.protocol,
            "--port", "0", "--sessions", str(wanted.sessions)]  # fmt: skip
    server = subprocess.Popen(
        line, stderr=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    favour(server.pid, last_core(wanted), wanted.first)
    assert server.stderr is not None
    try:
        found = re.search(r"ws://\S+", server.stderr.readline())
        assert found is not None
        favour(server.pid, last_core(wanted), wanted.first)  # its threads, too
        yield found[0]
    finally:
        server.terminate()
        server.wait()


class Generator:
    """The sessions of one round."""

    def __init__(self, wanted: argparse.Namespace, url: str) -> None:
        self.wanted = wanted
        found = endpoint(url, wanted.protocol, PATIENT, environ={})
        self.profile = at_rate(load_profile("smoke"), found.traits.sample_rate)
        library = load_library(sample_paths(), self.profile.frame.sample_rate)
        audio = LoopedSpeech(library, self.profile.frame.period_s, seed=1).shared()
        frame = self.profile.frame
        self.recorder = Recorder(frame.deadline_s * 1e3, period_s=frame.period_s)
        setup = RunSetup(
            self.profile, generated_workload(audio, self.profile.turn_taking, 0), wanted.sessions, "real",
            "continuous", 0, self.recorder.record, lambda: False,
        )  # fmt: skip
        self.run = WebsocketBackend(found, self.start_hosts).start(setup)

    def start_hosts(self, setup: HostSetup) -> Sequence[SocketHost | WorkerClient]:
        wanted = self.wanted
        if wanted.workers == 0:
            return start_local_host(setup)
        return [WorkerClient(ProcessChannel(setup, f"worker {n + 1}")) for n in range(wanted.workers)]

    def open_all(self) -> None:
        """Every session, ready and sending."""
        for index in range(self.wanted.sessions):
            session = SessionSpec(0.0, index=index)
            self.recorder.opened(session)
            self.run.open(session)
        self.run.begin()

    def favour(self) -> None:
        """When all threads are there."""
        cores = max(1, (os.cpu_count() or 1) - 1)
        for n, pid in enumerate(self.pids()):
            favour(pid, n % cores if self.wanted.pin else None, self.wanted.first)

    def round(self) -> dict[str, Any]:
        wanted, run = self.wanted, self.run
        self.recorder.send_lateness = LatencyHistogram()
        self.recorder.reset()
        machine, cpu, began = stat(), self.cpu_s(), time.perf_counter()
        run.run_until(run.clock.now() + wanted.seconds)
        took = time.perf_counter() - began
        used = [after - before for after, before in zip(self.cpu_s(), cpu, strict=True)]
        busy, idle = (after - before for after, before in zip(stat(), machine, strict=True))
        late = self.recorder.send_lateness
        frames = late.total
        return {
            "sessions": len(self.recorder.active),
            "workers": wanted.workers,
            "server": wanted.server,
            "protocol": wanted.protocol,
            "frames_per_s": round(frames / took, 1),
            "late_ms": spread(late),
            "late_share": late.above(LIMIT_MS) / max(1, frames),
            "echo_ms": spread(self.recorder.total.latency),
            "cpu_us": round(sum(used) / max(1, frames) * 1e6, 1),
            "cpu_share": [round(seconds / took, 2) for seconds in used],
            "sessions_a_core": round(frames / max(1e-9, sum(used)) * self.profile.frame.period_s),
            "busy": round(busy / max(1, busy + idle), 2),
            "lost": self.recorder.lost,
        }

    def cpu_s(self) -> list[float]:
        """Processor time of each of them."""
        return [process_cpu_s(pid) for pid in self.pids()]

    def pids(self) -> list[int]:
        """Of the processes with sockets."""
        posts = [share.channel for share in self.run.hosts if isinstance(share, WorkerClient)]
        return [post.process.pid or 0 for post in posts if isinstance(post, ProcessChannel)] or [os.getpid()]


def process_cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def stat() -> tuple[int, int]:
    """Busy and idle ticks of the machine."""
    ticks = [int(n) for n in Path("/proc/stat").read_text(encoding="ascii").splitlines()[0].split()[1:9]]
    idle = ticks[3] + ticks[4]
    return sum(ticks) - idle, idle


def spread(histogram: LatencyHistogram) -> dict[str, float | None]:
    values = {f"p{q * 100:g}": histogram.percentile(q) for q in (0.5, 0.99, 0.999, 1.0)}
    return {name: None if value is None else round(value, 3) for name, value in values.items()}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sessions", type=int, default=500)
    parser.add_argument("--seconds", type=float, default=5.0, help="of each round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--protocol", default="realtime")
    parser.add_argument("--server", choices=("null", "reference"), default="null")
    parser.add_argument(
        "--pin", action="store_true", help="the server on the last core, the generator elsewhere"
    )
    parser.add_argument("--first", action="store_true", help="before everything else that runs")
    return parser.parse_args()


def main() -> int:
    wanted = arguments()
    server = null_server if wanted.server == "null" else reference_server
    with server(wanted) as url:
        generator = Generator(wanted, url)
        try:
            generator.open_all()
            generator.favour()
            generator.run.run_until(generator.run.clock.now() + 1.0)
            rounds = []
            for _ in range(wanted.rounds):
                rounds.append(generator.round())
                print(json.dumps(rounds[-1]), flush=True)
        finally:
            generator.run.close()
    tail = statistics.median(found["late_ms"]["p99.9"] or np.inf for found in rounds)
    return 0 if tail < LIMIT_MS and not any(found["lost"] for found in rounds) else 1


if __name__ == "__main__":
    sys.exit(main())
