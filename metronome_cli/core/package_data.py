"""Where the files that ship with the package are: profiles and sample audio.

In an installed package they live under `metronome_cli/_data`; in a source tree at its top level.
"""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent.parent


def data_dir(name: str) -> Path:
    """Directory of shipped data, `name` being "profiles" or "sample_audio"."""
    installed = _PACKAGE / "_data" / name
    return installed if installed.is_dir() else _PACKAGE.parent / name
