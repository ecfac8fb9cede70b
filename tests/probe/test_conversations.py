"""Questions: an answer that was taken back leaves no trace, and every variant has the same talk behind it."""

from __future__ import annotations

import numpy as np

from metronome_cli.config.cache_policy import CachePolicySpec
from metronome_cli.probe.quality import conversations as turns_module
from metronome_cli.probe.quality.conversations import agreement, answered, ask_questions, conversations
from metronome_cli.probe.quality.material import Question, bundled_questions
from metronome_cli.probe.quality.subject import UNBOUNDED, CacheVariant
from metronome_cli.probe.quality.text_stream import stream_losses
from tests.probe.toy import toy_subject

SUBJECT = toy_subject()
TALKS = conversations(bundled_questions(), 3, 4)


def test_a_reference_is_scored_as_if_nothing_had_been_answered() -> None:
    tokens, stream, spans = SUBJECT.tokens, [], []
    for number, question in enumerate(TALKS[1]):
        stream += ([] if number == 0 else tokens.between()) + tokens.turn(question.asked, first=number == 0)
        reply = tokens.answer(question.answer)
        spans.append((len(stream) - 1, len(stream) - 1 + len(reply)))
        stream += reply
    losses = stream_losses(SUBJECT, UNBOUNDED, stream)
    asked = [turn for turn in ask_questions(SUBJECT, UNBOUNDED, TALKS) if turn.session == 1]
    for turn, (start, stop) in zip(asked, spans, strict=True):
        np.testing.assert_allclose(turn.loss, losses[start:stop].mean(), atol=1e-4)
        assert turn.age == start + 1


def test_sessions_do_not_hear_each_other() -> None:
    variant = CacheVariant(CachePolicySpec("window", 48, 4))
    together = [turn for turn in ask_questions(SUBJECT, variant, TALKS) if turn.session == 2]
    alone = ask_questions(SUBJECT, variant, TALKS[2:])
    assert [turn.answer for turn in together] == [turn.answer for turn in alone]
    np.testing.assert_allclose([t.loss for t in together], [t.loss for t in alone], atol=1e-4)


def test_answers_end_or_reach_their_length() -> None:
    for turn in ask_questions(SUBJECT, UNBOUNDED, TALKS):
        words = len(turn.answer.split())
        assert words == turns_module.ANSWER_TOKENS or (turn.ended and words < turns_module.ANSWER_TOKENS)


def test_a_stop_keeps_the_turns_done() -> None:
    assert len(ask_questions(SUBJECT, UNBOUNDED, TALKS, lambda done: done < 6)) == 6


def test_keywords_are_whole_words_in_any_case() -> None:
    question = Question("", "?", "It is red.", ("Red", "two vans"))
    assert answered("RED, and two vans!", question)
    assert not answered("reddish two vans", question)
    assert not answered("red and two", question)
    assert answered("well, it is RED", Question("", "?", "It is red.", ()))


def test_agreement_is_symmetric_and_between_0_and_1() -> None:
    assert agreement("The red bus", "the red bus.") == 1
    assert agreement("red", "blue") == 0
    assert agreement("", "") == 1
    assert agreement("a b c", "a b") == agreement("a b", "a b c") == 0.8


def test_every_own_question_is_answered_by_its_reference_from_its_context() -> None:
    for question in bundled_questions():
        assert answered(question.answer, question), question
        assert not answered("I do not know.", question)
        for word in question.keywords:
            assert word.lower() in question.context.lower()
