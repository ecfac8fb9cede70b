"""Reads an untrusted YAML file: plain data only, of bounded size, never executed.

Refused: files over 256 KiB, text that is not UTF-8, tags (`!!float`, `!!python/...`), duplicate keys, keys
that are not text, nesting past 32, and more than 20,000 values once aliases are counted as often as they are
used, so that none unfolds into more than a file could spell out.
"""

from __future__ import annotations

from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml

from metronome_cli.core.errors import UsageError
from metronome_cli.core.files import read_file
from metronome_cli.core.quantities import shown

MOST_BYTES = 256 * 1024
MOST_NODES = 20_000
MOST_DEPTH = 32
_FastLoader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _PlainLoader(_FastLoader):  # type: ignore[misc]
    """Safe loader that takes each key once."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if key.tag == "tag:yaml.org,2002:merge":
                raise _problem("<< is not taken here: write the keys out", key)
            name = getattr(key, "value", None)
            if not isinstance(key, yaml.ScalarNode) or key.tag != "tag:yaml.org,2002:str":
                raise _problem(f"key {shown(name)} is not text: put it in quotes", key)
            if name in seen:
                raise _problem(f"key {shown(name)} is given twice", key)
            seen.add(str(name))
        mapping: dict[Hashable, Any] = super().construct_mapping(node, deep)
        return mapping

    def construct_yaml_int(self, node: yaml.ScalarNode) -> int:
        try:
            number: int = super().construct_yaml_int(node)
        except ValueError:  # Python converts so many digits and no more
            raise _problem(f"{shown(node.value)} is no whole number that can be read", node) from None
        return number


_PlainLoader.add_constructor("tag:yaml.org,2002:int", _PlainLoader.construct_yaml_int)


def read_yaml(path: Path) -> dict[str, Any]:
    """The mapping in a YAML file. Raises UsageError naming the file, and the line where there is one."""
    return parse_yaml(_read(path), str(path))


def parse_yaml(text: str, where: str) -> dict[str, Any]:
    """The mapping in YAML text; `where` names it in errors."""
    try:
        _check_size(text)
        data = yaml.load(text, _PlainLoader)
    except yaml.MarkedYAMLError as error:
        raise UsageError(f"{where}{_line(error)}: {error.problem or error.context}") from None
    except (yaml.YAMLError, ValueError, OverflowError, RecursionError) as error:
        raise UsageError(f"{where}: not readable as YAML: {str(error).splitlines()[0][:200]}") from None
    if not isinstance(data, dict):
        found = {type(None): "is empty", list: "is a list"}.get(type(data), "is a single value")
        raise UsageError(f"{where}: expected `key: value` lines; the file {found}")
    return data


def _read(path: Path) -> str:
    raw = read_file(path, MOST_BYTES)
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UsageError(f"{path}: not UTF-8 text") from None


def _check_size(text: str) -> None:
    """Look before anything is built. An alias weighs what it stands for, and may not stand for itself."""
    weights: dict[str, int] = {}
    spans: list[tuple[str | None, int]] = []  # open collections: anchor, count before it
    count = 0
    for event in yaml.parse(text, _FastLoader):
        tag = getattr(event, "tag", None)
        if tag is not None:
            raise _problem(f"tag {shown(tag)}: values take no tags here", event)
        if isinstance(event, yaml.AliasEvent):
            if event.anchor in (anchor for anchor, _ in spans):
                raise _problem(f"alias *{event.anchor} contains itself", event)
            count += weights.get(event.anchor or "", 1)
        elif isinstance(event, yaml.CollectionStartEvent):
            spans.append((event.anchor, count))
            count += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, before = spans.pop()
            if anchor is not None:
                weights[anchor] = count - before
        elif isinstance(event, yaml.ScalarEvent):
            count += 1
        if len(spans) > MOST_DEPTH:
            raise _problem(f"nested more than {MOST_DEPTH} deep", event)
        if count > MOST_NODES:
            raise _problem(f"more than {MOST_NODES:,} values", event)


def _problem(text: str, at: Any) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=text, problem_mark=at.start_mark)


def _line(error: yaml.MarkedYAMLError) -> str:
    mark = error.problem_mark or error.context_mark
    return f", line {mark.line + 1}" if mark else ""
