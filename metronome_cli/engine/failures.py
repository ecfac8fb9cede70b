"""What goes wrong inside an engine, by its name: memory that was not there, numbers that are none.

A NaN stays one through every layer after it, so it is looked for where numbers leave: the states that a decoder
hands to its model, the logits that a token was picked from, the audio that a session gets. (torch's argmax takes a
NaN for the largest, so the logit of the picked token tells of one anywhere in its row.)
"""

from __future__ import annotations

import re

import numpy as np
import torch
from torch import Tensor

from metronome_cli.core.errors import DeviceMemoryError, EngineError
from metronome_cli.core.types import Audio

_NO_MEMORY = ("out of memory", "not enough memory", "can't allocate memory", "cannot allocate memory")
_AMOUNT = re.compile(r"tried to allocate ([\d.]+ ?\w+)", re.IGNORECASE)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether that is torch's or Python's way of saying that memory was not there."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and any(words in str(error).lower() for words in _NO_MEMORY)


def as_engine_error(error: Exception, where: str) -> EngineError:
    """The designed error for what a library raised; one that is designed already stays as it is."""
    if isinstance(error, EngineError):
        return error
    if is_out_of_memory(error):
        amount = _AMOUNT.search(str(error))
        wanted = f": {amount[1]} more were wanted" if amount else ""
        return DeviceMemoryError(f"out of device memory in {where}{wanted}")
    first = next(iter(str(error).strip().splitlines()), "") or type(error).__name__
    return EngineError(f"the engine failed in {where}: {first}")


def check_finite(values: Tensor, what: str) -> None:
    """Raises EngineError for NaN and infinities."""
    if not torch.isfinite(values).all():
        raise EngineError(f"{what} is not finite")


def check_sampled(logits: Tensor, tokens: Tensor) -> None:
    """logits: [batch, vocab], tokens: [batch], the ones picked. Raises EngineError where a logit was none."""
    check_finite(logits.gather(1, tokens.unsqueeze(1)), "a logit")


def check_audio(audio: Audio) -> None:
    """[samples]. Raises EngineError for NaN and infinities."""
    if not np.isfinite(audio).all():
        raise EngineError("the audio that came out is not finite")
