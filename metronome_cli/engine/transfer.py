"""Small copies from the host to a device that make neither wait."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor


def to_device(values: Sequence[int] | npt.NDArray[Any], device: torch.device) -> Tensor:
    """An array as it is, or integers as int64, on the device.

    A GPU reads it from pinned memory, which PyTorch does not hand out again before the copy is done.
    """
    array = values if isinstance(values, np.ndarray) else np.array(values, dtype=np.int64)
    host = torch.from_numpy(array)
    return host if device.type == "cpu" else host.pin_memory().to(device, non_blocking=True)
