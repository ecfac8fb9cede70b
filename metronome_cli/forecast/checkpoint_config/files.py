"""Finding and parsing the configuration file of a checkpoint: JSON, Mistral's params.json, TOML or YAML.

Nothing is executed. A file that is none of these is refused with what it looks like and where it breaks.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from metronome_cli.config.yaml_file import parse_yaml
from metronome_cli.core.errors import UsageError
from metronome_cli.core.files import read_file
from metronome_cli.core.strict_json import BadJson, loads

NAMES = ("config.json", "params.json", "model_config.yaml", "config.yaml")
QUANTISED = "hf_quant_config.json"
MOST_BYTES = 16 * 2**20
_TOML = re.compile(r"^\s*\[[\w.\-\"]+\]\s*$|^\s*[\w.\-]+\s*=\s*\S", re.MULTILINE)
_YAML = re.compile(r"^[\w\-]+:(\s|$)", re.MULTILINE)
_WEIGHTS = ("*.safetensors", "*.gguf", "*.nemo", "*.pt", "*.bin")


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """The parsed file, and what stands beside it about quantisation."""

    file: Path
    config: dict[str, Any]
    quantised: dict[str, Any] = field(default_factory=dict)


def config_files(path: Path) -> list[Path]:
    """The configuration files of a checkpoint, the usual one first. `path`: one of them, or its directory.

    Raises UsageError if the directory has none.
    """
    if not path.is_dir():
        return [path]
    found = [path / name for name in NAMES if (path / name).exists()]
    found += sorted(path.glob("*.toml"))
    if not found:
        weights = [pattern for pattern in _WEIGHTS if next(path.glob(pattern), None)]
        raise UsageError(
            f"{path}: no {', '.join(NAMES[:2])} and no TOML or YAML configuration"
            f"{', only weights (' + ', '.join(weights) + ')' if weights else ''}",
            hint="give a config.json or a checkpoint directory that has one",
        )
    return found


def parse_config(file: Path) -> ConfigFile:
    """Read one configuration file. Raises UsageError naming the file, and the line where it breaks."""
    if not file.exists():
        raise UsageError(
            f"{file}: no such file", hint="give a config.json or a checkpoint directory that has one"
        )
    data = read_file(file, MOST_BYTES)
    beside = file.parent / QUANTISED
    quantised = _json(beside, read_file(beside, MOST_BYTES)) if beside.is_file() and beside != file else {}
    return ConfigFile(file, _parse(file, data), quantised)


def _parse(file: Path, data: bytes) -> dict[str, Any]:
    if file.suffix == ".toml":
        return _toml(file, data)
    if file.suffix in (".yaml", ".yml"):
        return parse_yaml(_text(file, data), str(file))
    return _json(file, data)


def _toml(file: Path, data: bytes) -> dict[str, Any]:
    try:
        return tomllib.loads(_text(file, data))
    except (tomllib.TOMLDecodeError, RecursionError, ValueError) as error:
        raise UsageError(f"{file}: not TOML: {str(error)[:200]}") from None


def _json(file: Path, data: bytes) -> dict[str, Any]:
    try:
        value = loads(data)
    except BadJson as error:
        raise UsageError(f"{file}: {error}", hint=_looks_like(data)) from None
    if not isinstance(value, dict):
        raise UsageError(f"{file}: not a JSON object but a {type(value).__name__}")
    return value


def _text(file: Path, data: bytes) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"{file}: not UTF-8 text (byte {error.start:,})") from None


def _looks_like(data: bytes) -> str:
    """What a file that is no JSON may be."""
    head = data[:4096]
    if not head.strip():
        return "the file is empty"
    if head.startswith(b"GGUF"):
        return "it is a GGUF file of weights; give the config.json of its model"
    if head.startswith(b"PK"):
        return "it is a zip archive (a .pt file?); give the config.json of its model"
    if head.startswith(b"version https://git-lfs"):
        return "it is a Git LFS pointer; fetch the file itself"
    if head.lstrip()[:1] == b"<":
        return "it looks like HTML or XML; download the file itself"
    text = head.decode("utf-8", "replace")
    if head.lstrip()[:1] != b"{":
        if _TOML.search(text):
            return "it looks like TOML; name it *.toml to have it read as that"
        if _YAML.search(text):
            return "it looks like YAML; name it *.yaml to have it read as that"
    return "give the config.json of a checkpoint"
