"""Typed access to one mapping of a configuration file; every error names the file, the path and the key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from metronome_cli.core.errors import UsageError
from metronome_cli.core.quantities import shown

MOST = 10**9  # the largest count that is believed
MOST_LAYERS = 10_000
ALIASES: Mapping[str, tuple[str, ...]] = {
    "layers": ("num_hidden_layers", "num_layers", "n_layers", "n_layer", "decoder_layers"),
    "heads": ("num_attention_heads", "n_heads", "n_head", "num_heads", "decoder_attention_heads"),
    "kv_heads": (
        "num_key_value_heads", "n_kv_heads", "num_kv_heads", "n_head_kv", "multi_query_group_num",
        "num_query_groups",
    ),
    "head_dim": ("head_dim", "attention_head_dim", "kv_channels"),
    "hidden": ("hidden_size", "n_embd", "dim", "d_model", "model_dim"),
    "mlp": (
        "intermediate_size", "ffn_hidden_size", "n_inner", "ffn_dim", "hidden_dim", "dim_feedforward",
        "decoder_ffn_dim",
    ),
    "vocab": ("vocab_size", "padded_vocab_size", "text_vocab_size", "text_card", "text_out_vocab_size"),
    "context": (
        "context", "max_position_embeddings", "max_sequence_length", "model_max_length", "max_seq_length",
        "max_seq_len", "seq_length", "n_positions", "n_ctx", "max_target_positions", "context_length",
    ),
    "window": (
        "sliding_window", "sliding_window_size", "attention_window_size", "window_size", "local_attention_window",
    ),
    "rope_theta": ("rope_theta", "max_period", "rotary_emb_base", "rotary_base", "rope_base", "global_rope_theta"),
    "experts": ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"),
    "top_k": (
        "num_experts_per_tok", "experts_per_token", "top_k_experts", "num_experts_per_token", "moe_topk",
        "num_selected_experts", "moe_k",
    ),
    "expert_mlp": ("moe_intermediate_size", "expert_ffn_hidden_size"),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Fields:
    """One mapping of a configuration, with where it stands for errors."""

    part: Mapping[str, Any]
    where: str

    def key(self, what: str) -> str | None:
        """The first alias that has a value."""
        return next((key for key in ALIASES.get(what, (what,)) if self.part.get(key) is not None), None)

    def count(self, what: str, most: int = MOST, least: int = 1) -> int | None:
        """A whole number; None if no alias has a value. Raises UsageError for anything else."""
        key = self.key(what)
        return None if key is None else self._count(key, self.part[key], most, least)

    def need(self, what: str, most: int = MOST) -> int:
        """As `count`. Raises UsageError naming the aliases if none has a value."""
        value = self.count(what, most)
        if value is None:
            raise self.missing(what)
        return value

    def missing(self, what: str) -> UsageError:
        """The error for a value that the file has to state."""
        return UsageError(
            f"{self.where}: none of {', '.join(ALIASES.get(what, (what,)))} is given",
            hint="the file must state it; defaults of a class are not a checkpoint's values",
        )

    def counts(self, what: str, length: int, least: int = 0) -> list[int] | None:
        """One whole number for each layer, from a list of that length or one number for all."""
        key = self.key(what)
        if key is None:
            return None
        value = self.part[key]
        if not isinstance(value, list):
            return [self._count(key, value, MOST, least)] * length
        if len(value) != length:
            raise self.wrong(
                key, f"a list of {len(value)}", f"it must have one entry for each of {length} layers"
            )
        return [self._count(f"{key}[{i}]", item, MOST, least) for i, item in enumerate(value)]

    def real(self, key: str) -> float | None:
        """A positive number, with a fraction or not; None if absent."""
        value = self.part.get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 1e12:
            raise self.wrong(key, shown(value), "it must be a positive number")
        return float(value)

    def flag(self, key: str) -> bool | None:
        """true or false; None if absent. Raises UsageError for anything else."""
        value = self.part.get(key)
        if value is None or isinstance(value, bool):
            return value
        raise self.wrong(key, shown(value), "it must be true or false")

    def words(self, key: str) -> list[str] | None:
        """A list of words; None if absent."""
        value = self.part.get(key)
        if value is None:
            return None
        if not isinstance(value, list) or not all(isinstance(word, str) for word in value):
            raise self.wrong(key, shown(value), "it must be a list of words")
        return value

    def numbers(self, key: str) -> list[int] | None:
        """A list of whole numbers from 0; None if absent."""
        value = self.part.get(key)
        if value is None:
            return None
        if not isinstance(value, list):
            raise self.wrong(key, shown(value), "it must be a list of whole numbers")
        return [self._count(f"{key}[{i}]", item, MOST, 0) for i, item in enumerate(value)]

    def text(self, key: str) -> str:
        """A short text, "" if absent or of another type."""
        value = self.part.get(key)
        return value[:100] if isinstance(value, str) else ""

    def inner(self, key: str) -> Fields | None:
        """A nested mapping; None if absent. Raises UsageError for another type."""
        value = self.part.get(key)
        if value is None:
            return None
        if not isinstance(value, Mapping):
            raise self.wrong(key, shown(value), "it must be a group of keys")
        return Fields(value, f"{self.where}: {key}")

    def layer(self, i: int) -> Fields:
        """The keys of layer i: those of the file, with what `per_layer_config` says of this layer."""
        each = self.part.get("per_layer_config")
        if each is None:
            return self
        if not isinstance(each, Mapping):
            raise self.wrong("per_layer_config", shown(each), "it must be a group of keys")
        own = next((each[key] for key in (str(i), f"{i:02d}", f"{i:03d}") if key in each), None)
        if own is None:
            return self
        if not isinstance(own, Mapping):
            raise self.wrong(f"per_layer_config.{i}", shown(own), "it must be a group of keys")
        return Fields({**self.part, **own}, self.where)

    def wrong(self, key: str, value: str, hint: str) -> UsageError:
        """The error for a value that cannot be."""
        return UsageError(f"{self.where}: {key} is {value}", hint=hint)

    def unknown(self, keys: Sequence[str], what: str) -> UsageError:
        """The error for a cache whose law is not known."""
        stated = ", ".join(f"{key}: {shown(self.part.get(key))}" for key in keys)
        return UsageError(
            f"{self.where}: {what} ({stated})",
            hint="nothing is assumed; write the groups into a profile under shape.cache",
        )

    def _count(self, key: str, value: Any, most: int, least: int) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            kind = "positive whole number" if least else "whole number from 0"
            raise self.wrong(key, shown(value), f"it must be a {kind}, at most {most:,}")
        return value
