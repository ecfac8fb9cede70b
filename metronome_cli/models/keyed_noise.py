"""Random numbers of many sessions in one go, on any device, without a generator that keeps state there.

A number is a hash (splitmix64's finaliser, Steele et al. 2014) of its session's key, its draw and its column, so
a session's numbers do not depend on the batch it is in. 24 bits make a uniform number in (0, 1).
"""

from __future__ import annotations

import torch
from torch import Tensor

_GOLDEN = -7046029254386353131  # 2^64 / golden ratio, odd, as a signed number
_MIX = ((30, -4658895280553007687), (27, -7723592293110705685), (31, 1))  # shift, then multiply


def exponential(keys: Tensor, width: int) -> Tensor:
    """keys: [batch] int64, one per session and draw -> [batch, width] float32, standard exponential."""
    columns = torch.arange(1, width + 1, device=keys.device)
    mixed = _mixed(_mixed(keys)[:, None] + columns * _GOLDEN)
    uniform = ((mixed >> 40 & 0xFFFFFF).float() + 0.5) * 2.0**-24
    return uniform.log_().neg_()


def _mixed(x: Tensor) -> Tensor:
    for shift, factor in _MIX:
        x = (x ^ (x >> shift & (1 << 64 - shift) - 1)) * factor
    return x
