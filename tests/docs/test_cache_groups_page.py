"""The tables of `docs/cache-groups.md` are what the profiles and the cases give."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from metronome_cli.config.cache_groups import CacheGroup, growing_bytes_per_token
from metronome_cli.config.profile_files import load_profile, profile_names
from metronome_cli.core.quantities import format_size
from metronome_cli.forecast.checkpoint_config.read_config import read_checkpoint_config

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "cache-groups.md"
CASES = ROOT.parent / "shared" / "cases"
REFUSED = ("kyutai-stt-2.6b-repo-noshape", "personaplex-empty", "ultravox-v0.5-1b")


def row(name: str, groups: Sequence[CacheGroup], context: int | None) -> str:
    """One line of a table: a model, its groups, what grows, and its context."""
    told = "; ".join(group_text(group) for group in groups)
    positions = "not stated" if context is None else f"{context:,}"
    return f"| {name} | {told} | {growing_bytes_per_token(groups):,} | {positions} |"


def group_text(group: CacheGroup) -> str:
    """ "4 x growing (16 KiB per position)"; a window or ring with its size when full."""
    if group.law == "shared":
        return f"{group.layers} x shared"
    if group.law == "state":
        size = "unknown" if group.state_bytes is None else format_size(group.state_bytes)
        return f"{group.name}: {group.layers} x state ({size})"
    text = f"{group.name}: {group.layers} x {group.law} ({format_size(group.bytes_per_position)} per position"
    return f"{text}, {group.limit:,} positions)" if group.limit is not None else f"{text})"


def profile_row(name: str) -> str:
    profile = load_profile(name)
    return row(name, profile.cache_groups, profile.shape.context_length)


def case_row(name: str) -> str:
    decoder, _ = read_checkpoint_config(CASES / "configs" / name)
    return row(name, decoder.groups, decoder.context)


@pytest.mark.parametrize("name", profile_names())
def test_a_profile_has_its_row(name: str) -> None:
    assert profile_row(name) in PAGE.read_text().splitlines()


@pytest.mark.skipif(not CASES.is_dir(), reason="no case folder beside the checkout")
def test_every_case_has_its_row() -> None:
    lines = PAGE.read_text().splitlines()
    for name in sorted(set(json.loads((CASES / "answers.json").read_text())) - set(REFUSED)):
        if (CASES / "configs" / name).is_dir():
            assert case_row(name) in lines


def test_a_page_has_no_row_without_a_profile_or_case() -> None:
    named = [line.split("|")[1].strip() for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    cases = json.loads((CASES / "answers.json").read_text()) if CASES.is_dir() else named
    assert {name for name in named if name != "model"} <= {*profile_names(), *cases}
