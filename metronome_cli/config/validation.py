"""From what pydantic found wrong to one UsageError: the file, the dotted key, the value, what is allowed."""

from __future__ import annotations

import difflib
import typing
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from metronome_cli.core import renamed
from metronome_cli.core.errors import UsageError
from metronome_cli.core.quantities import shown

M = TypeVar("M", bound=BaseModel)
_MOST_LINES = 8


class RefusedError(ValueError):
    """What a validator raises inside pydantic, where a UsageError would lose its key."""

    def __init__(self, error: UsageError) -> None:
        super().__init__(error.message)
        self.hint = error.hint


def validate(model: type[M], data: Mapping[str, Any], where: str, context: Any = None) -> M:
    """`data` as `model`. Raises one UsageError with every mistake; `where` names the file."""
    try:
        return model.model_validate(data, context=context)
    except ValidationError as failure:
        errors = failure.errors(include_url=False)
    misspelt = [name for error in errors if (name := _meant(model, error))]
    mistakes = [
        _mistake(model, error)
        for error in errors
        if error["type"] != "missing" or _dotted(error["loc"]) not in misspelt
    ]
    hint = next((hint for _, hint in mistakes if hint), None)
    lines = [line for line, _ in mistakes]
    if len(lines) == 1:
        raise UsageError(f"{where}: {lines[0]}", hint=hint)
    more = [f"... and {len(lines) - _MOST_LINES} more"] if len(lines) > _MOST_LINES else []
    listed = "\n  ".join(lines[:_MOST_LINES] + more)
    raise UsageError(f"{where}: {len(lines)} mistakes\n  {listed}", hint=hint)


def nearest(name: str, known: typing.Iterable[str]) -> str | None:
    """The known name that `name` most likely stands for, if any is close."""
    choices = sorted(known)
    same = [choice for choice in choices if _plain(choice) == _plain(name)]
    near = same or difflib.get_close_matches(name[:64], choices, n=1, cutoff=0.6)
    return near[0] if near else None


def unknown_hint(name: str, known: typing.Iterable[str]) -> str:
    """The hint that goes with an unknown name."""
    choices = sorted(known)
    near = nearest(name, choices)
    return f"did you mean {near}?" if near else f"known: {', '.join(choices)}"


def _plain(name: str) -> str:
    return name.lower().replace("-", "").replace("_", "").replace(".", "")


def _dotted(place: tuple[str | int, ...]) -> str:
    return ".".join(map(str, place))


def _mistake(model: type[BaseModel], error: Any) -> tuple[str, str | None]:
    """One line and a hint for one of pydantic's errors."""
    place: tuple[str | int, ...] = error["loc"]
    key = _dotted(place)
    kind, context = error["type"], error.get("ctx", {})
    if kind == "extra_forbidden" and (new := renamed.profile_key(_dotted(place))):
        return f"key {shown(key)} was renamed to {new}", f"write {new} in its place"
    if kind == "extra_forbidden":
        return f"unknown key {shown(key)}", _unknown_key_hint(model, place)
    if kind == "missing":
        return f"{key} is missing", None
    if kind == "literal_error":
        allowed = [word.strip("' ") for word in context["expected"].replace(" or ", ", ").split(",")]
        line = f"{key} is {shown(error['input'])}; it must be one of: {', '.join(allowed)}"
        near = nearest(str(error["input"]), allowed)
        return line, f"did you mean {near}?" if near else None
    if kind == "value_error":
        cause, whole = context["error"], isinstance(error["input"], Mapping)
        told = str(cause) if whole or isinstance(cause, RefusedError) else f"{shown(error['input'])}: {cause}"
        return f"{key}: {told}" if key else told, getattr(cause, "hint", None)
    return f"{key} is {shown(error['input'])}; it {_must(error['msg'])}", None


def _must(message: str) -> str:
    """pydantic's sentence without its subject: "must be a valid integer"."""
    _, should, rest = message.replace("a valid tuple", "a list").partition(" should ")
    return f"must {rest}" if should else f"is not valid: {message}"


def _unknown_key_hint(model: type[BaseModel], place: tuple[str | int, ...]) -> str | None:
    owner = _model_at(model, place[:-1])
    if owner is None:
        return None
    near = nearest(str(place[-1]), owner.model_fields)
    return (
        f"did you mean {_dotted((*place[:-1], near))}?" if near else f"known: {', '.join(owner.model_fields)}"
    )


def _meant(model: type[BaseModel], error: Any) -> str | None:
    """The known key, dotted, that an unknown one most likely stands for."""
    place = error["loc"]
    owner = _model_at(model, place[:-1]) if error["type"] == "extra_forbidden" else None
    if owner and (new := renamed.profile_key(_dotted(place))):
        return new
    near = nearest(str(place[-1]), owner.model_fields) if owner else None
    return _dotted((*place[:-1], near)) if near else None


def _model_at(model: type[BaseModel], place: tuple[str | int, ...]) -> type[BaseModel] | None:
    """The model that holds the key under `place`."""
    owner: type[BaseModel] | None = model
    for part in place:
        if isinstance(part, int):
            continue
        field = owner.model_fields.get(part) if owner else None
        owner = next(_models_in(field.annotation), None) if field else None
    return owner


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in typing.get_args(annotation):
        yield from _models_in(inner)
