"""Two Ray actors call a server on loopback; then one of them is killed. Prints what the points say, as JSON."""

import functools
import json
import sys
import threading
import time

from metronome_cli.backends.websocket.endpoint import SessionTimeouts
from metronome_cli.backends.websocket.ray_workers import RayWorker, clock_offset_s, connect, start_ray_workers
from metronome_cli.capacity.trial import Trial
from metronome_cli.capacity.trial_plan import TrialPlan
from tests.backends.test_workers import Tone
from tests.capacity.servers import Killable, server_context


def point(length_s, during=lambda run: None):
    server = Killable()
    try:
        starter = functools.partial(start_ray_workers, count=2, address="local")
        context = server_context(
            server.url, length_s=length_s, audio=Tone(), limits=SessionTimeouts(), starter=starter
        )
        run = Trial(context, TrialPlan(4, "single", ages="start", length_s=length_s, until="end"))
        threading.Thread(target=during, args=(run,), daemon=True).start()
        return run, run.run(into=[]).result
    finally:
        server.kill()


def kill(run):
    import ray

    until = time.perf_counter() + 60
    while run.load.recorder.total.batches < 5 and time.perf_counter() < until:
        time.sleep(0.02)
    ray.kill(run.load.run.hosts[1].channel.actor)


def main():
    connect("local")
    _, first = point(3.0)
    _, second = point(300.0, during=kill)
    import ray

    offset_s = clock_offset_s(ray.remote(num_cpus=0)(RayWorker).remote(None))
    ray.shutdown()
    answer = {
        "whole": first.model_dump(mode="json"),
        "killed": second.model_dump(mode="json"),
        "offset_s": offset_s,
        "workers": first.network.workers,
    }
    json.dump(answer, sys.stdout)


if __name__ == "__main__":
    main()
