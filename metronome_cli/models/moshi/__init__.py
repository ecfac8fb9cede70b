"""Moshi and its kin (PersonaPlex, Kyutai speech to text): speech in and out, one cache position a frame."""

from metronome_cli.models.moshi.model import MoshiModel, load
from metronome_cli.models.moshi.shape import MoshiShape

__all__ = ["MoshiModel", "MoshiShape", "load"]
