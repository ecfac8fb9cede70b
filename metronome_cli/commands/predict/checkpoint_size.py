"""The size of a checkpoint's weights, read without loading anything.

A safetensors file begins with eight bytes, the length of a JSON header (little-endian), which gives every
tensor's byte range; an index file gives the total of all its shards. Files that run code when they are
opened are not read.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

from metronome_cli.core.errors import UsageError
from metronome_cli.core.files import check_regular, read_bounded
from metronome_cli.core.strict_json import BadJson, loads
from metronome_cli.forecast.memory import WeightBytes

INDEX = "model.safetensors.index.json"
_LONGEST_HEADER = 100 * 2**20


def weights_in(path: Path) -> WeightBytes | None:
    """Bytes of the safetensors weights beside a config; None where there are none. Raises UsageError."""
    directory = path if path.is_dir() else path.parent
    index = directory / INDEX
    if index.is_file():
        stated = _json_object(index).get("metadata")
        total = stated.get("total_size") if isinstance(stated, dict) else None
        if isinstance(total, int) and not isinstance(total, bool) and total > 0:
            return WeightBytes(total, f"{INDEX}: total_size")
    files = sorted(directory.glob("*.safetensors"))
    if not files:
        return None
    total = sum(tensor_bytes(file) for file in files)
    return WeightBytes(total, f"headers of {len(files)} safetensors file{'' if len(files) == 1 else 's'}")


def tensor_bytes(file: Path) -> int:
    """Bytes of all tensors in one safetensors file, from its header. Raises UsageError naming the file."""
    check_regular(file)
    try:
        with file.open("rb") as stream:
            (length,) = struct.unpack("<Q", stream.read(8))
            if length > _LONGEST_HEADER:
                raise UsageError(
                    f"{file}: its header claims {length:,} bytes", hint="is it a safetensors file?"
                )
            header = loads(stream.read(length))
    except (OSError, struct.error, BadJson) as error:
        raise UsageError(f"{file}: not a safetensors file ({error})") from None
    if not isinstance(header, dict):
        raise UsageError(f"{file}: its header is no JSON object", hint="is it a safetensors file?")
    ends = [_end(tensor) for name, tensor in header.items() if name != "__metadata__"]
    if not ends or None in ends:
        raise UsageError(f"{file}: its header gives no byte ranges", hint="is it a safetensors file?")
    largest = max(end for end in ends if end is not None)
    if 8 + length + largest > file.stat().st_size:
        raise UsageError(
            f"{file}: cut short: its header promises {largest:,} bytes of tensors, the file has "
            f"{max(0, file.stat().st_size - 8 - length):,}",
            hint="download it again",
        )
    return largest


def _end(tensor: Any) -> int | None:
    offsets = tensor.get("data_offsets") if isinstance(tensor, dict) else None
    if isinstance(offsets, list) and len(offsets) == 2 and all(isinstance(o, int) for o in offsets):
        return int(offsets[1])
    return None


def _json_object(file: Path) -> dict[str, Any]:
    try:
        value = loads(read_bounded(file))
    except BadJson as error:
        raise UsageError(f"{file}: {error}") from None
    if not isinstance(value, dict):
        raise UsageError(f"{file}: not a JSON object")
    return value
