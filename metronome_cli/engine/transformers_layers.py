"""The general way: any `transformers` decoder, through its attention interface and a cache class of ours.

The module computes its own projections, norms and rotation. Its cache object writes what it is handed into
the pool; its attention function reads the pool by the step's plan. Outside a step the registered name behaves
as `sdpa`, masks included, so modules that share the decoder's configuration keep working.

Angles are the module's own (float32 in `transformers`); the turn of rolling sinks is formed in float64.
"""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.cache_utils import Cache
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from metronome_cli.engine.attention import PagedAttention
from metronome_cli.engine.block_pool import BlockPool
from metronome_cli.engine.import_weights import TransformersDecoder
from metronome_cli.engine.inspect_decoder import AttentionFacts
from metronome_cli.engine.rotary import Rotary
from metronome_cli.engine.step_plan import StepPlan
from metronome_cli.engine.step_table import TablePlan

ATTENTION_NAME = "metronome_paged"


@dataclass(slots=True)
class _ForwardPass:
    """The forward under way. layer: the one that has just written its keys and values."""

    attention: PagedAttention
    plan: StepPlan | TablePlan
    layer: int = -1


_STEP: ContextVar[_ForwardPass | None] = ContextVar("metronome_step", default=None)


class _PoolCache(Cache):
    """Hands keys and values to the pool. Knows no lengths: positions come with the call."""

    def __init__(self, step: _ForwardPass) -> None:
        super().__init__(layers=[])
        self._step = step

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *_: Any, **__: Any
    ) -> tuple[Tensor, Tensor]:
        """key_states, value_states: [B, kv_heads, T, dim]; given back as they are."""
        step = self._step
        step.attention.write(layer_idx, _token_rows(key_states), _token_rows(value_states), step.plan)
        step.layer = layer_idx
        return key_states, value_states

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return 0

    def get_mask_sizes(self, query_length: int, layer_idx: int) -> tuple[int, int]:
        return query_length, 0


def _token_rows(states: Tensor) -> Tensor:
    """[B, heads, T, dim] -> [B T, heads, dim]."""
    return states.transpose(1, 2).reshape(-1, states.shape[1], states.shape[3])


def _paged_attention(
    module: TransformersDecoder,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    **kwargs: Any,
) -> tuple[Tensor, Tensor | None]:
    step = _STEP.get()
    if step is None:
        sdpa: tuple[Tensor, None] = ALL_ATTENTION_FUNCTIONS["sdpa"](
            module, query, key, value, attention_mask, **kwargs
        )
        return sdpa
    mixed = step.attention.attend(step.layer, _token_rows(query), step.plan)
    return mixed.view(query.shape[0], query.shape[2], query.shape[1], -1), None


AttentionInterface.register(ATTENTION_NAME, _paged_attention)
AttentionMaskInterface.register(ATTENTION_NAME, ALL_MASK_ATTENTION_FUNCTIONS["sdpa"])


class TransformersLayers:
    """Runs a `transformers` decoder (without its head) over `pool`.

    Raises LookupError for a decoder that cannot run on a paged cache (`inspect_decoder`).
    """

    name = "general"
    captures = False  # a module may ask the device for numbers

    def __init__(self, decoder: TransformersDecoder, pool: BlockPool, facts: AttentionFacts) -> None:
        config = decoder.config
        self.decoder = decoder
        self.rotary = facts.rotary or Rotary.plain(pool.head_dim, 10_000.0)  # unused if it cannot roll
        self.can_roll = facts.rotary is not None
        self.bounded_positions = facts.table_of_positions
        self.native_window = facts.window
        self.hidden_size: int = config.hidden_size
        self.attention = PagedAttention(pool, facts.heads, facts.scale)
        self.group = self.attention.group
        self._position_rows = 3 if "mrope_section" in (getattr(config, "rope_parameters", None) or {}) else 0
        decoder.set_attn_implementation(ATTENTION_NAME)
        decoder.eval()

    def run(self, embeds: Tensor, plan: StepPlan | TablePlan) -> Tensor:
        """embeds: [B, T, hidden] -> final-normed hidden state of each row's last valid token, [B, hidden]."""
        step = _ForwardPass(self.attention, plan)
        positions = plan.positions
        if self._position_rows:  # mrope: equal rows are plain rotary positions
            positions = positions.expand(self._position_rows, *positions.shape)
        token = _STEP.set(step)
        try:
            output = self.decoder(
                inputs_embeds=embeds,
                attention_mask=embeds.new_zeros(1, 1, 1, 1),  # four dimensions: taken as it is
                position_ids=positions,
                cache=_PoolCache(step),
                use_cache=True,
            )
        finally:
            _STEP.reset(token)
        hidden: Tensor = output.last_hidden_state
        return hidden.reshape(plan.batch * plan.tokens, -1)[plan.last]


def placement(decoder: TransformersDecoder) -> tuple[torch.dtype, torch.device]:
    """dtype and device of a decoder's weights."""
    parameter = next(decoder.parameters())
    return parameter.dtype, parameter.device
