"""What libraries raise about a checkpoint's files, as one usage error that names the file.

The one place where an exception of transformers, safetensors, gguf, huggingface_hub, pydantic or torch is taken to
be about input. `input_errors` goes around code of ours that reads a file: what a bug of ours raises most (TypeError,
AttributeError, IndexError) passes through and stays an internal error. `LIBRARY_ERRORS` is for single calls into a
library.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from huggingface_hub.errors import StrictDataclassError
from pydantic import ValidationError
from safetensors import SafetensorError

from metronome_cli.core.errors import MetronomeError, UsageError

FILE_ERRORS: tuple[type[Exception], ...] = (
    SafetensorError, StrictDataclassError, ValidationError, struct.error, OSError, ValueError, KeyError,
    ArithmeticError, RuntimeError,
)  # fmt: skip
LIBRARY_ERRORS: tuple[type[Exception], ...] = (  # of a call into a library alone, with a user's file or values
    *FILE_ERRORS, ImportError, IndexError, TypeError, AttributeError, NotImplementedError, AssertionError, MemoryError,
)  # fmt: skip
_LONGEST = 300


@contextmanager
def input_errors(path: Path | str) -> Iterator[None]:
    """Turn what a library raises about the file at `path` into a UsageError; errors of ours pass through."""
    try:
        yield
    except MetronomeError:
        raise
    except FILE_ERRORS as error:
        raise unreadable(path, error) from error


def unreadable(path: Path | str, error: Exception) -> UsageError:
    """The error of a damaged or impossible file."""
    return UsageError(
        f"{path}: cannot be read as a checkpoint: {first_line(error)}",
        hint="download it again, or check the key that is named",
    )


def first_line(error: Exception) -> str:
    """What an exception says, on one line; a validation error with its first key."""
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False, include_input=False)[0]
        return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"[:_LONGEST]
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = " ".join(lines[:2]) if lines else ""
    name = type(error).__name__
    return (f"{name}: {text}" if text and not isinstance(error, OSError | ValueError) else text or name)[
        :_LONGEST
    ]
