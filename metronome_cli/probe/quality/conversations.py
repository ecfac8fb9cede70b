"""Questions with their context in the window, answers ended by the model itself.

What: one long conversation a session, all sessions in one batch. A turn is a passage and a question about it; the
model answers greedily up to its end-of-answer token or `ANSWER_TOKENS`. Then that answer is taken back, and
the reference answer is fed in its place and scored, so all variants have the same conversation behind them
and differ only in what they can still see of it. For each turn:

    loss       mean nats a token of the reference, its end token included
    keywords   whether the answer holds every keyword (case and punctuation ignored; without keywords, whether
               it holds the reference's words)
    agreement  F1 of the answer's words with those of the unbounded model's answer to the same turn
    ended      whether the answer ended by itself

Left out: the time that it took. Known error: a model that answers rightly in other words fails the keywords.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

import torch
from torch import Tensor

from metronome_cli.core.errors import EngineError
from metronome_cli.engine.paged_decoder import PagedDecoder
from metronome_cli.models.decoding import Vocabulary, decode_replies, prefill
from metronome_cli.probe.quality.material import Question
from metronome_cli.probe.quality.subject import CacheVariant, ProbedModel
from metronome_cli.probe.quality.text_stream import ProgressCheck, losses_of
from metronome_cli.probe.quality.tokenizer import Tokenizer

Q = TypeVar("Q")

ANSWER_TOKENS = 32
CHUNK = 32


class AskedQuestion(Protocol):
    """A model that answers questions: a text model or a speech model."""

    @property
    def vocabulary(self) -> Vocabulary: ...

    @property
    def tokens(self) -> Tokenizer: ...


@dataclass(frozen=True, slots=True)
class ConversationTurn:
    """One question's outcome. `age`: tokens that the session had seen when the answer began. loss: None where
    the session found no room to answer in."""

    session: int
    number: int
    age: int
    answer: str
    ended: bool
    keywords: bool
    loss: float | None


def conversations(questions: Sequence[Q], sessions: int, turns: int) -> list[list[Q]]:
    """`turns` questions for each session: each goes round the set from a start of its own."""
    step = max(1, len(questions) // max(1, sessions))
    return [
        [questions[(session * step + turn) % len(questions)] for turn in range(turns)]
        for session in range(sessions)
    ]


def ask_questions(
    subject: ProbedModel,
    variant: CacheVariant,
    talks: Sequence[Sequence[Question]],
    watch: ProgressCheck = lambda done: True,
) -> list[ConversationTurn]:
    """Every turn, all sessions' first turns first; fewer if `watch` (turns done) requested a stop."""
    turns = len(talks[0]) if talks else 0
    asked = [[_asked(subject, q, number == 0) for number, q in enumerate(talk)] for talk in talks]
    replies = [[subject.tokens.answer(q.answer) for q in talk] for talk in talks]
    total = max((_total(*pair) for pair in zip(asked, replies, strict=True)), default=0)
    room = max(CHUNK, ANSWER_TOKENS, *(len(ids) for talk in replies for ids in talk))
    stack = subject.stack(variant, tokens=total + room, sessions=len(talks), chunk=room)
    slots = list(range(len(talks)))
    for slot in slots:
        stack.open(slot)
    found: list[ConversationTurn] = []
    for number in range(turns):
        hidden = feed(stack, subject.vocabulary, slots, [talk[number] for talk in asked])
        outcomes = answer_all(stack, subject, slots, hidden, [talk[number] for talk in replies])
        for slot, outcome in zip(slots, outcomes, strict=True):
            found.append(judge(outcome, slot, number, talks[slot][number]))
        if not watch(len(found)):
            break
    return found


def _asked(subject: ProbedModel, question: Question, first: bool) -> list[int]:
    between = [] if first else subject.tokens.between()
    return between + subject.tokens.turn(question.asked, first=first)


def _total(asked: Sequence[Sequence[int]], replies: Sequence[Sequence[int]]) -> int:
    return sum(map(len, asked)) + sum(map(len, replies))


