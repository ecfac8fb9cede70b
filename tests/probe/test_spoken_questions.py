"""Spoken questions through the frame engine: a fake that counts as trained stands in for a checkpoint."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from metronome_cli.audio.library import AudioLibrary, Clip
from metronome_cli.config.cache_policy import CachePolicySpec
from metronome_cli.core.errors import UsageError
from metronome_cli.engine.projection import Projection
from metronome_cli.models.decoding import Vocabulary
from metronome_cli.models.registry import load_adapter
from metronome_cli.probe.quality.conversations import conversations
from metronome_cli.probe.quality.material import Question, bundled_transcripts
from metronome_cli.probe.quality.spoken_questions import (
    ProbedSpeechModel,
    SpeechQualityProbe,
    SpokenConversation,
    SpokenQuestion,
    speech_subject,
    spoken_questions,
)
from metronome_cli.probe.quality.subject import UNBOUNDED, CacheVariant
from metronome_cli.probe.quality.sweep import QualitySweep, grid
from metronome_cli.probe.quality_part import quality_part
from tests.models import omni
from tests.probe.toy import END, ToyTokens

WINDOW = CacheVariant(CachePolicySpec("window", 64, 4))


def subject(blocks: int = 256, lift: float = 6.0) -> ProbedSpeechModel:
    """A tiny speech model whose head favours the tokenizer's own words by `lift`, as if it had learned them."""
    profile = omni.profile("qwen2.5", kv_pool={"blocks": blocks})
    loaded = load_adapter(profile, weights=None, device="cpu", seed=2)
    assert loaded.vocabulary is not None
    bias = torch.zeros(omni.VOCAB)
    bias[:64] = lift
    bias[END] = lift + 1
    head = torch.randn(omni.VOCAB, omni.HIDDEN, generator=torch.Generator().manual_seed(0)) * 0.1
    vocabulary = Vocabulary(loaded.vocabulary.embedding, Projection(head, bias))
    return ProbedSpeechModel(
        name="fake",
        source="a fake that counts as trained",
        decoder=loaded.decoder,
        vocabulary=vocabulary,
        tokens=ToyTokens(),
        context=4096,
        kv_bytes_per_token=profile.shape.kv_bytes_per_token,
        loaded=replace(loaded, weights="fake", vocabulary=vocabulary),
        profile=profile,
    )


def spoken(number: int, seconds: float = 3.0) -> SpokenQuestion:
    samples = np.random.default_rng(number).normal(0, 0.1, round(16_000 * seconds)).astype(np.float32)
    return SpokenQuestion(
        samples, Question("", f"what about {number}", f"it is number {number}", (str(number),))
    )


TALKS = conversations([spoken(number) for number in range(4)], 3, 3)


def test_a_recording_is_cut_into_frames_and_filled_with_silence() -> None:
    frames = spoken(0).frames(32_000)
    assert [len(frame) for frame in frames] == [32_000, 32_000]
    assert not frames[1][16_000:].any()
    assert frames[1][:16_000].any()


def test_sessions_answer_alike_alone_or_together() -> None:
    together = [
        turn
        for turn in SpokenConversation(subject(), WINDOW, TALKS).run(lambda done: True)
        if turn.session == 1
    ]
    alone = SpokenConversation(subject(), WINDOW, TALKS[1:2]).run(lambda done: True)
    assert [turn.answer for turn in together] == [turn.answer for turn in alone]
    np.testing.assert_allclose(
        [turn.loss or np.nan for turn in together], [turn.loss or np.nan for turn in alone], rtol=1e-3
    )


def test_what_is_said_is_heard() -> None:
    other = [[replace(question, samples=question.samples[::-1].copy()) for question in TALKS[0]]]
    first, second = (
        SpokenConversation(subject(), UNBOUNDED, talk).run(lambda d: True) for talk in (TALKS[:1], other)
    )
    assert [turn.loss for turn in first] != [turn.loss for turn in second]


def test_under_load_an_unbounded_pool_runs_out_and_a_window_holds() -> None:
    crowded = subject(blocks=3 * 13)
    whole, bounded = SpokenConversation(crowded, UNBOUNDED, TALKS), SpokenConversation(crowded, WINDOW, TALKS)
    lost, kept = whole.run(lambda done: True), bounded.run(lambda done: True)
    assert whole.dropped > 0
    assert any(turn.loss is None and not turn.keywords for turn in lost)
    assert bounded.dropped == 0
    assert all(turn.loss is not None for turn in kept)
    assert bounded.steps == 6
    assert 0 <= bounded.late <= bounded.steps


def test_the_sweep_reports_speech_beside_unbounded() -> None:
    sweep = QualitySweep(grid([64], [4], ["rolling"]), turns=3, sessions=3)
    prober = SpeechQualityProbe(subject(), sweep, TALKS)
    prober.run()
    part = quality_part(prober, "", 0.05)
    assert [one.name for one in part.variants] == ["unbounded", "window(64, 0)", "window(64, 4)"]
    for one in part.variants:
        assert one.turns is not None
        assert one.turns.turns == 9
        assert one.turns.dropped_frames == 0
        assert one.turns.late_step_share is not None
    assert part.variants[2].turns.excess_loss_nats is not None  # type: ignore[union-attr]
    assert part.text is None


def test_weights_that_answer_no_better_than_a_guess_are_refused() -> None:
    prober = SpeechQualityProbe(subject(lift=0.0), QualitySweep(grid([64], [4]), turns=3, sessions=3), TALKS)
    with pytest.raises(UsageError, match="no better than a guess"):
        prober.run()


def test_random_weights_and_models_without_text_are_refused() -> None:
    profile = omni.profile("qwen2.5")
    loaded = load_adapter(profile, weights=None, device="cpu", seed=2)
    with pytest.raises(UsageError, match="random weights"):
        speech_subject(profile, loaded, Path("nowhere"))
    with pytest.raises(UsageError, match="no text head"):
        speech_subject(profile, replace(loaded, weights="fake", vocabulary=None), Path("nowhere"))


def test_recordings_meet_their_questions_by_name() -> None:
    clip = Clip("calls/en-us-hurry.flac", np.zeros(16, dtype=np.float32), 0.001)
    found = spoken_questions(AudioLibrary(16_000, (clip,)), bundled_transcripts())
    assert [one.question.keywords for one in found] == [("blue",)]
    with pytest.raises(UsageError, match="such as other"):
        spoken_questions(AudioLibrary(16_000, (replace(clip, name="other.wav"),)), bundled_transcripts())
