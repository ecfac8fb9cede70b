"""What goes wrong inside an engine, by its name: memory that was not there, numbers that are none.

A NaN stays one through every layer after it, so it is looked for where numbers leave: the states that a decoder
hands to its model, the logits that a token was picked from, the audio that a session gets. (torch's argmax takes a
NaN for the largest, so the logit of the picked token tells of one anywhere in its row.)
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import numpy as np
import torch
from torch import Tensor

from metronome_cli.core.errors import DeviceMemoryError, EngineError
from metronome_cli.core.types import Audio

_NO_MEMORY = ("out of memory", "not enough memory", "can't allocate memory", "cannot allocate memory")
_WAITING: ContextVar[list[tuple[Tensor, str]] | None] = ContextVar("metronome_checks", default=None)
_AMOUNT = re.compile(r"tried to allocate ([\d.]+ ?\w+)", re.IGNORECASE)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether that is torch's or Python's way of saying that memory was not there."""
    return any(_says_no_memory(one) for one in _causes(error))


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """The error and what it was raised from: a capture that ran out of memory fails once more as it is ended."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _says_no_memory(error: BaseException) -> bool:
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and any(words in str(error).lower() for words in _NO_MEMORY)


def as_engine_error(error: Exception, where: str) -> EngineError:
    """The designed error for what a library raised; one that is designed already stays as it is."""
    if isinstance(error, EngineError):
        return error
    if is_out_of_memory(error):
        amount = next(filter(None, (_AMOUNT.search(str(one)) for one in _causes(error))), None)
        wanted = f": {amount[1]} more were wanted" if amount else ""
        return DeviceMemoryError(f"out of device memory in {where}{wanted}")
    first = next(iter(str(error).strip().splitlines()), "") or type(error).__name__
    return EngineError(f"the engine failed in {where}: {first}")


def check_finite(values: Tensor, what: str) -> None:
    """Raises EngineError for NaN and infinities; on a GPU, inside `checked_together`, at its end."""
    waiting = _WAITING.get()
    if waiting is not None and values.device.type == "cuda":
        waiting.append((values.sum(dtype=torch.float32), what))  # NaN and infinities survive a sum
    elif not torch.isfinite(values).all():
        raise EngineError(f"{what} is not finite")


@contextmanager
def checked_together() -> Iterator[None]:
    """Collects the checks of a frame on a GPU and reads them once, so that none makes the host wait alone."""
    waiting: list[tuple[Tensor, str]] = []
    token = _WAITING.set(waiting)
    try:
        yield
    finally:
        _WAITING.reset(token)
    if waiting:
        finite = torch.isfinite(torch.stack([total for total, _ in waiting])).tolist()
        for fine, (_, what) in zip(finite, waiting, strict=True):
            if not fine:
                raise EngineError(f"{what} is not finite")


def check_sampled(logits: Tensor, tokens: Tensor) -> None:
    """logits: [batch, vocab], tokens: [batch], the ones picked. Raises EngineError where a logit was none."""
    check_finite(logits.gather(1, tokens.unsqueeze(1)), "a logit")


def check_audio(audio: Audio) -> None:
    """[samples]. Raises EngineError for NaN and infinities."""
    if not np.isfinite(audio).all():
        raise EngineError("the audio that came out is not finite")
