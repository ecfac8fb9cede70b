"""Small profiles, loads and trial contexts on the simulated engine."""

import numpy as np

from metronome_cli.backends.in_process.backend import InProcessBackend
from metronome_cli.backends.in_process.run import StepRun
from metronome_cli.backends.interface import RunSetup
from metronome_cli.backends.simulated_engine import SimulatedEngine
from metronome_cli.capacity.context import TrialContext
from metronome_cli.capacity.offered_load import OfferedLoad, admit_all
from metronome_cli.capacity.trial import Trial
from metronome_cli.config.profile import Profile
from metronome_cli.core.stop import StopRequest
from metronome_cli.measure.objective import Objective
from metronome_cli.measure.recorder import Recorder
from metronome_cli.measure.stall import Still


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


def load_on(step_s, profile=None, sessions=(), slots=4096, admission=admit_all, stalls=None, **changes):
    """Planned sessions in front of a simulated engine."""
    context = context_on(step_s, profile, **changes)
    frame = context.profile.frame
    recorder = Recorder(frame.deadline_s * 1e3, [80.0], period_s=frame.period_s)
    setup = RunSetup(
        profile=context.profile,
        workload=context.workload,
        slots=slots,
        clock=context.clock,
        batching=context.batching,
        seed=0,
        record=recorder.record,
        stop=context.stop,
    )
    run = StepRun(SimulatedEngine(context.profile, slots, step_s), setup)
    load = OfferedLoad(run, recorder, context.stop, stalls or Still(), arrivals=sessions, admission=admission)
    load.begin()
    return load


class ObserverLog:
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


def context_on(
    step_s,
    profile=None,
    length_s=60.0,
    objectives=("p99<80ms", "empty<1%"),
    engine=lambda made: made,
    **changes,
):
    """The conditions of trials on a simulated engine, on the virtual clock; `engine` may wrap it."""
    profile = profile or small_profile()
    frame = profile.frame
    settings = {
        "backend": InProcessBackend(
            lambda profile, slots: engine(SimulatedEngine(profile, slots, step_s)), profile
        ),
        "profile": profile,
        "audio": Noise(frame.samples, frame.period_s),
        "objectives": [Objective.parse(text) for text in objectives],
        "clock": "virtual",
        "batching": "continuous",
        "session_length_s": length_s,
        "seed": 0,
        "observer": ObserverLog(),
        "stop": StopRequest(),
        "max_sessions": 512,
        **changes,
    }
    return TrialContext(**settings)


def builder_of(step_s, before_step=lambda count: None):
    """What builds the simulated engine as a command's backend."""

    def build(plan, observer):
        return InProcessBackend(
            lambda profile, slots: SimulatedEngine(profile, slots, step_s, before_step=before_step),
            plan.profile,
        )

    return build


def run_trial(step_s, plan, **changes):
    """The result of one trial on a simulated engine."""
    return Trial(context_on(step_s, **changes), plan).run(into=[]).result
