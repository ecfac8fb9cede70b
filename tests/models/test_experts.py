"""Ways through a mixture of experts, against each other and against one token at a time."""

from __future__ import annotations

import pytest
import torch

from metronome_cli.models.weights.experts import Experts, ExpertShape

SHAPE = ExpertShape(count=5, per_token=2, mlp=16)


def experts(dtype: torch.dtype = torch.float32) -> Experts:
    generator = torch.Generator().manual_seed(3)

    def draw(*shape: int) -> torch.Tensor:
        return (torch.randn(shape, generator=generator) * 0.3).to(dtype)

    return Experts(SHAPE, router=draw(5, 32), gate_up=draw(5, 32, 32), down=draw(5, 32, 16))


def routed(made: Experts, tokens: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    x = torch.randn(tokens, 32, generator=torch.Generator().manual_seed(tokens)).to(made.router.dtype)
    return x, *made._route(x)


@pytest.mark.parametrize("tokens", [1, 7, 64])
def test_dense_and_sorted_ways_agree(tokens: int) -> None:
    made = experts()
    x, weights, chosen = routed(made, tokens)
    dense = made.dense(x, weights, chosen)
    torch.testing.assert_close(made.sorted(x, weights, chosen, grouped=False), dense, atol=1e-5, rtol=1e-4)


def test_a_tokens_answer_does_not_depend_on_its_batch() -> None:
    made = experts()
    x = torch.randn(9, 32)
    torch.testing.assert_close(made(x), torch.cat([made(row[None]) for row in x]), atol=1e-5, rtol=1e-4)


def test_chosen_weights_sum_to_one_where_they_are_normalised() -> None:
    _, weights, chosen = routed(experts(), 6)
    torch.testing.assert_close(weights.sum(-1), torch.ones(6))
    assert chosen.shape == (6, 2)
