"""Strict JSON both ways: what is written has no NaN, what is read is bounded and checked."""

from __future__ import annotations

import json
import math
from typing import Any, NoReturn

MAX_DEPTH = 64
MAX_BYTES = 256 * 2**20
_MOST_DIGITS = 300


class BadJson(ValueError):  # noqa: N818 - "bad JSON" reads as what it is
    """Text that is not strict JSON within the bounds; the message says why."""


def finite(value: Any) -> Any:
    """The same data with NaN and infinities as None, tuples as lists and text that UTF-8 can carry."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "backslashreplace").decode("utf-8")
    if isinstance(value, dict):
        return {finite(str(key)): finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return value


def dumps(value: Any, *, indent: int | None = None) -> str:
    """JSON without NaN, on one line unless `indent` is given; NumPy scalars as numbers, the rest as text."""
    separators = (",", ":") if indent is None else None
    return json.dumps(
        finite(value),
        allow_nan=False,
        ensure_ascii=False,
        indent=indent,
        separators=separators,
        default=_plain,
    )


def _plain(value: Any) -> Any:
    return finite(value.item()) if hasattr(value, "item") else finite(str(value))


def loads(data: bytes) -> Any:
    """Parse. Raises BadJson unless it is strict UTF-8 JSON of bounded size and depth with unique keys."""
    if len(data) > MAX_BYTES:
        raise BadJson(f"larger than {MAX_BYTES >> 20} MiB")
    try:
        value = json.loads(
            data.decode("utf-8"),
            parse_constant=_no_constant,
            parse_float=_finite_float,
            parse_int=_bounded_int,
            object_pairs_hook=_unique_keys,
        )
    except UnicodeDecodeError:
        raise BadJson("not UTF-8") from None
    except RecursionError:
        raise BadJson(f"nested deeper than {MAX_DEPTH}") from None
    except json.JSONDecodeError as error:
        raise BadJson(f"not JSON: {error.msg} at line {error.lineno}, column {error.colno}") from None
    except ValueError as error:
        raise BadJson(str(error)) from None
    _check_depth(value)
    return value


def _no_constant(name: str) -> NoReturn:
    raise BadJson(f"{name} is not JSON")


def _finite_float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise BadJson(f"{text[:20]} is out of range")
    return value


def _bounded_int(text: str) -> int:
    """Accept a whole number only if a float can hold it, since readers may divide it."""
    if len(text) > _MOST_DIGITS:
        raise BadJson(f"{text[:20]}... is out of range")
    return int(text)


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    keys = dict(pairs)
    if len(keys) < len(pairs):
        raise BadJson("the same key twice in one object")
    return keys


def _check_depth(value: Any) -> None:
    level, depth = [value], 0
    while level:
        if depth > MAX_DEPTH:
            raise BadJson(f"nested deeper than {MAX_DEPTH}")
        level = [child for item in level for child in _children(item)]
        depth += 1


def _children(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []
