"""Losses of a text: what the engine's chunks say equals one token at a time, whatever stays resident."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from metronome_cli.config.cache_policy import CachePolicySpec
from metronome_cli.core.errors import UsageError
from metronome_cli.probe.quality.subject import UNBOUNDED, CacheVariant, ProbedModel, refuse_untrained
from metronome_cli.probe.quality.text_stream import chunk_of, losses_of, stream_losses
from tests.probe.toy import stream_of, toy_subject

SUBJECT = toy_subject()
STREAM = stream_of(SUBJECT, 300)


def one_by_one(subject: ProbedModel, variant: CacheVariant, ids: list[int]) -> np.ndarray:
    """The same losses, each token in a forward of its own."""
    stack = subject.stack(variant, tokens=len(ids))
    stack.open(0)
    found = []
    for token, following in itertools.pairwise(ids):
        stack.reserve(0, 1)
        hidden = stack.forward([0], subject.vocabulary.embed([token])[:, None], [1])
        found.append(losses_of(subject.vocabulary.logits(hidden), [following]))
    return np.concatenate(found)


@pytest.mark.parametrize("policy", ["unbounded", "window(64, 0)", "window(40, 4)", "window(256, 16)"])
@pytest.mark.parametrize("positions", ["absolute", "rolling"])
def test_chunks_equal_one_token_at_a_time(policy: str, positions: str) -> None:
    variant = CacheVariant(CachePolicySpec.parse(policy), positions)  # type: ignore[arg-type]
    chunked, single = stream_losses(SUBJECT, variant, STREAM), one_by_one(SUBJECT, variant, STREAM)
    assert chunked.shape == single.shape == (len(STREAM) - 1,)
    if variant.policy.sinks and positions == "rolling":
        assert np.abs(chunked - single).mean() < 0.05  # sinks stand still within a chunk
    else:
        np.testing.assert_allclose(chunked, single, atol=2e-4)


def test_a_window_wider_than_the_stream_changes_nothing() -> None:
    wide = CacheVariant(CachePolicySpec("window", 512, 4))
    np.testing.assert_allclose(
        stream_losses(SUBJECT, wide, STREAM), stream_losses(SUBJECT, UNBOUNDED, STREAM), atol=1e-4
    )


def test_losses_differ_only_once_the_window_slides() -> None:
    variant = CacheVariant(CachePolicySpec("window", 64, 0))
    bounded, whole = stream_losses(SUBJECT, variant, STREAM), stream_losses(SUBJECT, UNBOUNDED, STREAM)
    np.testing.assert_allclose(bounded[:64], whole[:64], atol=1e-4)
    assert np.abs(bounded[64:] - whole[64:]).max() > 1e-2


def test_a_stop_keeps_what_was_measured() -> None:
    losses = stream_losses(SUBJECT, UNBOUNDED, STREAM, lambda done: done < 100)
    assert 100 <= len(losses) < 140


def test_chunks_stay_well_below_the_window() -> None:
    for window in (8, 40, 256, 4096):
        assert 1 <= chunk_of(CacheVariant(CachePolicySpec("window", window, 4))) <= max(1, window // 8)


def test_weights_no_better_than_a_guess_are_refused() -> None:
    with pytest.raises(UsageError, match="no better than a guess"):
        refuse_untrained(math.log(len(SUBJECT.vocabulary.embedding)), SUBJECT)
    with pytest.raises(UsageError):
        refuse_untrained(math.nan, SUBJECT)
    refuse_untrained(1.0, SUBJECT)
