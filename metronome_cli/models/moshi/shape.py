"""The sizes of a Moshi-like model, from a profile: `shape` for the temporal decoder, options for the rest.

The defaults are Moshi 7B's (kyutai/moshiko, kyutai/moshika). PersonaPlex differs in nothing that a step
reads: its 16 depth steps are 8 for the model's codes and 8 for the user's, which are always given. Kyutai
speech to text has no depth transformer (`spoken: 0`), hears 32 codebooks and delays none.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from metronome_cli.config.model_shape import ModelShape
from metronome_cli.config.profile import Profile
from metronome_cli.core.errors import UsageError
from metronome_cli.models.adapter_options import AdapterOptions
from metronome_cli.models.mimi.shape import MimiShape

_MIMI = "mimi_"


@dataclass(frozen=True, slots=True)
class MoshiOptions:
    """`adapter_options` of a profile, besides `mimi_*` (the fields of MimiShape that are numbers)."""

    spoken: int = 8  # codebooks that the model says, one depth step each; 0: it only listens
    heard: int = 8  # codebooks of the user
    audio_vocab: int = 2048  # codes a codebook
    acoustic_delay: int = 1  # frames by which codebooks after each first one lag
    depth_layers: int = 6
    depth_heads: int = 16
    depth_hidden: int = 1024
    depth_mlp: int = 2816
    extra_heads: int = 0  # small heads beside the text head in the checkpoint, which are not run
    text_temperature: float = 0.7
    text_top_k: int = 25
    audio_temperature: float = 0.8
    audio_top_k: int = 250


@dataclass(frozen=True, slots=True)
class MoshiShape:
    """All sizes of one model."""

    decoder: ModelShape
    options: MoshiOptions
    mimi: MimiShape

    @classmethod
    def from_profile(cls, profile: Profile) -> MoshiShape:
        """Raises UsageError for an unknown option, or a frame that is not one frame of the codec."""
        own, codec = _defaults(MoshiOptions), _defaults(MimiShape, _MIMI)
        given = AdapterOptions(profile, own | codec)
        shape = cls(
            profile.shape,
            MoshiOptions(**{key: _value(given, key, default) for key, default in own.items()}),
            MimiShape(
                **{key.removeprefix(_MIMI): _value(given, key, default) for key, default in codec.items()}
            ),
        )
        shape.check(profile)
        return shape

    @property
    def streams(self) -> int:
        """Tokens summed into one position: text, the model's codes, the user's."""
        return 1 + self.options.spoken + self.options.heard

    @property
    def delays(self) -> tuple[int, ...]:
        """Frames by which each stream lags: none for text and each speaker's first codebook."""
        lag = self.options.acoustic_delay
        groups = (self.options.spoken, self.options.heard)
        return (0, *(0 if book == 0 else lag for group in groups for book in range(group)))

    @property
    def initial(self) -> tuple[int, ...]:
        """The token of each stream before its first: one past the last real one."""
        books = self.options.spoken + self.options.heard
        return (self.decoder.need("vocab_size"), *(self.options.audio_vocab for _ in range(books)))

    @property
    def depth_kv_bytes(self) -> int:
        """Keys and values of one session's depth steps in one frame, at the decoder's precision."""
        bytes_each = self.decoder.kv_bytes_per_token // (
            2 * self.decoder.layers * self.decoder.kv_heads * self.decoder.head_dim
        )
        return 2 * self.options.spoken * self.options.depth_layers * self.options.depth_hidden * bytes_each

    def check(self, profile: Profile) -> None:
        """Raises UsageError naming what does not go together."""
        where = f"profile {profile.name}"
        frame, mimi, decoder = profile.frame, self.mimi, self.decoder
        if frame.sample_rate != mimi.sample_rate or frame.samples != mimi.frame_samples:
            raise UsageError(
                f"{where}: frame has {frame.samples} samples at {frame.sample_rate} Hz; the codec's frame is "
                f"{mimi.frame_samples} samples at {mimi.sample_rate} Hz",
                hint=f"period: {1000 * mimi.frame_samples / mimi.sample_rate:g}ms",
            )
        if decoder.kv_heads != decoder.heads:
            raise UsageError(f"{where}: shape.kv_heads must equal shape.heads, as in every Moshi")
        if self.options.heard < 1 or max(self.options.heard, self.options.spoken) > mimi.stored_codebooks:
            raise UsageError(f"{where}: heard and spoken must be 1 to {mimi.stored_codebooks} codebooks")
        if self.options.audio_vocab != mimi.codebook_size:
            raise UsageError(f"{where}: audio_vocab must equal mimi_codebook_size ({mimi.codebook_size})")


def _defaults(kind: type[MoshiOptions] | type[MimiShape], prefix: str = "") -> dict[str, int | float]:
    """Option name -> default, of the fields that are numbers."""
    return {
        f"{prefix}{field.name}": field.default
        for field in fields(kind)
        if isinstance(field.default, int | float)
    }


def _value(given: AdapterOptions, key: str, default: int | float) -> Any:
    return given.number(key) if isinstance(default, int) else given.real(key)
