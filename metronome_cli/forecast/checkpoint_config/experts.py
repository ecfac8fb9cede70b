"""Mixture-of-experts layers of a configuration: which layers are sparse, and how many weights one has."""

from __future__ import annotations

from dataclasses import dataclass

from metronome_cli.forecast.checkpoint_config.fields import Fields


@dataclass(frozen=True, slots=True)
class Sparse:
    """Experts of a decoder. `here[i]`: layer i has them; `dense`: width of an MLP that every such layer has too."""

    here: list[bool]
    experts: int
    width: int
    chosen: int
    shared: int  # width of all shared experts together
    dense: int

    def parameters(self, hidden: int, gates: int, *, active: bool) -> int:
        """Weights of one sparse layer, or those that a token uses."""
        used = min(self.chosen, self.experts) if active else self.experts
        always = gates * hidden * (self.shared + self.dense) + hidden * self.experts
        return used * gates * hidden * self.width + always


def read_sparse(read: Fields, layers: int) -> Sparse | None:
    """The experts of a file; None if it has none. Raises UsageError naming the key that their size needs."""
    experts = read.count("experts", least=0)
    if not experts or experts == 1 or read.flag("is_moe") is False:
        return None
    width = read.count("expert_mlp")
    if width is None:
        width = read.need("mlp")
    return Sparse(
        here=[_sparse(read, i, layers) for i in range(layers)],
        experts=experts,
        width=width,
        chosen=read.count("top_k") or 1,
        shared=_shared(read, width),
        dense=read.need("mlp") if read.flag("enable_moe_block") else 0,
    )


def _shared(read: Fields, width: int) -> int:
    for key in ("shared_expert_intermediate_size", "shared_intermediate_size"):
        if (stated := read.count(key, least=0)) is not None:
            return stated
    many = read.count("n_shared_experts", least=0) or read.count("num_shared_experts", least=0)
    own = read.count("moe_shared_expert_intermediate_size", least=0)
    if read.part.get("interleave_moe_layer_step") is not None:
        many = 1  # Llama 4: one shared expert as wide as the others
    return (many or 0) * (own or width)


def _sparse(read: Fields, i: int, layers: int) -> bool:
    """Whether layer i has experts."""
    if isinstance(words := read.part.get("mlp_layer_types"), list):
        return i < len(words) and words[i] != "dense"
    if (pattern := read.text("hybrid_override_pattern")) or isinstance(
        read.part.get("layers_block_type"), list
    ):
        words = read.words("layers_block_type") or list(pattern)
        if any(word in ("moe", "E", "mlp", "-") for word in words):
            return i < len(words) and words[i] in ("moe", "E")
    if (listed := read.numbers("moe_layers")) is not None and listed:
        return i in listed
    if i in (read.numbers("mlp_only_layers") or []):
        return False
    for key in ("first_k_dense_replace", "num_dense_layers"):
        if i < (read.count(key, least=0) or 0):
            return False
    if isinstance(read.part.get("moe_layer_freq"), list):
        return bool((read.counts("moe_layer_freq", layers) or [1] * layers)[i])
    if (period := read.count("expert_layer_period")) is not None:
        return i % period == (read.count("expert_layer_offset", least=0) or 0) % period
    for key in ("decoder_sparse_step", "moe_layer_freq", "interleave_moe_layer_step"):
        if (every := read.count(key)) is not None:
            return (i + (0 if key == "moe_layer_freq" else 1)) % every == 0
    return True
