"""Log file of vLLM's processes, and the cause of a failure in it."""

from __future__ import annotations

import json
import logging.config
import re
import shutil
import tempfile
from pathlib import Path
from typing import Any

_PREFIX = "metronome-vllm-"
_EXCEPTION = re.compile(r"^(?:\w+\.)*\w*(?:Error|Exception|Interrupt)\b(?:: (?P<what>.+))?$")
_DEATH = re.compile(r"\b(died unexpectedly|was killed|out of memory)\b", re.IGNORECASE)
_MOST = 300  # characters of a reason
_TAIL_BYTES = 1 << 20


class EngineLog:
    """A log file that vLLM's processes append to. `close` removes it unless it must be kept."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
        self.file = self._folder / "vllm.log"
        self.configuration = self._folder / "logging.json"
        self.file.touch()
        self.configuration.write_text(json.dumps(_configuration(self.file)))
        self._from = 0

    @staticmethod
    def is_ours(configuration: str) -> bool:
        """True if an earlier run of this process created the file."""
        return Path(configuration).parent.name.startswith(_PREFIX)

    def take_over(self) -> None:
        """Configure logging in this process; child processes read the same configuration."""
        logging.config.dictConfig(_configuration(self.file))

    def mark(self) -> None:
        """Ignore all lines so far, which belong to an earlier engine."""
        self._from = self.file.stat().st_size

    def reason(self, error: BaseException) -> str:
        """Return the first exception or process death in the log since the mark, else the text of `error`."""
        for line in self._lines():
            if found := _EXCEPTION.match(line):
                return _short(found["what"] or line)
            if _DEATH.search(line):
                return _short(line)
        return _short(str(error) or type(error).__name__)

    def _lines(self) -> list[str]:
        with self.file.open("rb") as file:
            file.seek(self._from)
            return file.read(_TAIL_BYTES).decode(errors="replace").splitlines()

    def close(self, *, keep: bool = False) -> None:
        """Remove the file, or keep it for the user."""
        if not keep:
            shutil.rmtree(self._folder, ignore_errors=True)


def _short(text: str) -> str:
    text = text.strip()
    return text if len(text) <= _MOST else text[: _MOST - 3] + "..."


def _configuration(file: Path) -> dict[str, Any]:
    """Return the configuration of Python's logging for vLLM's processes."""
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"plain": {"format": "%(message)s"}},
        "handlers": {
            "file": {
                "class": "logging.FileHandler",
                "filename": str(file),
                "formatter": "plain",
                "delay": True,
            }
        },
        "loggers": {"vllm": {"handlers": ["file"], "level": "INFO", "propagate": False}},
    }
