"""Makes the speech in this folder again, to the byte: `python sample_audio/make.py [--check]`.

Needs the program espeak-ng and the packages numpy, scipy and soundfile. Every word spoken is written below.
Each file is one call: turns of speech, and after each turn a pause in which the other side would answer. A
little seeded noise lies under all of it, as in a room, so that pauses are quiet and not empty.
"""

from __future__ import annotations

import argparse
import filecmp
import io
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import soundfile
from scipy.signal import resample_poly

HERE = Path(__file__).resolve().parent
ESPEAK_HZ = 22_050
PEAK = 0.5
NOISE = 1e-4  # of full scale
LOSSY = 0.8  # 0: largest and best, 1: smallest
LEAD_S = 0.4
Sound = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Turn:
    """One stretch of speech and the silence after it. `speed` in words a minute, `pitch` 0 to 99."""

    voice: str
    text: str
    pause_s: float
    speed: int = 165
    pitch: int = 50


@dataclass(frozen=True)
class Call:
    """One file. The format follows from the name."""

    file: str
    rate_hz: int
    turns: tuple[Turn, ...]


def one_voice(voice: str, speed: int, pitch: int, *lines: tuple[str, float]) -> tuple[Turn, ...]:
    return tuple(Turn(voice, text, pause_s, speed, pitch) for text, pause_s in lines)


CALLS = (
    Call(
        "en-gb-table.flac",
        16_000,
        one_voice(
            "en-gb",
            160,
            45,
            ("Good evening. I would like to book a table for four people, please.", 3.0),
            ("Friday would be best, some time after seven.", 2.5),
            ("No, half past eight is too late for the children. Is there anything at the window?", 4.0),
            ("Lovely. The name is Marlow, M, A, R, L, O, W.", 2.0),
            ("Thank you very much. Goodbye.", 1.0),
        ),
    ),
    Call(
        "en-us-bicycle.ogg",
        24_000,
        one_voice(
            "en-us+f3",
            175,
            60,
            ("Hi there. My bicycle makes a clicking noise whenever I push hard on the left pedal.", 3.5),
            ("Yes, I oiled the chain last week, and the noise is still there.", 2.0),
            ("Hmm. Let me try. Okay, it moves a little from side to side. Is that bad?", 4.5),
            ("So I need a new bearing. How long would that take you?", 2.5),
        ),
    ),
    Call(
        "en-scotland-bus.wav",
        8_000,
        one_voice(
            "en-gb-scotland+m3",
            150,
            40,
            ("Excuse me. Does the number nine still stop at the harbour?", 2.0),
        ),
    ),
    Call(
        "en-us-hurry.flac",
        8_000,
        one_voice(
            "en-us+m7",
            250,
            35,
            ("Quick question, I am on a train and the tunnel is coming, so listen.", 0.6),
            ("The parcel is under the stairs, behind the blue boxes, not the grey ones, the blue ones.", 1.2),
            ("Hello? Can you hear me? Blue. Behind the blue boxes.", 2.5),
        ),
    ),
    Call(
        "en-two-voices.ogg",
        22_050,
        (
            Turn("en-gb-x-rp+f4", "Tell me, what did the lighthouse look like from the sea?", 0.7, 155, 55),
            Turn("en-us+m2", "Like a candle that somebody had forgotten to blow out.", 0.5, 145, 30),
            Turn("en-gb-x-rp+f4", "And you rowed towards it all night?", 0.6, 160, 55),
            Turn(
                "en-us+m2",
                "All night, and half of the morning. The wind turned twice. When we came ashore, nobody "
                "could lift a spoon, let alone an oar.",
                1.1,
                145,
                30,
            ),
            Turn("en-gb-x-rp+f4", "What did you eat?", 0.4, 160, 55),
            Turn(
                "en-us+m2",
                "Cold porridge. It was the best meal of my life, and I have never liked it.",
                0.9,
                150,
                30,
            ),
            Turn("en-gb-x-rp+f4", "Would you go again?", 1.6, 155, 55),
            Turn("en-us+m2", "Ask me in the spring.", 1.5, 140, 30),
        ),
    ),
    Call(
        "fr-boulangerie.ogg",
        22_050,
        one_voice(
            "fr-fr+f2",
            160,
            52,
            ("Bonjour, est-ce qu'il vous reste deux pains de campagne pour demain matin ?", 3.0),
            ("Très bien. Et une tarte aux abricots, si possible sans amandes.", 3.5),
            ("Oui, je passerai vers neuf heures, juste avant le marché.", 2.0),
            ("Merci beaucoup, bonne journée !", 1.0),
        ),
    ),
    Call(
        "de-heizung.ogg",
        48_000,
        one_voice(
            "de+m4",
            155,
            42,
            ("Guten Tag, bei uns ist seit gestern Abend die Heizung kalt.", 3.0),
            ("Der Kessel zeigt eine rote Lampe und daneben die Zahl siebzehn.", 2.5),
            ("Moment, ich schaue nach. Ja, das Ventil im Keller ist offen.", 5.0),
            ("Gut, dann warte ich zwischen zehn und zwölf auf Ihren Kollegen. Auf Wiederhören.", 1.0),
        ),
    ),
    Call(
        "es-jardin.flac",
        16_000,
        one_voice(
            "es+f5",
            170,
            58,
            ("Hola, buenas tardes. Quería preguntar cuándo se podan los limoneros.", 3.0),
            ("¿Y si todavía tienen flores?", 2.0),
            ("Entiendo. Entonces espero hasta que pase el frío.", 1.0),
        ),
    ),
    Call(
        "it-biblioteca.ogg",
        44_100,
        one_voice(
            "it+m1",
            165,
            48,
            (
                "Buongiorno, ho trovato un vecchio libro di carte nautiche. Vorrei sapere chi lo ha scritto.",
                4.0,
            ),
            (
                "No, la prima pagina manca. Però sulla costa c'è un anno, mi pare mille ottocento trenta.",
                3.0,
            ),
            ("Va bene, lo porto giovedì.", 1.0),
        ),
    ),
    Call(
        "pt-viagem.mp3",
        24_000,
        one_voice(
            "pt-br+f1",
            170,
            50,
            ("Oi, tudo bem? A gente chega na quinta, mas o barco só sai no sábado.", 3.0),
            ("Então ficamos duas noites na vila, perto da igreja.", 2.5),
            ("Combinado. Levo o café e você leva o pão.", 1.0),
        ),
    ),
    Call(
        "sv-tystnad.ogg",
        16_000,
        one_voice(
            "sv+f2",
            140,
            50,
            ("Hej. Jag ringer om lägenheten vid sjön.", 6.0),
            ("Ja, jag är kvar. Jag letade efter en penna.", 8.0),
            ("Tack, nu har jag skrivit upp allt. Vi ses på måndag.", 3.0),
        ),
    ),
)


