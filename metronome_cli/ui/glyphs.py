"""Characters that a stream can show, Unicode blocks or ASCII, and text made safe to print."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TextIO


@dataclass(frozen=True, slots=True)
class Glyphs:
    """`levels` go from empty to full; `bar` is (full, empty); the rest are single characters."""

    levels: str
    bar: tuple[str, str]
    dot: str
    shades: str  # one a stage of the step, told apart without colour
    line: str  # of a title or a limit
    cells: str  # a session that is on time, late, empty, waiting


UNICODE = Glyphs(levels="▁▂▃▄▅▆▇█", bar=("█", "░"), dot="·", shades="█▓▒░▚▞", line="─", cells="■▲○·")
ASCII = Glyphs(levels="_.-:=+*#", bar=("#", "."), dot="-", shades="#=+-~:", line="-", cells="#!o.")


def glyphs_for(stream: TextIO) -> Glyphs:
    """UNICODE where the stream's encoding has every one of its characters."""
    encoding = getattr(stream, "encoding", None) or "utf-8"
    wanted = (
        UNICODE.levels + "".join(UNICODE.bar) + UNICODE.dot + UNICODE.shades + UNICODE.line + UNICODE.cells
    )
    try:
        wanted.encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return ASCII
    return UNICODE


def printable(text: str, stream: TextIO | None = None) -> str:
    """One line of text without control characters, in characters that the stream has."""
    text = "".join(char if char.isprintable() else _escaped(char) for char in text)
    encoding = getattr(stream, "encoding", None) or "utf-8"
    try:
        return text.encode(encoding, "backslashreplace").decode(encoding)
    except LookupError:
        return ascii(text)[1:-1]


def _escaped(char: str) -> str:
    return " " if char in "\t\n\r" else char.encode("unicode_escape").decode("ascii")


def bar(share: float, width: int, glyphs: Glyphs) -> str:
    """A bar of `width` cells, `share` of it full; any share above 0 shows at least one cell."""
    share = min(1.0, max(0.0, share))
    full = round(share * width)
    if share > 0:
        full = max(1, full)
    if share < 1:
        full = min(full, width - 1) if width > 1 else full
    return glyphs.bar[0] * full + glyphs.bar[1] * (width - full)


def level(value: float, top: float, glyphs: Glyphs) -> str:
    """The character for `value` between 0 and `top`; above `top` it is full."""
    steps = len(glyphs.levels)
    return glyphs.levels[min(steps - 1, max(0, int(value / top * steps)))] if top > 0 else glyphs.levels[0]
