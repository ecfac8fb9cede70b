"""Sizes of a MiniCPM-o: the published ones, over which a profile's `adapter_options` may put others.

The language model's own are the profile's `shape`. Sources: public copies of the published configurations of
MiniCPM-o 4.5 and 2.6.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from metronome_cli.config.model_shape import ModelShape
from metronome_cli.config.profile import Profile
from metronome_cli.core.errors import UsageError
from metronome_cli.models.adapter_options import AdapterOptions, OptionValue
from metronome_cli.models.audio.whisper_mel import RATE
from metronome_cli.models.minicpm_o.duplex import SLOTS
from metronome_cli.models.minicpm_o.encoder import UNIT_POSITIONS, UnitEncoderShape

Version = Literal["2.6", "4.5"]
_COMMON: Mapping[str, OptionValue] = {
    "decide": "auto",
    "talker": False,
    "temperature": 0.0,
    "mels": 80,
    "encoder_layers": 24,
    "encoder_width": 1024,
    "encoder_heads": 16,
    "encoder_mlp": 4096,
    "talker_layers": 20,
    "talker_heads": 12,
    "talker_head_dim": 64,
    "talker_hidden": 768,
    "talker_mlp": 3072,
}
_DEFAULTS: Mapping[Version, Mapping[str, OptionValue]] = {
    "2.6": {**_COMMON, "version": "2.6", "talker_codes": 626, "talker_groups": 4, "talker_text": 21_178},
    "4.5": {**_COMMON, "version": "4.5", "talker_codes": 6562, "talker_groups": 1, "talker_text": 152_064},
}
POOLED = {"2.6": 2, "4.5": 5}  # encoder positions averaged into one embedding
CODES_PER_S = {"2.6": 24_000 / 256 / 2, "4.5": 25.0}
TALKER_CONTEXT = 4096


@dataclass(frozen=True, slots=True)
class MiniCpmShape:
    """`into`: positions that a unit is before it is answered; `marks`: audio markers and a unit's own.

    `listening`: tokens out at which a session counts as not speaking. `decide`: the load or the model
    decides to speak.
    `word_temperature`: temperature of the authors' sampling of text tokens.
    """

    version: Version
    encoder: UnitEncoderShape
    into: int
    listening: int
    decide: Literal["auto", "plan", "model"]
    temperature: float
    word_temperature: float
    talker: ModelShape | None
    groups: int
    text: int  # rows of the talker's text table

    @property
    def audio(self) -> int:
        """Embeddings of a second of sound."""
        return UNIT_POSITIONS // self.encoder.pool

    @classmethod
    def of(cls, profile: Profile) -> MiniCpmShape:
        """Raises UsageError for an unknown option, or a frame that is not a unit of this version."""
        wanted = profile.adapter_options.get("version", "4.5")
        version: Version = "2.6" if wanted == "2.6" else "4.5"
        options = AdapterOptions(profile, _DEFAULTS[version])
        options.choice("version", *_DEFAULTS)
        decide = options.choice("decide", "auto", "plan", "model")
        shape = cls(
            version=version,
            encoder=_encoder(options, version, profile.shape.hidden_size),
            into=int(profile.tokens.prefill),
            listening=profile.tokens.decode.listening,
            decide=decide,  # type: ignore[arg-type]
            temperature=options.real("temperature"),
            word_temperature=float(profile.adapter_options.get("temperature", 0.7)),
            talker=_talker(options, profile.shape) if options.flag("talker") else None,
            groups=options.number("talker_groups"),
            text=options.number("talker_text"),
        )
        _check(profile, shape)
        return shape


def _encoder(options: AdapterOptions, version: Version, out: int) -> UnitEncoderShape:
    return UnitEncoderShape(
        mels=options.number("mels"),
        layers=options.number("encoder_layers"),
        width=options.number("encoder_width"),
        heads=options.number("encoder_heads"),
        mlp=options.number("encoder_mlp"),
        pool=POOLED[version],
        out=out,
    )


def _talker(options: AdapterOptions, language: ModelShape) -> ModelShape:
    return ModelShape(
        layers=options.number("talker_layers"),
        heads=options.number("talker_heads"),
        kv_heads=options.number("talker_heads"),
        head_dim=options.number("talker_head_dim"),
        hidden_size=options.number("talker_hidden"),
        intermediate_size=options.number("talker_mlp"),
        vocab_size=options.number("talker_codes"),
        dtype=language.dtype,
        context_length=TALKER_CONTEXT,
        rope_theta=10_000.0,
    )


def _check(profile: Profile, shape: MiniCpmShape) -> None:
    where = f"profile {profile.name}"
    if profile.frame.sample_rate != RATE or profile.frame.samples != RATE:
        raise UsageError(f"{where}: frame: the minicpm-o adapter hears units of 1s at {RATE} Hz")
    allowed = (shape.audio + 2,) if shape.version == "4.5" else (shape.audio + 2, shape.audio + 3)
    if profile.tokens.prefill not in allowed or profile.tokens.fused:
        raise UsageError(
            f"{where}: tokens.prefill is {profile.tokens.prefill:g}; a unit of version {shape.version} is "
            f"{shape.audio} audio tokens and its markers",
            hint=f"one of: {', '.join(str(n) for n in allowed)}",
        )
    if (
        shape.version == "4.5"
        and not 1 <= profile.tokens.decode.listening <= profile.tokens.decode.speaking <= SLOTS
    ):
        raise UsageError(
            f"{where}: tokens.decode: a unit of version 4.5 is answered with 1 to {SLOTS} tokens",
            hint="listening: 1, speaking: 20 is the most it does",
        )
