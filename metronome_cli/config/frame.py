"""A model as a periodic load: the frame, its cache positions, and turn-taking."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from metronome_cli.config.fields import Count, Duration, Fraction, Real, StrictModel, Tokens

CHUNK_S = 0.020  # clients send audio in 20 ms pieces, as the paper's do


class Frame(StrictModel):
    """Period and deadline of a frame, in seconds, and the sample rate in Hz. The deadline defaults to the period."""

    period: Duration
    deadline: Duration | None = None
    sample_rate: Annotated[int, Field(ge=1000, le=384_000, strict=True)]
    max_backlog: Count = 25  # frames; a session with more fell behind

    @property
    def period_s(self) -> float:
        return self.period

    @property
    def deadline_s(self) -> float:
        return self.deadline if self.deadline is not None else self.period

    @property
    def samples(self) -> int:
        """Samples a frame at `sample_rate`."""
        return round(self.period * self.sample_rate)

    @model_validator(mode="after")
    def _whole_chunks(self) -> Frame:
        chunks = self.period / CHUNK_S
        if abs(chunks - round(chunks)) > 1e-6 or round(chunks) < 1:
            raise ValueError(f"period must be a whole number of {CHUNK_S * 1e3:.0f} ms client chunks")
        return self


class TokensOut(StrictModel):
    """Tokens decoded per frame in each state of the conversation."""

    listening: Tokens
    speaking: Tokens


class FrameTokens(StrictModel):
    """Cache positions per frame: `prefill` from the audio (markers included), `decode` from the model.

    `fused` models (Moshi) sum input and output streams into `prefill` positions; their `decode` adds none.
    """

    prefill: Annotated[Real, Field(le=1e6)]
    decode: TokensOut
    fused: bool = False

    def per_frame(self, speaking: bool) -> float:
        """Cache positions that one frame adds."""
        out = self.decode.speaking if speaking else self.decode.listening
        return self.prefill + (0 if self.fused else out)


class TurnTaking(StrictModel):
    """Turn-taking of a session: an alternating process, seeded per session.

    `speaking_share` is the long-run share of time the model speaks, `mean_turn` the mean length of one turn.
    """

    speaking_share: Fraction = 0.5
    mean_turn: Duration = 8.0
