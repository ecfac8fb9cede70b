"""Errors of an engine: device memory that ran out, and values that are not finite.

A NaN propagates through all later layers, so only outputs are checked: the hidden states of a decoder, the logits that
a token was picked from, and the audio of a session. torch's argmax treats NaN as the largest value, so the logit of the
picked token shows a NaN anywhere in its row.
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
    """Return whether the error is an out-of-memory error of torch or Python."""
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
    """Convert a library's error to an EngineError; an EngineError is returned unchanged."""
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
    """Collects the checks of a frame on a GPU and reads them once, so that the host waits only once."""
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
    """logits: [batch, vocab], tokens: [batch], the ones picked. Raises EngineError if a logit is not finite."""
    check_finite(logits.gather(1, tokens.unsqueeze(1)), "a logit")


def check_audio(audio: Audio) -> None:
    """[samples]. Raises EngineError for NaN and infinities."""
    if not np.isfinite(audio).all():
        raise EngineError("the output audio is not finite")
