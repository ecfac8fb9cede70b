"""Two Ray actors call a server on loopback; then one of them is killed. Prints what the points say, as JSON."""

import functools
import json
import sys
import threading
import time

from metronome_cli.backends.websocket.endpoint import SessionTimeouts
from metronome_cli.backends.websocket.ray_workers import RayWorker, clock_offset_s, connect, start_ray_workers
from metronome_cli.capacity.point import PointPlan
from metronome_cli.capacity.remote_point import RemotePointRun
from tests.backends.test_workers import Tone
from tests.capacity.servers import Killable, remote_lab


def point(length_s, during=lambda run: None):
    server = Killable()
    try:
        lab = remote_lab(server.url, length_s=length_s, streams=Tone(), limits=SessionTimeouts())
        lab.crew = functools.partial(start_ray_workers, count=2, address="local")
        run = RemotePointRun(lab, PointPlan(4, "single", length_s=length_s, settle_early=False))
        threading.Thread(target=during, args=(run,), daemon=True).start()
        return run, run.run(into=[])
    finally:
        server.kill()


def kill(run):
    import ray

    until = time.perf_counter() + 60
    while run.driver.ledger.total.steps < 5 and time.perf_counter() < until:
        time.sleep(0.02)
    ray.kill(run.driver.population.shares[1].post.actor)


def main():
    connect("local")
    whole, first = point(3.0)
    _, second = point(300.0, during=kill)
    import ray

    offset_s = clock_offset_s(ray.remote(num_cpus=0)(RayWorker).remote(None))
    ray.shutdown()
    answer = {
        "whole": first.model_dump(mode="json"),
        "killed": second.model_dump(mode="json"),
        "offset_s": offset_s,
        "workers": whole.driver.wire.workers,
    }
    json.dump(answer, sys.stdout)


if __name__ == "__main__":
    main()
