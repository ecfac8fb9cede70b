"""Cache groups as a part of a report."""

from __future__ import annotations

from collections.abc import Sequence

from metronome_cli.config.cache_groups import (
    CacheGroup,
    constant_bytes_per_session,
    growing_bytes_per_token,
    grows_until,
)
from metronome_cli.results.forecast_result import CacheForecast, CacheGroupPart


def cache_part(groups: Sequence[CacheGroup]) -> CacheForecast:
    """The groups, and their sums."""
    return CacheForecast(
        growing_bytes_per_token=growing_bytes_per_token(groups),
        grows_until=grows_until(groups),
        constant_bytes_per_session=constant_bytes_per_session(groups),
        groups=[_group(group) for group in groups],
    )


def _group(group: CacheGroup) -> CacheGroupPart:
    constant = group.bytes_at(group.limit) if group.limit is not None else group.state_bytes
    return CacheGroupPart(
        name=group.name,
        law=group.law,
        layers=group.layers,
        bytes_per_position=group.bytes_per_position,
        limit=group.limit,
        constant_bytes=constant,
        dtype=group.dtype,
        own_positions=group.own_positions,
    )
