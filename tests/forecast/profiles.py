"""Small profiles for forecasts."""

from __future__ import annotations

from typing import Any

from metronome_cli.config.profile import Profile

SHAPE = {
    "layers": 4, "heads": 4, "kv_heads": 2, "head_dim": 16, "hidden_size": 64, "intermediate_size": 128,
    "vocab_size": 512,
    "context_length": 65_536,
}  # fmt: skip


def profile(**keys: Any) -> Profile:
    """A model that hears 14 positions a second, and says 25 a second while it speaks."""
    fields: dict[str, Any] = {
        "name": "test",
        "title": "Test",
        "frame": {"period": "1s", "sample_rate": 16_000},
        "tokens": {"prefill": 14, "decode": {"listening": 0, "speaking": 25}},
        "turn_taking": {"speaking_share": 0.5, "mean_turn": "8s"},
        "shape": SHAPE,
        "kv_pool": {"blocks": 2000},
        "policy": "unbounded",
    }
    return Profile.model_validate(fields | keys)