def feed(
    stack: PagedDecoder, vocabulary: Vocabulary, slots: Sequence[int], rows: Sequence[Sequence[int]]
) -> Tensor:
    """Append rows of tokens of any length; the state after each one's last, [slots, hidden]."""
    hidden = torch.zeros(len(slots), stack.hidden_size, dtype=stack.dtype, device=stack.device)
    for at in range(0, max(map(len, rows)), CHUNK):
        live = [row for row, ids in enumerate(rows) if len(ids) > at]
        parts = [rows[row][at : at + CHUNK] for row in live]
        for row, part in zip(live, parts, strict=True):
            need_room(stack, slots[row], len(part))
        hidden[live] = prefill(
            stack, [slots[row] for row in live], [vocabulary.embed(part) for part in parts]
        )
    return hidden


def need_room(stack: PagedDecoder, slot: int, tokens: int) -> None:
    """Reserve; raises EngineError if no block is free."""
    if not stack.reserve(slot, tokens):
        raise EngineError("no block of the KV pool is free")


@dataclass(frozen=True, slots=True)
class AnswerOutcome:
    """An answer, token by token, and what its reference cost. `age`: tokens seen before the answer."""

    age: int
    text: str
    ended: bool
    loss: float


@torch.inference_mode()
def answer_all(
    stack: PagedDecoder,
    subject: AskedQuestion,
    slots: Sequence[int],
    hidden: Tensor,
    references: Sequence[Sequence[int]],
) -> list[AnswerOutcome]:
    """Each slot answers from its state, [slots, hidden]; then the reference takes the answer's place."""
    ages = [stack.length(slot) for slot in slots]
    for slot, reference in zip(slots, references, strict=True):
        need_room(stack, slot, max(ANSWER_TOKENS, len(reference)))
    speakers = [_Answer(subject.tokens.ends) for _ in slots]
    decode_replies(
        stack, slots, hidden, speakers, vocabulary=subject.vocabulary, pick=lambda _, logits: logits.argmax(1)
    )
    found = []
    for row, slot in enumerate(slots):
        stack.rewind(slot, ages[row])
        loss = _reference(stack, subject, slot, hidden[row], references[row])
        said = speakers[row].tokens
        text = subject.tokens.decode(said[:-1] if speakers[row].ended else said).strip()
        found.append(AnswerOutcome(ages[row], text, speakers[row].ended, loss))
    return found


def _reference(
    stack: PagedDecoder, subject: AskedQuestion, slot: int, hidden: Tensor, reference: Sequence[int]
) -> float:
    """Feed the reference; its mean nats a token, the first predicted by `hidden`, [hidden]."""
    states = stack.states(slot, subject.vocabulary.embed(reference).to(stack.dtype))
    before = torch.cat((hidden[None], states[:-1]))
    return float(losses_of(subject.vocabulary.logits(before), reference).mean())


@dataclass(slots=True)
class _Answer:
    """Implements `models.decoding.ReplyRule`: decode until an ending token, or `ANSWER_TOKENS`."""

    ends: frozenset[int]
    tokens: list[int] = field(default_factory=list)
    states: list[Tensor] = field(default_factory=list)

    @property
    def ended(self) -> bool:
        return bool(self.tokens) and self.tokens[-1] in self.ends

    @property
    def wants_more(self) -> bool:
        return not self.ended and len(self.tokens) < ANSWER_TOKENS

    def accept(self, token: int) -> bool:
        self.tokens.append(token)
        return self.wants_more


def judge(outcome: AnswerOutcome, session: int, number: int, question: Question) -> ConversationTurn:
    """The turn that an outcome makes."""
    right = answered(outcome.text, question)
    return ConversationTurn(session, number, outcome.age, outcome.text, outcome.ended, right, outcome.loss)


def words_of(text: str) -> list[str]:
    """Its words in lower case, without punctuation."""
    return re.findall(r"[^\W_]+", text.lower())


def answered(text: str, question: Question) -> bool:
    """Whether the answer holds every keyword, as it is or with an s; without keywords, every word of the
    reference."""
    said = f" {' '.join(words_of(text))} "
    wanted = [" ".join(words_of(word)) for word in question.keywords] or words_of(question.answer)
    return all(f" {word} " in said or f" {word}s " in said for word in wanted)


def agreement(one: str, other: str) -> float:
    """F1 of the words of two answers: 1 if they are the same words, 0 if they share none."""
    first, second = Counter(words_of(one)), Counter(words_of(other))
    if not first or not second:
        return float(first == second)
    shared = (first & second).total()
    return 2 * shared / (first.total() + second.total())
