"""Small profiles for forecasts."""

from __future__ import annotations

from typing import Any

from metronome_cli.config.profile import Profile

SHAPE = {
    "layers": 4, "heads": 4, "kv_heads": 2, "head_dim": 16, "hidden": 64, "mlp": 128, "vocab": 512,
    "context": 65_536,
}  # fmt: skip


def profile(**keys: Any) -> Profile:
    """A model that hears 14 positions a second, and says 25 a second while it speaks."""
    fields: dict[str, Any] = {
        "name": "test",
        "title": "Test",
        "frame": {"period": "1s", "sample_rate": 16_000},
        "tokens": {"into": 14, "out": {"listening": 0, "speaking": 25}},
        "turns": {"speaking_share": 0.5, "turn": "8s"},
        "shape": SHAPE,
        "pool": {"blocks": 2000},
        "policy": "unbounded",
    }
    return Profile.model_validate(fields | keys)
