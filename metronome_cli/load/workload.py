"""What the sessions of a trial say and hear: drawn from a seed, or taken from a load trace."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from metronome_cli.config.frame import TurnTaking
from metronome_cli.core.session import TurnSchedule
from metronome_cli.load.misbehaving import MisbehavingSessions
from metronome_cli.load.script import Script
from metronome_cli.load.trace import LoopedAudio, RecordedAudio, RecordedTrial, RecordedTurns
from metronome_cli.load.turn_taking import DrawnTurns


@dataclass(frozen=True, slots=True)
class Workload:
    """Audio and turns of a trial's sessions, by their index."""

    audio: LoopedAudio
    turns: Callable[[int], TurnSchedule]
    misbehaving: MisbehavingSessions = field(
        default_factory=MisbehavingSessions
    )  # streaming sessions that misbehave
    script: Script | None = None  # when the users of a streaming session speak; None: all the time


def generated_workload(
    audio: LoopedAudio,
    turn_taking: TurnTaking,
    seed: int,
    script: Script | None = None,
    misbehaving: MisbehavingSessions | None = None,
) -> Workload:
    """TurnTaking drawn from the seed, for each session its own."""

    def drawn(index: int) -> TurnSchedule:
        return DrawnTurns(turn_taking.speaking_share, turn_taking.mean_turn, seed=seed * 1_000_003 + index)

    return Workload(audio, drawn, misbehaving or MisbehavingSessions(), script)


def recorded_workload(run: RecordedTrial, loop: LoopedAudio, period_s: float) -> Workload:
    """The audio, phases and turns of a recorded trial, out of the same loop."""
    return Workload(RecordedAudio(run, loop), lambda index: RecordedTurns(run.sessions[index], period_s))
