"""The report's JSON Schema and its reference page, both made from the model.

`python -m metronome_cli.results.schema` writes them again; a test fails when they differ from the model.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from metronome_cli.results.run_report import SCHEMA, Report

SCHEMA_FILE = Path(__file__).with_name("report.schema.json")


def report_schema() -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of a report. Keys that it does not name are refused at every level."""
    schema = Report.model_json_schema(by_alias=True)
    schema["required"] = ["schema", *schema["required"]]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **_without_titles(schema),
        "title": SCHEMA,
    }


def _without_titles(node: Any, named: bool = False) -> Any:
    """Titles repeat the names; `named` is a mapping whose keys are names of fields, not keywords."""
    if isinstance(node, dict):
        return {
            key: _without_titles(value, named=key in ("properties", "$defs") and not named)
            for key, value in node.items()
            if named or key != "title"
        }
    return [_without_titles(item) for item in node] if isinstance(node, list) else node


def schema_text() -> str:
    """The shipped file's text."""
    return json.dumps(report_schema(), indent=2, ensure_ascii=False) + "\n"


def reference() -> str:
    """docs/report.md: every part of a report and every field in it."""
    schema = report_schema()
    parts = {"Report": schema, **schema["$defs"]}
    lines = [_INTRODUCTION]
    for name in _in_order("Report", parts):
        lines += _part(name, parts)
    return "\n".join(lines) + "\n"


_INTRODUCTION = """# The report

Every command that measures or forecasts writes one report: `--json` prints it, `--output DIR` keeps it as
`report.json`. It is strict JSON, `null` where there is no data, times in UTC with `Z`. Its JSON Schema
ships with the package as `metronome_cli/results/report.schema.json`; under one schema name fields may be
added, never renamed or removed. `metronome report DIR` prints, converts, or rebuilds it.

Beside it, `events.jsonl` grows during the run: a first line with `"schema": "metronome.events/2"`,
then one object a line with `t` (seconds since the file was opened), `kind` and `data`. Kinds are
`run_started` (conditions), `backend_started`, `audio`, `phase`, `window` (a Window and its `phase`), `admission`,
`trial` (a TrialResult), `policy_run`, `repeats`, `collapse`, `write_failed`, `notice`,
and `report` (the final report). After a kill they are
enough to rebuild the report.

This page is made from the model: `python -m metronome_cli.results.schema`."""


def _in_order(name: str, parts: Mapping[str, Any], seen: dict[str, None] | None = None) -> list[str]:
    """Names of parts as a reader meets them, depth first."""
    seen = {} if seen is None else seen
    if name not in seen:
        seen[name] = None
        for field in parts[name].get("properties", {}).values():
            for used in _references(field):
                _in_order(used, parts, seen)
    return list(seen)


def _references(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        if "$ref" in node:
            yield node["$ref"].rsplit("/", 1)[1]
        for value in node.values():
            yield from _references(value)
    elif isinstance(node, list):
        for item in node:
            yield from _references(item)


def _part(name: str, parts: Mapping[str, Any]) -> Iterator[str]:
    part = parts[name]
    yield f"\n## {name}\n"
    yield str(part.get("description", "")).strip()
    yield "\n| field | type | meaning |\n| --- | --- | --- |"
    for field, schema in part.get("properties", {}).items():
        meaning = " ".join(_meaning(schema, parts).split())
        yield f"| `{field}` | {_type(schema)} | {meaning.replace('|', chr(92) + '|')} |"


def _meaning(schema: Mapping[str, Any], parts: Mapping[str, Any]) -> str:
    """A field's description; where it is the same as its part's, the schema states only that."""
    if "description" not in schema and "$ref" in schema:
        return str(parts[schema["$ref"].rsplit("/", 1)[1]].get("description", ""))
    return str(schema.get("description", ""))


def _type(schema: Mapping[str, Any]) -> str:
    if "$ref" in schema:
        name = schema["$ref"].rsplit("/", 1)[1]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in schema:
        return " or ".join(_type(option) for option in schema["anyOf"])
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    if "const" in schema:
        return f"`{schema['const']}`"
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items', {}))}"
    extra = schema.get("additionalProperties")
    if schema.get("type") == "object":
        return f"object of {_type(extra)}" if isinstance(extra, dict) and extra else "object"
    return "time" if schema.get("format") == "date-time" else str(schema.get("type", "any"))


def main() -> None:
    """Write both files of a source tree."""
    SCHEMA_FILE.write_text(schema_text(), encoding="utf-8")
    docs = SCHEMA_FILE.parent.parent.parent / "docs"
    (docs / "report.md").write_text(reference(), encoding="utf-8")


if __name__ == "__main__":
    main()
