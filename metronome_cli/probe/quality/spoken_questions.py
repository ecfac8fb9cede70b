"""Spoken questions in, text out, N sessions in one batch on the profile's own pool: quality under load.

What: every session's question is cut into the profile's frames and heard through the frame engine, as a call
would be, all sessions in step; then the model answers in text and the reference is scored, as in `turns`. A
conversation continues from question to question without a break, so its window slides as it ages. Beside the
answers:

    dropped   frames of sound that found no block in the pool and were not heard
    late      share of frame steps that took longer than the profile's deadline

Left out: the time of decoding an answer, since greedy answers are scored here, not paced; the voice (a
talker stays silent). Known error: a question's last frame is filled up with silence.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import torch

from metronome_cli.audio.library import AudioLibrary
from metronome_cli.config.profile import Profile
from metronome_cli.core.errors import UsageError
from metronome_cli.core.types import Audio, FrameInput, SessionRefused
from metronome_cli.engine.build_decoder import build_decoder
from metronome_cli.engine.frame_engine import FrameEngine
from metronome_cli.models.registry import LoadedModel, load_adapter
from metronome_cli.models.weights.model_files import ModelFiles
from metronome_cli.probe.quality.conversations import ANSWER_TOKENS, ConversationTurn, answer_all, feed, judge
from metronome_cli.probe.quality.material import Question, RecordedQuestion
from metronome_cli.probe.quality.subject import RANDOM_REFUSED, CacheVariant, ProbedModel
from metronome_cli.probe.quality.sweep import ProgressCallback, QualityProbe, QualitySweep, VariantResult
from metronome_cli.probe.quality.text_stream import ProgressCheck
from metronome_cli.probe.quality.tokenizer import read_tokens


@dataclass(frozen=True, slots=True)
class SpokenQuestion:
    """A recording of a question, and the content of a right answer. samples: [n] float32 at the profile's rate."""

    samples: Audio = field(repr=False)
    question: Question

    def frames(self, size: int) -> list[Audio]:
        """Its frames of `size` samples, the last filled up with silence."""
        whole = np.zeros(-(-len(self.samples) // size) * size, dtype=np.float32)
        whole[: len(self.samples)] = self.samples
        return list(whole.reshape(-1, size))


@dataclass(frozen=True, slots=True)
class ProbedSpeechModel(ProbedModel):
    """A speech model whose text can be scored."""

    loaded: LoadedModel
    profile: Profile

    def engine(self, variant: CacheVariant, sessions: int) -> FrameEngine:
        """A fresh engine under that variant on the profile's pool."""
        pool = self.profile.kv_pool
        if pool is None:
            raise UsageError(
                f"profile {self.profile.name}: pool: no budget is given", hint="name one in the profile"
            )
        stack = build_decoder(
            self.decoder,
            blocks=pool.block_count(self.profile.shape.kv_bytes_per_token),
            block_tokens=pool.block_size,
            policy=variant.policy,
            sink_positions=variant.sink_positions,
            context=self.context,
            chunk=self.loaded.chunk,
        )
        refuse = self.profile.on_pool_full == "refuse"
        return FrameEngine(self.loaded.fresh(), stack, sessions, "refuse" if refuse else "stall")


def load_speech_subject(profile: Profile, weights: Path, device: str, seed: int) -> ProbedSpeechModel:
    """A speech model from a checkpoint directory.

    Raises UsageError for random weights, an adapter whose text cannot be scored, or a missing tokenizer.
    """
    return speech_subject(profile, load_adapter(profile, weights=weights, device=device, seed=seed), weights)


def speech_subject(profile: Profile, loaded: LoadedModel, weights: Path) -> ProbedSpeechModel:
    """A loaded model as a subject, its tokenizer from `weights`."""
    if loaded.weights == "random":
        raise UsageError(
            f"profile {profile.name} has random weights: {RANDOM_REFUSED}",
            hint="--weights DIR names a checkpoint",
        )
    if loaded.vocabulary is None:
        raise UsageError(
            f"profile {profile.name}: the {profile.adapter} adapter has no text head that answers could be "
            "scored with",
            hint="a Qwen-Omni profile has one; --model takes any text decoder",
        )
    return ProbedSpeechModel(
        name=profile.name,
        source=loaded.weights,
        decoder=loaded.decoder,
        vocabulary=loaded.vocabulary,
        tokens=read_tokens(ModelFiles(weights)),
        context=profile.shape.need("context_length"),
        kv_bytes_per_token=profile.shape.kv_bytes_per_token,
        loaded=loaded,
        profile=profile,
    )


def spoken_questions(library: AudioLibrary, recorded: Sequence[RecordedQuestion]) -> list[SpokenQuestion]:
    """Questions whose recording is at hand. Raises UsageError when there is none, naming both sides."""
    by_name = {Path(clip.name).name: clip for clip in library.clips}
    known = [
        SpokenQuestion(by_name[Path(one.file).name].samples, one.question)
        for one in recorded
        if Path(one.file).name in by_name
    ]
    if not known:
        raise UsageError(
            f"--transcripts: none of its files, such as {recorded[0].file}, is among the recordings, such as "
            f"{min(by_name)}",
            hint="file names must agree",
        )
    return known


class SpeechQualityProbe(QualityProbe):
    """A sweep whose questions are spoken. `spoken` is what each session asks, turn by turn."""

    subject: ProbedSpeechModel

    def __init__(
        self,
        subject: ProbedSpeechModel,
        sweep: QualitySweep,
        spoken: Sequence[Sequence[SpokenQuestion]],
        progress: ProgressCallback = lambda what, done: True,
    ) -> None:
        texts = [question.question for talk in spoken[:1] for question in talk]
        super().__init__(subject, replace(sweep, questions=sweep.questions or texts), progress)
        self.subject = subject
        self._spoken = spoken

    def _ask(self, seen: VariantResult, watch: ProgressCheck) -> None:
        call = SpokenConversation(self.subject, seen.variant, self._spoken)
        seen.turns = call.run(watch)
        seen.dropped = call.dropped
        seen.late = call.late / call.steps if call.steps else None


class SpokenConversation:
    """All sessions of one variant, in step."""

    def __init__(
        self, subject: ProbedSpeechModel, variant: CacheVariant, spoken: Sequence[Sequence[SpokenQuestion]]
    ) -> None:
        self.dropped = self.late = self.steps = 0
        self._subject = subject
        self._spoken = spoken
        self._engine = subject.engine(variant, len(spoken))
        self._stack = self._engine.stack
        try:
            self._slots = [self._engine.open() for _ in spoken]
        except SessionRefused as refused:
            raise UsageError(
                f"--sessions {len(spoken)}: {refused}", hint="ask for fewer sessions"
            ) from refused
        self._gone: set[int] = set()

    def run(self, watch: ProgressCheck) -> list[ConversationTurn]:
        """Every turn, all sessions' first turns first; fewer if `watch` requested a stop."""
        found: list[ConversationTurn] = []
        for number in range(len(self._spoken[0]) if self._spoken else 0):
            found += self._turn(number)
            if not watch(len(found)):
                break
        return found

    @torch.inference_mode()
    def _turn(self, number: int) -> list[ConversationTurn]:
        tokens = self._subject.tokens
        asked = [talk[number] for talk in self._spoken]
        around = [tokens.around(one.question.question, first=number == 0) for one in asked]
        before = ([] if number == 0 else tokens.between()) + around[0][0]
        after = {slot: around[row][1] for row, slot in enumerate(self._slots)}
        heard = self._feed(self._present(), before)
        self._hear({slot: asked[self._slots.index(slot)] for slot in heard})
        references = {slot: tokens.answer(asked[row].question.answer) for row, slot in enumerate(self._slots)}
        room = max(ANSWER_TOKENS, *map(len, references.values()))
        able = [
            slot for slot in heard if slot not in self._gone and self._room(slot, len(after[slot]) + room)
        ]
        outcomes = {}
        if able:
            hidden = feed(self._stack, self._subject.vocabulary, able, [after[slot] for slot in able])
            replies = answer_all(self._stack, self._subject, able, hidden, [references[s] for s in able])
            outcomes = dict(zip(able, replies, strict=True))
        turns = []
        for row, slot in enumerate(self._slots):
            if slot in outcomes:
                turns.append(judge(outcomes[slot], row, number, asked[row].question))
            else:
                age = self._stack.length(slot) if slot not in self._gone else 0
                turns.append(ConversationTurn(row, number, age, "", False, False, None))
        return turns

    def _present(self) -> list[int]:
        return [slot for slot in self._slots if slot not in self._gone]

    def _room(self, slot: int, tokens: int) -> bool:
        return self._stack.reserve(slot, tokens)

    def _feed(self, slots: Sequence[int], ids: Sequence[int]) -> list[int]:
        """Those that had room for the tokens."""
        able = [slot for slot in slots if self._room(slot, len(ids))]
        if able and ids:
            feed(self._stack, self._subject.vocabulary, able, [ids] * len(able))
        return able

    def _hear(self, asked: dict[int, SpokenQuestion]) -> None:
        """All frames of these questions, those of one instant in one step."""
        frame = self._subject.profile.frame
        parts = {slot: spoken.frames(frame.samples) for slot, spoken in asked.items()}
        for at in range(max(map(len, parts.values()), default=0)):
            due = [
                FrameInput(slot, frames[at], 0)
                for slot, frames in parts.items()
                if at < len(frames) and slot not in self._gone
            ]
            if not due:
                return
            began_s = time.perf_counter()
            result = self._engine.step(due)
            self.steps += 1
            self.late += time.perf_counter() - began_s > frame.deadline_s
            self.dropped += sum(outcome.waiting for outcome in result.outcomes)
            self._gone |= {outcome.slot for outcome in result.outcomes if outcome.ended is not None}
