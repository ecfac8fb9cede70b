"""The versions of `transformers` that the engine of this project reads models with."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from metronome_cli.core.errors import UsageError

LEAST = (5, 20)


def need_transformers(found: str | None = None) -> None:
    """Raises UsageError where it is older than `LEAST`, in which parts of it have other names; vLLM may pin that."""
    installed = found or _installed()
    parts = tuple(int(part) for part in installed.split(".")[:2] if part.isdigit())
    if parts < LEAST:
        raise UsageError(
            f"the in-process engine needs transformers {LEAST[0]}.{LEAST[1]} or later; {installed} is installed",
            hint="use --backend vllm in an environment that vLLM pins, or one of its own for this engine",
        )


def _installed() -> str:
    try:
        return version("transformers")
    except PackageNotFoundError:
        return "0"
