"""A plateau of the pool does not hide the end of the context."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metronome_cli.core.errors import UsageError
from metronome_cli.forecast.context_limit import ContextLimit, stated_context
from metronome_cli.protocols.server_metrics import ServerReading


def reading(tokens: float | None, running: float | None, prompt: float | None = None) -> ServerReading:
    return ServerReading("vLLM", "m", {"engine=0": 0.19}, running=running, delivered=tokens, prompt=prompt)


@given(st.floats(0.5, 100), st.integers(1, 64), st.integers(1000, 200_000), st.floats(0, 1e6))
def test_a_steady_session_ends_when_its_positions_are_used_up(
    rate: float, running: int, positions: int, before: float
) -> None:
    limit = ContextLimit(positions)
    for t_s in range(0, 60, 5):
        limit.add(t_s, reading(before + running * rate * t_s, running))
    assert limit.rate() == pytest.approx(rate, rel=1e-6, abs=1e-6)
    assert limit.latest_end_s() == pytest.approx(positions / rate, rel=1e-6)


def test_a_plateau_of_15_minutes() -> None:
    """8,192 positions at 9 per second: over after 15 min, whatever the pool says."""
    limit = ContextLimit(8192)
    for t_s in range(0, 40, 2):
        limit.add(t_s, reading(4 * 3 * t_s, 4, prompt=4 * 6 * t_s))
    assert limit.latest_end_s() == pytest.approx(910, abs=1)


@pytest.mark.parametrize(("tokens", "running"), [(None, 4), (100.0, None), (100.0, 0)])
def test_without_counters_or_sessions_nothing_is_known(tokens: float | None, running: float | None) -> None:
    limit = ContextLimit(8192)
    for t_s in range(0, 40, 2):
        limit.add(t_s, reading(tokens, running))
    assert limit.latest_end_s() is None


def test_a_restart_starts_anew() -> None:
    limit = ContextLimit(8192)
    for t_s, tokens in ((0, 5000), (10, 5100), (20, 3), (30, 103), (40, 203)):
        limit.add(t_s, reading(tokens, 1))
    assert limit.rate() == pytest.approx(10)


@pytest.mark.parametrize(
    ("answers", "stated"),
    [
        ({"/v1/models": {"data": [{"id": "m", "max_model_len": 8192}]}}, 8192),
        ({"/props": {"default_generation_settings": {"n_ctx": 4096}}}, 4096),
        ({"/v1/models": {"data": [{"max_model_len": "many"}]}}, None),
        ({"/v1/models": [1, 2]}, None),
        ({}, None),
    ],
)
def test_what_a_server_states(answers: dict[str, object], stated: int | None) -> None:
    def get(address: str) -> str:
        for path, answer in answers.items():
            if address == f"http://host:8000{path}":
                return json.dumps(answer)
        raise UsageError(f"{address}: HTTP 404")

    assert stated_context("http://host:8000/metrics", get) == stated
