"""Checkpoint layouts as tables of names: `Rule("layers.{n}.output", ("transformer.layers.{n}.out",))`.

`{n}` stands for a number, the same one on both sides. A star in a source, `"linears.*.weight"`, is the steps
0, 1, ... of a stack, all of which are read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from metronome_cli.models.weights.checkpoint import CheckpointLayout, TensorRecipe

TensorBuilder = Callable[[Sequence[Tensor]], Tensor]


def as_is(tensors: Sequence[Tensor]) -> Tensor:
    """The one tensor as it is."""
    return tensors[0]


def flattened(tensors: Sequence[Tensor]) -> Tensor:
    """A vector that was stored with dimensions of 1 around it."""
    return tensors[0].flatten()


def squeezed(tensors: Sequence[Tensor]) -> Tensor:
    """The matrix of a convolution of kernel 1."""
    return tensors[0].squeeze(-1)


def concatenated(tensors: Sequence[Tensor]) -> Tensor:
    """Rows of all, one after another."""
    return torch.cat(list(tensors))


def stacked(tensors: Sequence[Tensor]) -> Tensor:
    """One tensor a step: [steps, ...]."""
    return torch.stack(list(tensors))


@dataclass(frozen=True, slots=True)
class NameRule:
    """Where the tensor `wanted` is found, and how it is made of what is read."""

    wanted: str
    sources: tuple[str, ...]
    build: TensorBuilder = as_is


def layout(rules: Sequence[NameRule], *, prefix: str = "", steps: int = 0) -> CheckpointLayout:
    """The rules as a layout, `prefix` before each source name, stars spelled out for `steps` steps."""
    compiled = [(re.compile(_pattern(rule.wanted)), rule) for rule in rules]

    def find(name: str) -> TensorRecipe | None:
        for pattern, rule in compiled:
            match = pattern.fullmatch(name)
            if match:
                number = match.groupdict().get("n", "")
                named = [prefix + source.replace("{n}", number) for source in rule.sources]
                return TensorRecipe(tuple(_spelled(named, steps)), rule.build)
        return None

    return find


def _pattern(wanted: str) -> str:
    return re.escape(wanted).replace(r"\{n\}", r"(?P<n>\d+)")


def _spelled(sources: Sequence[str], steps: int) -> list[str]:
    """Every source; those with a star once for each step, all sources of a step before the next."""
    if not any("*" in source for source in sources):
        return list(sources)
    return [source.replace("*", str(step)) for step in range(steps) for source in sources]


def half_rotary(weight: Tensor, heads: int) -> Tensor:
    """Rows of a query or key matrix from interleaved rotary pairs (0, 1), (2, 3), ... to the half layout.

    weight: [heads x dim, in]. Pairs (2 i, 2 i + 1) of each head become (i, i + dim / 2).
    """
    rows, width = weight.shape
    return weight.view(heads, rows // heads // 2, 2, width).transpose(1, 2).reshape(rows, width)


def half_rotary_qkv(heads: int) -> TensorBuilder:
    """Queries, keys and values in one matrix [3 x heads x dim, in], queries and keys to the half layout."""

    def build(tensors: Sequence[Tensor]) -> Tensor:
        query, key, value = tensors[0].chunk(3)
        return torch.cat([half_rotary(query, heads), half_rotary(key, heads), value])

    return build
