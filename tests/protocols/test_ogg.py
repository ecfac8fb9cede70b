"""Pages written are pages read; what is read off packets is what a decoder makes of them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metronome_cli.audio.library import AudioLibrary, Clip
from metronome_cli.audio.streams import AlignedLoopedSpeech, LoopedSpeech
from metronome_cli.backends.websocket.message_cache import encode_loop
from metronome_cli.protocols.ogg import OggReader, OggWriter, OpusMeter
from metronome_cli.protocols.opus import OpusDecoder, OpusEncoder

RATE = 24_000


def voice(seconds):
    """[samples]: a tone that glides and breathes, so that no two stretches are alike."""
    t = np.arange(round(seconds * RATE)) / RATE
    return (0.4 * np.sin(2 * np.pi * (200 + 40 * np.sin(0.7 * t)) * t) * (0.6 + 0.4 * np.sin(2 * t))).astype(
        np.float32
    )


@given(st.lists(st.binary(min_size=1, max_size=700), min_size=1, max_size=40), st.data())
def test_what_is_written_is_read_however_it_is_cut(packets, data):
    writer, reader = OggWriter([b"OpusHead", b"OpusTags"]), OggReader()
    pages = b"".join(writer.pages([packet]) for packet in packets)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(pages)), max_size=5)))
    found = []
    for begin, end in zip([0, *cuts], [*cuts, len(pages)], strict=True):
        found += reader.packets(pages[begin:end])
    assert found == [b"OpusHead", b"OpusTags", *packets]


@given(st.binary(min_size=1, max_size=200))
def test_no_bytes_break_the_reader(noise):
    found = OpusMeter().seconds(noise)
    assert found is None or found >= 0.0
    if not noise.startswith(b"OggS"[: len(noise)]):
        assert found is None


@settings(max_examples=10, deadline=None)
@given(st.lists(st.integers(1, 4), min_size=1, max_size=8))
def test_the_meter_hears_what_a_decoder_does(pieces):
    encoder, decoder, meter = OpusEncoder(RATE), OpusDecoder(RATE), OpusMeter()
    for count in pieces:
        pages = encoder.encode(voice(0.04 * count))
        assert meter.seconds(pages) == pytest.approx(len(decoder.decode(pages)) / RATE)


def test_a_session_that_starts_anywhere_in_the_loop_is_heard():
    """Its own pages decode to its own audio, but for the delay and the first moments of the codec."""
    clip = Clip("voice", voice(24.0), 24.0)
    streams = LoopedSpeech(AudioLibrary(RATE, (clip,)), 0.08, seed=1).shared()
    assert isinstance(streams, AlignedLoopedSpeech)
    loop = encode_loop(streams, RATE, 0.08, 1)
    stream = streams.stream(5)
    assert len(loop.frames) == stream.places
    writer, ready, encoder, own = (
        OggWriter(loop.headers),
        OpusDecoder(RATE),
        OpusEncoder(RATE),
        OpusDecoder(RATE),
    )
    frames = range(stream.places - 20, stream.places + 30)  # over the seam, too
    said = np.concatenate([stream.frame(k) for k in frames])
    from_loop = [ready.decode(writer.pages(loop.frames[stream.place(k)])) for k in frames]
    for_itself = [own.decode(encoder.encode(stream.frame(k))) for k in frames]
    assert len(np.concatenate(from_loop)) == len(said)
    assert likeness(said, from_loop) > 0.97 * likeness(said, for_itself) > 0.8


def likeness(said, heard):
    """Correlation at the best delay, the first 0.2 s left out."""
    heard = np.concatenate(heard)
    return max(np.corrcoef(said[4800 : len(said) - lag], heard[4800 + lag :])[0, 1] for lag in range(300))


def test_a_period_of_no_whole_packets_is_left_to_each_session():
    clip = Clip("voice", voice(24.0), 24.0)
    streams = LoopedSpeech(AudioLibrary(RATE, (clip,)), 0.09, seed=1).shared()
    assert encode_loop(streams, RATE, 0.09, 2) is None
