"""Policies: text and back, what stays of a session, and only UsageError ever comes out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metronome_cli.config.cache_policy import CachePolicySpec
from metronome_cli.core.errors import UsageError

POLICIES = st.one_of(
    st.just(CachePolicySpec("unbounded")),
    st.builds(CachePolicySpec, st.just("window"), st.integers(1, 10**8), st.integers(0, 10**4)),
    st.builds(CachePolicySpec, st.sampled_from(["ring", "recycle"]), st.integers(1, 10**8)),
)


@given(POLICIES)
def test_text_and_back(policy: CachePolicySpec) -> None:
    assert CachePolicySpec.parse(str(policy)) == policy


@given(POLICIES, st.integers(0, 10**9), st.integers(0, 10**6))
def test_a_longer_session_never_keeps_less_and_never_more_than_it_saw(
    policy: CachePolicySpec, tokens: int, more: int
) -> None:
    assert policy.resident_tokens(tokens) <= policy.resident_tokens(tokens + more)
    if policy.kind != "ring":  # reserved at open
        assert policy.resident_tokens(tokens) <= tokens


@pytest.mark.parametrize("text", [
    "", "window", "window()", "window(0)", "window(-1)", "windw(5)", "ring(5, 2)", "recycle(5,1)", "unbounded(5)",
    "window(5", "window(5,)", "window(1.5)", "Window(5)", "window(9999999999)", "window(5)\nx", "window(٣)",
])  # fmt: skip
def test_what_is_no_policy_is_refused_with_the_forms(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        CachePolicySpec.parse(text)
    assert "window(W, S)" in (caught.value.hint or "")


@given(st.text(max_size=60) | st.text(alphabet="windowrgecyul(), 0123456789", max_size=30))
def test_only_usage_errors_come_out(text: str) -> None:
    try:
        policy = CachePolicySpec.parse(text)
    except UsageError:
        return
    assert CachePolicySpec.parse(str(policy)) == policy