def spoken(turn: Turn) -> Sound:
    """One turn as espeak-ng says it, its own silence at the ends taken off."""
    command = ["espeak-ng", "-v", turn.voice, "-s", str(turn.speed), "-p", str(turn.pitch), "--stdout"]
    done = subprocess.run(
        [*command, "-b", "1", "--stdin"], input=turn.text.encode(), capture_output=True, check=True
    )
    samples, rate = soundfile.read(io.BytesIO(done.stdout))
    assert rate == ESPEAK_HZ
    loud = np.flatnonzero(np.abs(samples) > 0.01)
    sound: Sound = samples[loud[0] : loud[-1] + 1]
    return sound


def quiet(seconds: float) -> Sound:
    return np.zeros(round(seconds * ESPEAK_HZ))


def performed(call: Call) -> Sound:
    """The whole call at its own rate, peak at `PEAK`, noise beneath."""
    parts = [quiet(LEAD_S)]
    for turn in call.turns:
        parts += [spoken(turn), quiet(turn.pause_s)]
    sound: Sound = resample_poly(np.concatenate(parts), call.rate_hz, ESPEAK_HZ)
    sound *= PEAK / np.abs(sound).max()
    return sound + NOISE * np.random.default_rng(len(sound)).standard_normal(len(sound))


def make(folder: Path) -> list[Path]:
    """Write every call into `folder`."""
    files = []
    for call in CALLS:
        path = folder / call.file
        lossy = {} if path.suffix in (".flac", ".wav") else {"compression_level": LOSSY}
        soundfile.write(path, performed(call), call.rate_hz, **lossy)
        if path.suffix == ".ogg":
            path.write_bytes(with_serial(path.read_bytes(), serial=1))
        files.append(path)
    return files


def with_serial(ogg: bytes, serial: int) -> bytes:
    """The same Ogg stream under a fixed serial number; the writer draws one from the clock."""
    pages, at = [], 0
    while at < len(ogg):
        segments = ogg[at + 26]
        end = at + 27 + segments + sum(ogg[at + 27 : at + 27 + segments])
        page = bytearray(ogg[at:end])
        page[14:18] = serial.to_bytes(4, "little")
        page[22:26] = bytes(4)
        page[22:26] = page_crc(page).to_bytes(4, "little")
        pages.append(bytes(page))
        at = end
    return b"".join(pages)


def page_crc(page: bytes | bytearray) -> int:
    """CRC-32 with polynomial 04c11db7, not reflected, from 0 (RFC 3533)."""
    crc = 0
    for byte in page:
        crc = ((crc << 8) & 0xFFFFFFFF) ^ CRC_TABLE[(crc >> 24) ^ byte]
    return crc


def crc_entry(byte: int) -> int:
    crc = byte << 24
    for _ in range(8):
        crc = (crc << 1) ^ (0x04C11DB7 if crc & 0x80000000 else 0)
        crc &= 0xFFFFFFFF
    return crc


CRC_TABLE = [crc_entry(byte) for byte in range(256)]


def check() -> int:
    """Make everything once more elsewhere and compare; the number of files that differ."""
    with tempfile.TemporaryDirectory() as folder:
        differing = [p.name for p in make(Path(folder)) if not same(p, HERE / p.name)]
    print("differ: " + ", ".join(differing) if differing else f"all {len(CALLS)} files are the same")
    return len(differing)


def same(one: Path, other: Path) -> bool:
    return other.is_file() and filecmp.cmp(one, other, shallow=False)


def main() -> int:
    parser = argparse.ArgumentParser(description="Make the sample speech again.")
    parser.add_argument("--check", action="store_true", help="compare with what is here instead of writing")
    if parser.parse_args().check:
        return min(1, check())
    for path in make(HERE):
        info = soundfile.info(path)
        print(f"{path.name:24} {info.duration:5.1f} s {info.samplerate:6} Hz {path.stat().st_size:8} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
