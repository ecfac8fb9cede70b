"""Fields of models that a user writes: numbers within bounds, quantities with units, texts that are parsed.

Sizes are bytes, times seconds, after parsing.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from typing import Annotated

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationInfo

from metronome_cli.config.cache_policy import CachePolicySpec
from metronome_cli.config.validation import RefusedError
from metronome_cli.core.errors import UsageError
from metronome_cli.core.quantities import parse_duration, parse_fraction, parse_size
from metronome_cli.measure.objective import Objective

PLAIN_NUMBERS = {"plain_numbers": True}  # validation context of data that was dumped, not written by hand


def _quantity(parse: Callable[[str], object], example: str = "") -> BeforeValidator:
    """Text with a unit; a bare number only where `example` is empty or the data is a dump."""

    def read(value: object, info: ValidationInfo) -> object:
        if isinstance(value, str):
            return _parsed(parse, value)
        bare = isinstance(value, int | float) and not isinstance(value, bool)
        if bare and example and not (info.context or {}).get("plain_numbers"):
            raise ValueError(f"a number needs its unit here, such as {example}")
        return value

    return BeforeValidator(read)


def _parsed(parse: Callable[[str], object], text: str) -> object:
    try:
        return parse(text)
    except UsageError as error:
        raise RefusedError(error) from None


def printable(text: str) -> str:
    """Text that a terminal shows as it is: no control codes, no marks of direction. Raises ValueError."""
    for char in text:
        if not (char.isprintable() or char == "\n" or unicodedata.category(char) == "Zs"):
            raise ValueError(f"{char.encode('unicode_escape').decode()} cannot be printed")
    return text


Prose = Annotated[str, AfterValidator(printable)]
Real = Annotated[float, Field(strict=True, allow_inf_nan=False, ge=0, le=1e9)]
Duration = Annotated[Real, _quantity(parse_duration, "80ms"), Field(gt=0)]
Size = Annotated[int, _quantity(parse_size, "2GiB"), Field(strict=True, ge=0, le=2**60)]
Fraction = Annotated[Real, _quantity(parse_fraction), Field(le=1)]
Count = Annotated[int, Field(ge=1, le=10**9, strict=True)]
Parameters = Annotated[int, Field(ge=1, le=10**14, strict=True)]
Tokens = Annotated[int, Field(ge=0, le=10**9, strict=True)]
PolicyText = Annotated[str, AfterValidator(lambda text: str(_parsed(CachePolicySpec.parse, text)))]
ObjectiveText = Annotated[str, AfterValidator(lambda text: str(_parsed(Objective.parse, text)))]


class StrictModel(BaseModel):
    """Frozen, and closed to unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())
