"""Cuts recordings into utterances that a user could say, each trimmed to its speech.

Loudness is taken in 20 ms windows; a window above -45 dBFS is speech. A pause of 0.4 s or more ends an utterance, and
so does a length of 8 s at the next softest window. Utterances shorter than 2 s are joined with the next one of the same
recording if both fit, else left out. Start and end are those of the first and last speech window, not of the file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from metronome_cli.core.types import Audio

WINDOW_S = 0.020
SPEECH_DBFS = -45.0
PAUSE_S = 0.4
SHORTEST_S, LONGEST_S = 2.0, 8.0
BACKCHANNEL_S = 0.4  # of a "mm-hm"


def utterances(clips: Sequence[Audio], sample_rate: int) -> list[Audio]:
    """Utterances of 2 to 8 s, in order; each [n] float32. Empty if nothing is loud enough."""
    return [part for clip in clips for part in _of_clip(clip, sample_rate)]


def backchannel(clips: Sequence[Audio], sample_rate: int) -> Audio:
    """A short piece of speech, faded at both ends; [n] float32."""
    length, fade = round(BACKCHANNEL_S * sample_rate), round(WINDOW_S * sample_rate)
    piece = max(utterances(clips, sample_rate) or list(clips), key=len)[:length].copy()
    ramp = np.linspace(0, 1, min(fade, len(piece) // 2), dtype=np.float32)
    piece[: len(ramp)] *= ramp
    piece[len(piece) - len(ramp) :] *= ramp[::-1]
    return piece


def _of_clip(clip: Audio, sample_rate: int) -> Iterator[Audio]:
    window = round(WINDOW_S * sample_rate)
    speech = _speech_windows(clip, window)
    runs = list(_joined(_runs(speech, round(PAUSE_S / WINDOW_S)), speech))
    for first, last in runs:
        if (last - first) * WINDOW_S >= SHORTEST_S:
            yield clip[first * window : last * window]


def _speech_windows(clip: Audio, window: int) -> Audio:
    """Loudness of each whole window in dBFS, as [n]; minus infinity of silence."""
    whole = clip[: len(clip) // window * window].reshape(-1, window)
    with np.errstate(divide="ignore"):
        return np.asarray(
            10 * np.log10(np.mean(np.square(whole, dtype=np.float64), axis=1)), dtype=np.float32
        )


def _runs(loudness: Audio, pause: int) -> Iterator[tuple[int, int]]:
    """(first, end) of speech between pauses of at least `pause` windows."""
    spoken = np.flatnonzero(loudness > SPEECH_DBFS)
    if len(spoken):
        for run in np.split(spoken, np.flatnonzero(np.diff(spoken) > pause) + 1):
            yield int(run[0]), int(run[-1]) + 1


def _joined(runs: Iterator[tuple[int, int]], loudness: Audio) -> Iterator[tuple[int, int]]:
    """Runs of at most the longest length; a short one takes the next if both fit."""
    longest, shortest = round(LONGEST_S / WINDOW_S), round(SHORTEST_S / WINDOW_S)
    held: tuple[int, int] | None = None
    for first, end in runs:
        if held is not None and held[1] - held[0] < shortest and end - held[0] <= longest:
            held = (held[0], end)
            continue
        if held is not None:
            yield held
        held = (first, end)
        while held[1] - held[0] > longest:
            cut = held[0] + shortest + int(np.argmin(loudness[held[0] + shortest : held[0] + longest]))
            yield held[0], cut
            held = (cut, held[1])
    if held is not None:
        yield held
