"""How the user's turns end on a realtime server: by its voice activity detection, the model, or the client."""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np

from metronome_cli.core.types import Audio

TurnEnd = Literal["vad", "model", "commit"]
TURN_ENDS: tuple[str, ...] = get_args(TurnEnd)
SPEECH_LEVEL = 10 ** (-45 / 20)  # root mean square of speech against full scale, -45 dBFS
SILENCE_S = 0.5  # a pause that ends a turn; the silence_duration_ms that servers are asked for as well
PREFIX_S = 0.3  # audio before speech that belongs to it
LEAST_SPEECH_S = 0.1


def turn_detection(turn_end: TurnEnd) -> dict[str, object] | None:
    """What session.update asks for; None: the server leaves turns to the model or to the client.

    The user's speech does not interrupt answers: the next words of a looped recording are not a reply to them.
    """
    if turn_end != "vad":
        return None
    return {
        "type": "server_vad",
        "threshold": 0.5,
        "prefix_padding_ms": round(PREFIX_S * 1000),
        "silence_duration_ms": round(SILENCE_S * 1000),
        "create_response": True,
        "interrupt_response": False,
    }


class SpeechEnd:
    """Finds where the user starts and stops to speak, from the energy of the audio."""

    def __init__(self, sample_rate: int, silence_s: float = SILENCE_S) -> None:
        self.speaking = False
        self._rate = sample_rate
        self._silence_s = silence_s
        self._speech_s = 0.0
        self._pause_s = 0.0

    def ended(self, samples: Audio) -> bool:
        """Take a piece of audio, [samples] float32; return True if a turn ended with it."""
        if not len(samples):
            return False
        seconds = len(samples) / self._rate
        if float(np.sqrt(np.mean(np.square(samples)))) > SPEECH_LEVEL:
            self._speech_s, self._pause_s = self._speech_s + seconds, 0.0
            self.speaking = self.speaking or self._speech_s >= LEAST_SPEECH_S
            return False
        self._pause_s += seconds
        if not self.speaking:
            self._speech_s = 0.0
        if not self.speaking or self._pause_s < self._silence_s:
            return False
        self.speaking, self._speech_s = False, 0.0
        return True
