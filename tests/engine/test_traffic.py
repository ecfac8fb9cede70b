"""A frame of every adapter at its real shape on a GPU that is not there: what it moves, and what the host waits for."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from metronome_cli.config.profile_files import load_profile

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def traffic() -> ModuleType:
    spec = importlib.util.spec_from_file_location("traffic", BENCHMARKS / "traffic.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["traffic"] = module
    spec.loader.exec_module(module)
    return module


def counted(traffic: ModuleType, name: str, age: str, sessions: int, **options: Any) -> tuple[Any, Any]:
    profile = load_profile(name)
    shape = profile.shape.model_copy(update={"layers": LAYERS})
    few = profile.tokens.decode.model_copy(update={"speaking": max(2, profile.tokens.decode.listening + 1)})
    tokens = profile.tokens if profile.tokens.fused else profile.tokens.model_copy(update={"decode": few})
    profile = profile.model_copy(
        update={"adapter_options": {**profile.adapter_options, **options}, "shape": shape, "tokens": tokens}
    )
    count, _ = traffic.count_frame(profile, sessions, age)
    assert not count.problems, count.problems.most_common(3)  # device mixes, waits inside a graph
    assert count.captures == 0, "a graph was captured in a live frame"
    return profile, count


LAYERS = (
    4  # of the decoder: what a layer moves is what it moves at its real depth, and counting takes seconds
)
CASES = [  # profile, options, ages; ceilings a frame: decoding / least, pageable copies, waits
    ("moshi", {}, ("full",), 1.15, 3, 8),
    ("kyutai-stt-1b", {}, ("full",), 1.15, 2, 5),
    ("qwen2.5-omni-3b", {}, ("young",), 1.15, 10, 12),
    ("qwen3-omni-30b", {}, ("young",), 1.15, 10, 12),
    ("minicpm-o-4.5", {}, ("young",), 1.15, 60, 12),
    ("default", {}, ("full", "young"), 1.15, 3, 20),
]


@pytest.mark.parametrize(("name", "options", "ages", "ratio", "pageable", "waits"), CASES)
def test_a_frame_moves_little_more_than_it_must_and_seldom_waits(
    traffic: ModuleType, name: str, options: Any, ages: Any, ratio: float, pageable: int, waits: int
) -> None:
    for age in ages:
        _, count = counted(traffic, name, age, 1 if options else 2, **options)
        stage = count.stages["decode" if "decode" in count.stages else "prefill"]
        assert stage.moved <= ratio * stage.least
        assert count.replays > 0
        assert stage.launched < stage.replayed
        assert count.pageable.total() <= pageable, count.pageable.most_common(5)
        assert count.waits.total() <= waits, count.waits.most_common(5)
