"""Checks of a sound file, and what is done about each finding.

Each rule looks at the file as written, before resampling:

    refused             not finite: any NaN or infinity
                        no samples: none, or a header that was never finished
                        too short: under 100 ms (a loop of it would be a buzz)
    used, with a note   cut short: fewer bytes than the header of a WAV, AIFF or AU promises; in other
                        formats over 1 % fewer samples than announced (healthy MP3s fall 0.2 % short)
                        damaged: the decoder stopped; the part before is used
                        long: over 10 min, the beginning is used
                        channels cancel: their mean is silent and they are not, the first one is used
                        offset: a mean beyond 5 % of full scale; removed
                        beyond full scale: a peak over 1, scaled down to 1
                        clipped: over 0.1 % of the samples in flat runs at full scale
                        silence: a peak under 0.0001 (-80 dB)
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from metronome_cli.audio.containers import Header
from metronome_cli.audio.decode import Decoded, DecodeError, decode
from metronome_cli.core.quantities import format_duration
from metronome_cli.core.types import Audio

MIN_SECONDS = 0.1
SHORT_DECODE = 0.99
OFFSET = 0.05
CLIPPED_SHARE = 0.001
SILENT_PEAK = 1e-4
_ROUNDING = 1e-6
_CANCELLED = 1e-6  # of the channels' power


def read_sound(fd: int, header: Header | None) -> tuple[Audio, int, tuple[str, ...]]:
    """Return (mono samples within full scale, rate in Hz, notes). Raises DecodeError to refuse the file."""
    try:
        decoded = decode(fd)
    except DecodeError as error:
        raise DecodeError(_header_fault(header) or f"not readable: {error}") from error
    _refuse(decoded, header)
    notes = [*_shortfalls(decoded, header)]
    samples = decoded.samples
    if _channels_cancel(decoded):
        samples = decode(fd, channel=0).samples
        notes.append("its channels cancel each other: used the first one")
    samples, said = _levelled(samples, decoded)
    return samples, decoded.rate_hz, (*notes, *said)


def _header_fault(header: Header | None) -> str | None:
    if header is not None and header.rate_hz == 0:
        return "its header gives a rate of 0 Hz"
    if header is not None and header.channels == 0:
        return "its header gives 0 channels"
    return None


def _refuse(decoded: Decoded, header: Header | None) -> None:
    tally = decoded.tally
    if tally.not_finite:
        raise DecodeError(f"{tally.not_finite:,} of {tally.values:,} samples are not finite")
    if not tally.values and header is not None and header.never_finished:
        raise DecodeError(
            f"its header was never finished: it gives a size of 0, and {header.present:,} bytes follow"
        )
    if not tally.values:
        raise DecodeError(f"damaged from the start: {decoded.damage}" if decoded.damage else "no samples")
    if decoded.seconds < MIN_SECONDS:
        shortest = format_duration(MIN_SECONDS)
        raise DecodeError(
            f"{format_duration(decoded.seconds)} long: at least {shortest} are needed to loop it"
        )


def _shortfalls(decoded: Decoded, header: Header | None) -> Iterator[str]:
    there, rate = len(decoded.samples), decoded.rate_hz
    announced = decoded.announced or 0
    promised = there * header.promised_share if header is not None else 0.0
    if decoded.damage is not None:
        of = f" of {format_duration(announced / rate)}" if announced > there else ""
        yield f"damaged ({decoded.damage}): used the first {format_duration(there / rate)}{of}"
    elif decoded.more:
        of = f" of {format_duration(announced / rate)}" if announced > there else ""
        yield f"long: used the first {format_duration(there / rate)}{of}"
    elif promised > there:
        yield _cut_short(there / rate, promised / rate, "its header promises")
    elif there < SHORT_DECODE * announced:
        yield _cut_short(there / rate, announced / rate, "it announces")


def _cut_short(there_s: float, promised_s: float, who: str) -> str:
    return f"cut short: {format_duration(there_s)} of the {format_duration(promised_s)} that {who}"


def _channels_cancel(decoded: Decoded) -> bool:
    """True if the mean of the channels has almost none of their power."""
    power = float(np.square(decoded.samples, dtype=np.float64).mean())
    return decoded.channels > 1 and power < _CANCELLED * decoded.tally.power / decoded.tally.values


def _levelled(samples: Audio, decoded: Decoded) -> tuple[Audio, list[str]]:
    """Remove the offset, scale the peak to 1, and add notes on the level."""
    said, tally = [], decoded.tally
    offset = float(samples.mean(dtype=np.float64))
    if abs(offset) > OFFSET * max(1.0, tally.peak):
        samples = samples - np.float32(offset)
        said.append(f"an offset of {offset:+.2g} of full scale: removed")
    if tally.peak > 1.0 + _ROUNDING:
        samples = samples / np.float32(tally.peak)
        said.append(f"beyond full scale (peak {tally.peak:.3g}): scaled down")
    elif tally.flat > CLIPPED_SHARE * tally.values:
        said.append(
            f"clipped: {100 * tally.full_scale / tally.values:.2g} % of its samples are at full scale"
        )
    if float(np.abs(samples).max()) < SILENT_PEAK:
        said.append("silence from end to end")
    return np.clip(samples, -1.0, 1.0), said
