"""Ogg-Opus, piece by piece, through `sphn` (the library that Moshi's own server uses)."""

from __future__ import annotations

import numpy as np

from metronome_cli.core.types import Audio

FRAME_S = 0.040  # an Opus packet; the encoder takes 2.5 to 60 ms at a time


class OpusEncoder:
    """Audio in, Ogg pages out. Pieces may have any length; what makes no whole packet waits."""

    def __init__(self, sample_rate: int) -> None:
        import sphn

        self._writer = sphn.OpusStreamWriter(sample_rate)
        self._packet = round(FRAME_S * sample_rate)
        self._rest = np.zeros(0, dtype=np.float32)

    def encode(self, samples: Audio) -> bytes:
        """Pages that became ready."""
        self._rest = np.concatenate((self._rest, samples.astype(np.float32, copy=False)))
        whole = len(self._rest) // self._packet * self._packet
        pages = [
            self._writer.append_pcm(self._rest[at : at + self._packet])
            for at in range(0, whole, self._packet)
        ]
        self._rest = self._rest[whole:]
        return b"".join(pages)


class OpusDecoder:
    """Ogg pages in, audio out."""

    def __init__(self, sample_rate: int) -> None:
        import sphn

        self._reader = sphn.OpusStreamReader(sample_rate)
        self._broken = False

    def decode(self, pages: bytes) -> Audio | None:
        """[samples] float32, perhaps none yet; None when this is not Ogg-Opus, from then on."""
        if self._broken:
            return None
        try:
            samples: Audio = self._reader.append_bytes(pages)
        except (ValueError, RuntimeError):
            self._broken = True
            return None
        return samples
