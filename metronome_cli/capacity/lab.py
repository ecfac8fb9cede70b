"""The conditions that all points of one command share, and the means to make a fresh engine for each."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, cast

import numpy as np

from metronome_cli.backends.in_process.driver import Batching, Driver
from metronome_cli.backends.in_process.paced_session import Turns
from metronome_cli.backends.in_process.population import AudioSource, Population
from metronome_cli.backends.step_engine import Target
from metronome_cli.config.profile import Profile
from metronome_cli.core.clock import ClockName, make_clock
from metronome_cli.core.stop import StopRequest
from metronome_cli.core.types import FrameInput, SessionRefused
from metronome_cli.load.arrivals import Arrival
from metronome_cli.load.door import Note
from metronome_cli.load.trace import LoopedAudio, NoRecorder, TraceRecorder, TraceTrial, trace_session
from metronome_cli.load.turn_taking import DrawnTurns
from metronome_cli.measure.confidence import batches_needed
from metronome_cli.measure.judge import EXTREME_SHARE, allowed_share, share_of
from metronome_cli.measure.ledger import Ledger
from metronome_cli.measure.objective import Objective
from metronome_cli.measure.stall import StallDetector, Still
from metronome_cli.results.events import Observer

TargetFactory = Callable[[Profile, int], Target]  # (profile with its policy, seats) -> a fresh engine


CONFIDENCE = 0.99
ROOM_FOR_BAD = 2.2  # times the steps that a run without a bad one needs: room for one or two


@dataclass(slots=True)
class Lab:
    """One command's conditions."""

    profile: Profile
    make_target: TargetFactory
    streams: AudioSource
    objectives: Sequence[Objective]
    clock: ClockName
    batching: Batching
    session_length_s: float
    seed: int
    observer: Observer
    stop: StopRequest
    max_sessions: int
    confidence: float = CONFIDENCE
    random_weights: bool = True
    began_s: float = field(default_factory=time.perf_counter)
    pulse: StallDetector | Still = field(default_factory=Still)
    progress: tuple[float, float] = (0.0, 1.0)  # the share of the command that the present phase spans
    furthest: float = 0.0  # share of the command that was shown as done: none that is shown later is less
    searching: bool = False  # how many points follow is not known: no share is, but that of the time
    budget_s: float | None = None  # wall time of a search since `began_s`; None: it takes what it takes
    recorder: TraceRecorder = field(default_factory=NoRecorder)
    turns: Callable[[int], Turns] | None = None  # who speaks when, by session; None: drawn from the seed

    told_by_server: ClassVar[bool] = False  # who runs and who waits: a server's own word, of its last scrape

    @property
    def steps_needed(self) -> int:
        """Steps without a bad one that prove every objective."""
        return batches_to_prove(self.objectives, self.confidence)

    @property
    def deadline_ms(self) -> float:
        return self.profile.frame.deadline_s * 1e3

    @property
    def period_s(self) -> float:
        return self.profile.frame.period_s

    def fresh_target(self, seats: int) -> Target:
        """An engine on which nothing has run yet."""
        return self.make_target(self.profile, seats)

    def ledger(self) -> Ledger:
        """An empty ledger that counts what the objectives ask for."""
        limits = {o.limit for o in self.objectives if allowed_share(o.metric) is not None}
        return Ledger(self.deadline_ms, sorted(limits))

    @property
    def loop(self) -> LoopedAudio:
        """The audio, where it is a loop of which any stretch can be had: in every command's lab."""
        return cast(LoopedAudio, self.streams)

    def turns_of(self, index: int) -> Turns:
        """Who speaks when in session `index`."""
        if self.turns is not None:
            return self.turns(index)
        turns = self.profile.turn_taking
        return DrawnTurns(turns.speaking_share, turns.mean_turn, seed=self.seed * 1_000_003 + index)

    def note(self, head: TraceTrial | None) -> Note | None:
        """Who writes down the callers of a run that begins now; None when it is not recorded."""
        take = None if head is None else self.recorder.begin(head)
        if take is None:
            return None

        def write_down(index: int, arrival: Arrival) -> None:
            take(trace_session(index, arrival, self.loop, self.turns_of(index), self.period_s))

        return write_down

    def driver(self, seats: int, head: TraceTrial | None = None) -> Driver:
        """A fresh engine with `seats` seats, nobody in them, a clock at 0 and an empty ledger.

        With a `head` its load is recorded, if the command records; `recorder.end` says when it is over.
        """
        target = self.fresh_target(seats)
        warm_up_engine(target, self.profile)
        population = Population(
            target,
            self.profile,
            self.streams,
            self.turns_of,
            aligned=self.batching == "periodic",
            note=self.note(head),
        )
        return Driver(
            population,
            make_clock(self.clock),
            self.ledger(),
            batching=self.batching,
            stopped=self.stop,
            pulse=self.pulse,
        )


def batches_to_prove(objectives: Sequence[Objective], confidence: float) -> int:
    """Steps without a bad one that prove every one of these objectives."""
    shares = [share_of(objective) for objective in objectives]
    return max(batches_needed(share, confidence) for share in (*shares, EXTREME_SHARE) if share is not None)


def batches_to_confirm(needed: int, at_least: int) -> int:
    """The most steps of a judged run whose objectives need `needed` without a bad one."""
    return max(at_least, round(ROOM_FOR_BAD * needed))


def warm_up_engine(target: Target, profile: Profile, steps: int = 4) -> None:
    """A few frames of silence through one seat: what only the first steps of an engine pay is paid before time 0."""
    try:
        slot = target.open()
    except SessionRefused:
        return  # whoever is seated for the record will be refused too, and counted
    silence = np.zeros(profile.frame.samples, dtype=np.float32)
    for _ in range(steps):
        result = target.step([FrameInput(slot, silence, profile.tokens.decode.speaking)])
        if result.outcomes[0].ended is not None:
            return
    target.close(slot)
