"""One call from a decoder to a stack: picks the way through the layers and makes the pool."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from metronome_cli.config.cache_policy import CachePolicySpec, SinkPositions
from metronome_cli.engine.block_pool import BlockPool
from metronome_cli.engine.decoder_weights import DecoderWeights
from metronome_cli.engine.native_layers import NativeLayers
from metronome_cli.engine.paged_decoder import DecoderLayers, PagedDecoder

if TYPE_CHECKING:
    from metronome_cli.engine.import_weights import TransformersDecoder

LayerPath = Literal["auto", "fast", "general"]


def build_decoder(
    decoder: DecoderWeights | TransformersDecoder,
    *,
    blocks: int,
    policy: CachePolicySpec,
    block_tokens: int = 16,
    sink_positions: SinkPositions = "rolling",
    context: int | None = None,
    chunk: int = 1,
    keep_inputs: bool = False,
    way: LayerPath = "auto",
    poison: bool = False,
    seed: int = 0,
) -> PagedDecoder:
    """A stack over a fresh pool of `blocks` blocks.

    decoder: weights for the fast way, or a `transformers` decoder without its head (`LlamaModel` and the
    like), which goes the fast way if it is of that family and the general way otherwise. `way` forces one;
    ValueError when that one cannot serve the decoder. The other arguments are `PagedStack`'s and
    `BlockPool`'s.
    """
    layers = _layers(decoder, way, blocks, block_tokens, poison)
    return PagedDecoder(
        layers,
        layers.attention.pool,
        policy,
        sink_positions=sink_positions,
        context=context,
        chunk=chunk,
        keep_inputs=keep_inputs,
        seed=seed,
    )


def _layers(
    decoder: DecoderWeights | TransformersDecoder,
    way: LayerPath,
    blocks: int,
    block_tokens: int,
    poison: bool,
) -> DecoderLayers:
    if isinstance(decoder, DecoderWeights):
        if way == "general":
            raise ValueError("the general way needs a transformers module")
        return _fast(decoder, blocks, block_tokens, poison)
    from metronome_cli.engine.import_weights import import_weights, supports_native_layers
    from metronome_cli.engine.inspect_decoder import inspect_decoder
    from metronome_cli.engine.transformers_layers import TransformersLayers, placement

    if way != "general" and supports_native_layers(decoder):
        return _fast(import_weights(decoder), blocks, block_tokens, poison)
    if way == "fast":
        raise ValueError(f"the fast way does not know the block of {type(decoder).__name__}")
    dtype, device = placement(decoder)
    facts = inspect_decoder(decoder)
    pool = BlockPool(
        layers=facts.layers,
        kv_heads=facts.kv_heads,
        head_dim=facts.head_dim,
        blocks=blocks,
        block_tokens=block_tokens,
        dtype=dtype,
        device=device,
        poison=poison,
    )
    return TransformersLayers(decoder, pool, facts)


def _fast(weights: DecoderWeights, blocks: int, block_tokens: int, poison: bool) -> NativeLayers:
    pool = BlockPool(
        layers=len(weights.layers),
        kv_heads=weights.kv_heads,
        head_dim=weights.head_dim,
        blocks=blocks,
        block_tokens=block_tokens,
        dtype=weights.dtype,
        device=weights.device,
        poison=poison,
    )
    return NativeLayers(weights, pool)
