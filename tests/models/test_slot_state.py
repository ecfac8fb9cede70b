"""State of slots: fresh when opened, and never shared."""

from __future__ import annotations

import pytest
import torch

from metronome_cli.models.audio.slot_rows import SlotRows
from metronome_cli.models.sampling import Sampler


def test_a_reopened_slot_is_fresh_and_its_neighbours_are_untouched() -> None:
    rows = SlotRows(3, torch.device("cpu"))
    for slot in (5, 900, 7):
        rows.open(slot)
    rows.put([7, 5, 900], torch.tensor([[7.0] * 3, [5.0] * 3, [9.0] * 3]))
    rows.close(900)
    rows.open(900)
    assert rows.take([5, 900, 7])[:, 0].tolist() == [5.0, 0.0, 7.0]


def test_it_grows_and_keeps_what_it_had() -> None:
    rows = SlotRows(1, torch.device("cpu"))
    for slot in range(100):
        rows.open(slot)
        rows.put([slot], torch.tensor([[float(slot)]]))
    assert rows.take(range(100))[:, 0].tolist() == list(range(100))


def test_a_slot_opens_once() -> None:
    rows = SlotRows(1, torch.device("cpu"))
    rows.open(1)
    with pytest.raises(ValueError, match="open already"):
        rows.open(1)


def test_a_session_draws_the_same_in_any_batch() -> None:
    logits = torch.randn(2, 50, generator=torch.Generator().manual_seed(0))
    alone, together = Sampler(1.0, seed=3), Sampler(1.0, seed=3)
    alone.open(0)
    for slot in (0, 1):
        together.open(slot)
    one = [int(alone.pick([0], logits[:1])) for _ in range(20)]
    both = [together.pick([1, 0], logits.flip(0))[1].item() for _ in range(20)]
    assert one == both
    assert len(set(one)) > 3


def test_draws_follow_the_logits() -> None:
    """Temperature 2 halves the logits: shares 1 : e : e^2."""
    sampler = Sampler(2.0, seed=0)
    sampler.open(0)
    logits = torch.tensor([[0.0, 2.0, 4.0]])
    counts = torch.zeros(3)
    for _ in range(4000):
        counts[int(sampler.pick([0], logits))] += 1
    expected = torch.softmax(torch.tensor([0.0, 1.0, 2.0]), dim=0)
    assert torch.allclose(counts / 4000, expected, atol=0.03)


def test_zero_temperature_is_greedy() -> None:
    assert Sampler(0.0, seed=0).pick([9], torch.tensor([[1.0, 3.0, 2.0]])).tolist() == [1]
