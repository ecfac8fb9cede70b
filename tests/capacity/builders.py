"""Small profiles, drivers and labs on the simulated target."""

import numpy as np

from metronome_cli.backends.in_process.driver import Driver
from metronome_cli.backends.in_process.population import Population
from metronome_cli.backends.simulated_engine import SimulatedEngine
from metronome_cli.capacity.lab import Lab
from metronome_cli.config.profile import Profile
from metronome_cli.core.clock import VirtualClock
from metronome_cli.core.stop import StopRequest
from metronome_cli.load.turn_taking import DrawnTurns
from metronome_cli.measure.ledger import Ledger
from metronome_cli.measure.objective import Objective


def small_profile(policy="window(64, 16)", blocks=2000, backlog_limit=25, max_batch=256, **changes):
    return Profile.model_validate(
        {
            "name": "small",
            "title": "a small simulated model",
            "frame": {"period": "80ms", "sample_rate": 16000, "max_backlog": backlog_limit},
            "tokens": {"prefill": 2, "decode": {"listening": 1, "speaking": 2}},
            "turn_taking": {"speaking_share": 0.5, "mean_turn": "8s"},
            "shape": {
                "layers": 1, "heads": 2, "kv_heads": 1, "head_dim": 8, "hidden_size": 16, "intermediate_size": 32,
                "vocab_size": 64, "dtype": "float32", "context_length": 65536,
            },
            "kv_pool": {"blocks": blocks, "block_size": 16},
            "policy": policy,
            "max_batch_size": max_batch,
            "objectives": ["p99<80ms", "empty<1%"],
            **changes,
        }
    )  # fmt: skip


def always(seconds):
    return lambda batch: seconds


class Noise:
    """Distinct noise for each session."""

    def __init__(self, samples, period_s):
        self._samples, self._period_s = samples, period_s

    def stream(self, index):
        return NoiseStream(index, self._samples)

    def phase_s(self, index):
        return index * 0.6180339887 % 1.0 * self._period_s


class NoiseStream:
    def __init__(self, index, samples):
        self._index, self._samples = index, samples

    def frame(self, k):
        rng = np.random.default_rng([self._index, k])
        return rng.standard_normal(self._samples).astype(np.float32) * 0.1


def driver_on(step_s, profile=None, seats=4096, **kwargs):
    profile = profile or small_profile()
    frame = profile.frame
    target = SimulatedEngine(profile, seats, step_s)
    population = Population(
        target,
        profile,
        Noise(frame.samples, frame.period_s),
        lambda index: DrawnTurns(profile.turns.speaking_share, profile.turns.turn, seed=index),
    )
    return Driver(population, VirtualClock(), Ledger(frame.deadline_s * 1e3, [80.0]), **kwargs)


class Recorder:
    """An observer that keeps what it was told."""

    def __init__(self):
        self.phases, self.snapshots, self.events, self.notices = [], [], [], []
        self.details = []  # of the phases

    def phase(self, name, detail):
        self.phases.append(name)
        self.details.append(detail)

    def snapshot(self, snapshot):
        self.snapshots.append(snapshot)

    def event(self, kind, data):
        self.events.append((kind, data))

    def notice(self, message):
        self.notices.append(message)

    def close(self):
        pass


def lab_on(step_s, profile=None, length_s=60.0, objectives=("p99<80ms", "empty<1%"), **changes):
    profile = profile or small_profile()
    frame = profile.frame
    settings = {
        "profile": profile,
        "make_target": lambda profile, seats: SimulatedEngine(profile, seats, step_s),
        "streams": Noise(frame.samples, frame.period_s),
        "objectives": [Objective.parse(text) for text in objectives],
        "clock": "virtual",
        "batching": "continuous",
        "session_length_s": length_s,
        "seed": 0,
        "observer": Recorder(),
        "stop": StopRequest(),
        "max_sessions": 512,
        **changes,
    }
    return Lab(**settings)
