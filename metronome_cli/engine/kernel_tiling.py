"""How a launch of the paged kernel is cut: by batch and tokens alone, so that a captured graph serves every age."""

from __future__ import annotations

from typing import NamedTuple

PROGRAMS = 512  # launched at least if the cache is long enough to split: several for each of 100 to 200 cores
MOST_PARTS = 32  # of one session's keys
MOST_ROWS, LEAST_ROWS = 64, 16  # query rows of one program; a matrix instruction takes at least 16


class Tiling(NamedTuple):
    """rows: query rows of a program; keys: of one iteration; tiles: of rows; parts: of each session's keys."""

    rows: int
    keys: int
    tiles: int
    parts: int
    warps: int


def tiling(batch: int, kv_heads: int, group: int, tokens: int, element_size: int) -> Tiling:
    """The cut for `batch` sessions of `tokens` queries, `group` query heads per KV head."""
    rows = min(MOST_ROWS, max(LEAST_ROWS, power_of_2(group * tokens)))
    tiles = -(-group * tokens // rows)
    parts = power_of_2(max(1, PROGRAMS // (batch * kv_heads * tiles)))
    return Tiling(rows, 64 if element_size <= 2 else 32, tiles, min(MOST_PARTS, parts), 4)


def power_of_2(count: int) -> int:
    """The least one that is not below `count`."""
    return 1 << max(count - 1, 0).bit_length()
