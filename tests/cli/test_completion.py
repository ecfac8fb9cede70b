"""Completion as a shell asks for it: the variable that names the shell, and the words so far."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from metronome_cli.cli.command_table import COMMANDS
from metronome_cli.cli.completion import complete_words, completer
from metronome_cli.config.profile_files import profile_names
from metronome_cli.config.settings_table import SETTINGS

SCRIPT = """import sys
from metronome_cli.cli.main import main
try:
    main()
finally:
    heavy = [name for name in ("torch", "transformers") if name in sys.modules]
    assert not heavy, heavy
"""


def ask(shell: str, line: str, **more: str) -> str:
    """What the program answers when `line` is completed at its end."""
    words = line.split(" ")
    environment = os.environ | {
        "_METRONOME_COMPLETE": f"complete_{shell}", "COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1),
        "_TYPER_COMPLETE_ARGS": line, "_TYPER_COMPLETE_FISH_ACTION": "get-args",
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT.replace("main()", "main(sys.argv[1:])")],
        env=environment | more, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.stderr == ""
    return done.stdout


@pytest.mark.parametrize(("line", "offers"), [
    ("metronome ", list(COMMANDS)),
    ("metronome cap", ["capacity"]),
    ("metronome capacity --clo", ["--clock"]),
    ("metronome capacity --clock ", ["real", "virtual"]),
    ("metronome capacity --profile ", profile_names()),
    ("metronome capacity -p mosh", ["moshi", "moshi-tiny"]),
    ("metronome capacity --policy win", [r"window\(1024,16\)"]),
    ("metronome serve --on-full ", ["refuse", "queue"]),
    ("metronome profiles ", ["list", "show", "check"]),
    ("metronome profiles show mosh", ["moshi", "moshi-tiny"]),
    ("metronome probe ", ["latency", "quality"]),
    ("metronome probe --ba", ["--batch-size"]),
    ("metronome probe quality --sink-positions ", ["rolling", "absolute", "both"]),
    ("metronome compare a b --format ", ["text", "markdown", "json"]),
])  # fmt: skip
def test_bash(line: str, offers: list[str]) -> None:
    assert ask("bash", line).split() == offers


def test_zsh_and_fish_show_what_each_means() -> None:
    assert 'capacity":"Measure how many live sessions' in ask("zsh", "metronome cap")
    assert ask("fish", "metronome cap").startswith("capacity\tMeasure how many live sessions")
    assert ask("fish", "metronome capacity --policy win") == "window(1024,16)\n"


def test_where_nothing_is_known_the_shell_offers_files() -> None:
    assert ask("bash", "metronome capacity --output ").split() == []
    assert ask("zsh", "metronome capacity --profile ./mi").strip() == "_files"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_gets_its_script(shell: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False, timeout=60,
        env=os.environ | {"_METRONOME_COMPLETE": f"source_{shell}"},
    )  # fmt: skip
    assert f"complete_{shell}" in done.stdout


def test_bash_itself_completes(tmp_path: Path) -> None:
    """The script as a user sources it, with the program on the path."""
    program = tmp_path / "metronome"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m metronome_cli "$@"\n')
    program.chmod(0o755)
    script = """
        eval "$(_METRONOME_COMPLETE=source_bash metronome)"
        COMP_WORDS=(metronome capacity --policy r) COMP_CWORD=3
        _metronome_completion metronome
        printf '%s\\n' "${COMPREPLY[@]}"
    """
    done = subprocess.run(
        ["bash", "-c", script], capture_output=True, text=True, check=False, timeout=60,
        env=os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONPATH": os.getcwd()},
    )  # fmt: skip
    assert done.stdout.split() == [r"ring\(3000\)", r"recycle\(1024\)"], done.stderr


def test_every_setting_with_few_words_offers_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("_METRONOME_COMPLETE", raising=False)
    for row in SETTINGS.values():
        if row.choices:
            complete = completer(row)
            assert complete is not None
            assert complete("") == list(row.choices)
            assert all(row.read(word) == word for word in complete(""))


def test_what_is_offered_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("_METRONOME_COMPLETE", raising=False)
    for key in ("policy", "slo", "device"):
        complete = completer(SETTINGS[key])
        assert complete is not None
        assert complete("")
        for word in complete(""):
            SETTINGS[key].read(word)
    assert complete_words("a<b")("a") == ["a<b"]
