"""The Mimi codec, streamed: 80 ms of speech to a column of codes, and back, many sessions at once."""

from metronome_cli.models.mimi.codec import CodecState, Mimi
from metronome_cli.models.mimi.shape import MimiShape

__all__ = ["CodecState", "Mimi", "MimiShape"]
