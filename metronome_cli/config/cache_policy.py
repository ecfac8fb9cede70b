"""What of a session's cache stays resident, as configuration: "unbounded", "window(1024, 16)", "ring(3000)".

Pure values; the engine turns one into edits of a block table.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from metronome_cli.core.errors import UsageError
from metronome_cli.core.quantities import shown

CachePolicyKind = Literal["unbounded", "window", "ring", "recycle"]
OnPoolFull = Literal["stall", "preempt", "refuse"]
SinkPositions = Literal["rolling", "absolute"]
_FORM = re.compile(
    r"\s*(unbounded|window|ring|recycle)\s*(?:\(\s*(\d{1,9})\s*(?:,\s*(\d{1,9})\s*)?\))?\s*", re.ASCII
)
_HINT = "one of: unbounded, window(W, S), window(W), ring(W), recycle(W), with W and S in tokens"


@dataclass(frozen=True, slots=True)
class CachePolicySpec:
    """One residency policy. `window` and `sinks` are tokens; both 0 where they do not apply.

    - unbounded: every token stays.
    - window(W, S): a query at position t attends [0, S) and [t - W, t].
    - ring(W): W positions reserved when the slot opens; a query attends [t - W + 1, t]; no sinks.
    - recycle(W): grows to 2 W, then restarts at position 0 with the newest W tokens recomputed.
    """

    kind: CachePolicyKind
    window: int = 0
    sinks: int = 0

    @classmethod
    def parse(cls, text: str) -> CachePolicySpec:
        """Raises UsageError for an unknown form, a missing W, or S where there are no sinks."""
        match = _FORM.fullmatch(text)
        if match is None:
            raise UsageError(f"{shown(text)} is not a policy", hint=_HINT)
        kind, window, sinks = match[1], int(match[2] or 0), int(match[3] or 0)
        if (kind == "unbounded") != (match[2] is None) or (kind != "window" and match[3]):
            raise UsageError(f"{shown(text)} is not a policy", hint=_HINT)
        if kind != "unbounded" and window < 1:
            raise UsageError(f"{shown(text)}: W must be at least 1 token", hint=_HINT)
        return cls(kind, window, sinks)  # type: ignore[arg-type]

    def __str__(self) -> str:
        if self.kind == "unbounded":
            return "unbounded"
        if self.kind == "window":
            return f"window({self.window}, {self.sinks})"
        return f"{self.kind}({self.window})"

    @property
    def grows(self) -> bool:
        """Whether a step gets dearer, or the pool fuller, through a session's whole life."""
        return self.kind in ("unbounded", "recycle")

    def most_blocks(self, *, forward: int, frame: int, block_tokens: int) -> int | None:
        """Blocks that a session never exceeds; None when it grows without end.

        `forward`: most tokens of one forward pass, for which a ring keeps room beside its window. `frame`: most
        positions that one frame adds, all of which a window holds while the frame is served.
        """
        if self.kind == "unbounded":
            return None
        if self.kind == "ring":
            return ring_blocks(self.window, forward, block_tokens)
        if self.kind == "recycle":
            return -(-2 * self.window // block_tokens)
        return window_blocks(self.window, self.sinks, frame, block_tokens)

    def resident_tokens(self, tokens: int) -> int:
        """Upper bound of the tokens kept of a session that has seen `tokens` (before block rounding)."""
        if self.kind == "unbounded":
            return tokens
        if self.kind == "window":
            return min(tokens, self.sinks + self.window + 1)
        if self.kind == "ring":
            return self.window
        return min(tokens, 2 * self.window)


def ring_blocks(window: int, forward: int, block_tokens: int) -> int:
    """Blocks of a circle in which the first query of a forward pass of that many tokens still finds its window."""
    return -(-(window + max(1, forward) - 1) // block_tokens)


def window_blocks(window: int, sinks: int, frame: int, block_tokens: int) -> int:
    """Most blocks that window(W, S) holds while a frame of `frame` positions is served.

    Sinks fill whole blocks of their own. The frame's first query looks back W, its last position is frame - 1
    later, and the W + frame positions between them may begin anywhere in a block.
    """
    return -(-sinks // block_tokens) + 1 + -(-(window + frame - 1) // block_tokens)
