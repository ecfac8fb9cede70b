"""Random opens, steps, closes and exhaustion under every policy: blocks are conserved and answers stay finite."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from metronome_cli.config.cache_policy import OnPoolFull
from metronome_cli.core.types import SessionRefused

from .toy import INTO, engine, frame

POLICIES = ["unbounded", "window(9, 3)", "window(6, 0)", "ring(7)", "recycle(8)"]


class EngineMachine(RuleBasedStateMachine):
    """An engine on a pool that is too small for what happens to it."""

    @initialize(
        policy=st.sampled_from(POLICIES),
        exhaustion=st.sampled_from(["stall", "preempt", "refuse"]),
        blocks=st.integers(3, 18),
        context=st.sampled_from([None, 18, 40]),
        ages=st.lists(st.integers(0, 20), min_size=1, max_size=4),
    )
    def start(
        self, policy: str, exhaustion: OnPoolFull, blocks: int, context: int | None, ages: list[int]
    ) -> None:
        self.engine = engine(exhaustion, policy=policy, blocks=blocks, slots=4, context=context)
        self.live: list[int] = []
        self.clock = 0
        for age in ages:
            self.open(age)

    @rule(age=st.integers(0, 40))
    def open(self, age: int) -> None:
        before, binding = self.engine.pool(), ""
        try:
            slot = self.engine.open(age)
        except SessionRefused as refused:
            binding = refused.binding
        if binding:
            assert binding == ("slots" if len(self.live) == 4 else "memory")
            assert self.engine.pool() == before
            return
        assert slot not in self.live
        assert self.engine.stack.length(slot) == age
        self.live.append(slot)

    @rule(skip=st.sets(st.integers(0, 3)), tokens_out=st.integers(0, 3))
    def step(self, skip: set[int], tokens_out: int) -> None:
        due = [slot for place, slot in enumerate(self.live) if place not in skip]
        self.clock += 1
        before = {slot: self.engine.stack.length(slot) for slot in due}
        result = self.engine.step([frame(slot, tokens_out, seed=self.clock) for slot in due])
        assert [outcome.slot for outcome in result.outcomes] == due
        for outcome in result.outcomes:
            if outcome.ended:
                self.live.remove(outcome.slot)
                continue
            moved = self.engine.stack.length(outcome.slot) - before[outcome.slot]
            assert moved == (0 if outcome.waiting else INTO + tokens_out)
            assert outcome.delivered == (0 if outcome.waiting else tokens_out)

    @rule(frames=st.integers(2, 6))
    def live_on(self, frames: int) -> None:
        for _ in range(frames):
            self.step(set(), 2)

    @precondition(lambda self: bool(getattr(self, "live", None)))
    @rule(place=st.integers(0, 3))
    def close(self, place: int) -> None:
        if place < len(self.live):
            slot = self.live[place]
            self.engine.close(slot)
            self.live.remove(slot)

    @invariant()
    def blocks_are_conserved(self) -> None:
        if not hasattr(self, "engine"):
            return
        stack, pool = self.engine.stack, self.engine.stack.pool
        held = [block for slot in self.live for block in stack._tables[slot].ids.tolist()]
        assert len(held) == len(set(held)) == pool.used_blocks == sum(map(stack.blocks_held, self.live))
        assert set(stack._tables) == set(self.live) == self.engine.model.open_slots  # type: ignore[attr-defined]
        state = self.engine.pool()
        assert state.running + state.waiting == len(self.live)
        free = [block for block in range(1, pool.total + 1) if block not in held]
        assert pool.data[:, :, :, free].isnan().all()
        assert pool.data[:, :, :, [0, *held]].isfinite().all()

    @invariant()
    def no_session_holds_more_than_its_policy_allows(self) -> None:
        if not hasattr(self, "engine"):
            return
        stack = self.engine.stack
        for slot in self.live:
            if stack.spec.kind != "unbounded":
                frame_tokens, size = INTO + 3, stack.pool.block_tokens
                most = stack.spec.resident_tokens(10**6) + frame_tokens
                assert stack.blocks_held(slot) <= -(-most // size) + 2


EngineMachine.TestCase.settings = settings(max_examples=80, stateful_step_count=25, deadline=None)
TestEngine = EngineMachine.TestCase
