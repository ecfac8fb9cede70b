"""The root of the command line: exit codes, errors, pipes, consoles, and what is not imported."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from metronome_cli import __version__
from metronome_cli.cli import command_table, console, root
from metronome_cli.cli.command_table import COMMANDS, load_command
from metronome_cli.cli.main import run
from metronome_cli.core.errors import EngineError, UsageError

ENVIRONMENT = {key: value for key, value in os.environ.items() if not key.startswith("METRONOME_")}


def metronome(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """The program in a process of its own, in a pipe."""
    return subprocess.run(
        [sys.executable, "-W", "error", "-m", "metronome_cli", *arguments],
        capture_output=True, text=True, env=ENVIRONMENT | environment, check=False, timeout=60,
    )  # fmt: skip


def shell(script: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-c", script.replace("METRONOME", f"{sys.executable} -m metronome_cli")],
        capture_output=True, text=True, env=ENVIRONMENT, check=False, timeout=60,
    )  # fmt: skip


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Callable[[BaseException], None]:
    """Makes `metronome profiles` raise."""

    def make(error: BaseException) -> None:
        def command() -> Any:
            class Command:
                def main(self, **_: object) -> int:
                    raise error

            return Command()

        monkeypatch.setattr(root, "command", command)

    return make


@pytest.mark.parametrize(
    "arguments", [["--help"], ["--version"], ["profiles", "list"], ["capacity", "--help"]]
)
def test_torch_is_not_imported(arguments: list[str]) -> None:
    script = (
        "import sys\nfrom metronome_cli.cli.main import run\n"
        f"code = run({arguments!r})\n"
        "heavy = [name for name in ('torch', 'transformers', 'scipy.signal') if name in sys.modules]\n"
        "sys.exit(f'{heavy} imported' if heavy else code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_help_lists_every_command_and_imports_none_of_them(
    monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setattr(command_table, "import_module", lambda name: pytest.fail(f"{name} imported"))
    assert run(["--help"]) == 0
    out = capsys.readouterr().out
    assert all(name in out for name in COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_registered_command_can_be_loaded_and_has_help(name: str, capsys: Any) -> None:
    assert load_command(name).name == name
    assert run([name, "--help"]) == 0
    assert "Usage: metronome" in capsys.readouterr().out


def test_version_names_torch_and_python(capsys: Any) -> None:
    assert run(["--version"]) == 0
    line = capsys.readouterr().out
    assert line.startswith(f"metronome {__version__} (torch ")


@pytest.mark.parametrize(("arguments", "says", "hints"), [
    (["capcity"], "error: unknown command 'capcity'", "hint: did you mean capacity?"),
    (["--nothing"], "error: No such option: --nothing", "hint: see `metronome --help`"),
    (["capacity", "--polcy", "x"], "error: there is no option --polcy", "hint: did you mean --policy?"),
    (["capacity", "--policy", "x"], "error: --policy: 'x' is not a policy", "hint: one of: unbounded"),
    (["capacity", "--sessions", "many"], "error: ", "hint: see `metronome capacity --help`"),
    (["profiles", "show"], "error: Missing argument", "hint: see `metronome profiles show --help`"),
    (["profiles", "show", "mosh"], "error: no profile is called 'mosh'", "hint: did you mean moshi?"),
])  # fmt: skip
def test_usage_errors_exit_2_with_a_hint_and_nothing_on_stdout(
    arguments: list[str], says: str, hints: str, capsys: Any
) -> None:
    assert run(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert says in captured.err
    assert f"\n\n{hints}" in captured.err
    assert "Traceback" not in captured.err


@pytest.mark.parametrize(("error", "code", "says"), [
    (UsageError("wrong", hint="right"), 2, "error: wrong\n\nhint: right\n"),
    (EngineError("broke"), 1, "error: broke\n"),
    (KeyboardInterrupt(), 130, ""),
    (PermissionError(errno.EACCES, "Permission denied", "a/b"), 2, "error: a/b: Permission denied\n\nhint: check"),
    (UsageError("[bold]not markup[/bold] :smile:"), 2, "error: [bold]not markup[/bold] :smile:\n"),
])  # fmt: skip
def test_errors_and_their_codes(
    failing: Any, error: BaseException, code: int, says: str, capsys: Any
) -> None:
    failing(error)
    assert run(["profiles"]) == code
    assert capsys.readouterr().err.startswith(says)


def test_a_pipe_that_breaks_silences_the_rest(failing: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[bool] = []
    monkeypatch.setattr(console, "silence_stdout", lambda: calls.append(True))
    failing(BrokenPipeError())
    assert run(["profiles"]) == 0
    assert calls


@pytest.mark.parametrize("argv", [
    ["report"],
    ["compare", "report.json"],
    ["predict", "trace"],
    ["init"],
    ["predict", "--model"],
    ["probe", "quality", "--model"],
    ["capacity", "--profile", "moshi", "--weights"],
    ["predict", "fleet", "--arrival-rate", "1/s", "--mean-session-length", "4m", "--capacity-report"],
])  # fmt: skip
def test_a_name_that_is_too_long_is_a_users_mistake(argv: list[str], capsys: Any) -> None:
    assert run([*argv, "a" * 300]) == 2
    assert "internal" not in capsys.readouterr().err


def test_no_command_shows_help_on_stderr(capsys: Any) -> None:
    assert run([]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "Usage: metronome" in captured.err


def test_an_internal_error_is_one_line_and_debug_shows_the_rest(
    failing: Any, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing(ZeroDivisionError("nothing\nto divide by"))
    assert run(["profiles"]) == 1
    told = capsys.readouterr().err
    assert told.startswith(
        "error: internal: ZeroDivisionError: nothing to divide by\n\nhint: set METRONOME_DEBUG=1"
    )
    assert "Traceback" not in told
    monkeypatch.setenv("METRONOME_DEBUG", "1")
    assert run(["profiles"]) == 1
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments", [["--help"], ["profiles", "list"], ["profiles", "show", "minicpm-o-4.5"]]
)
@pytest.mark.parametrize("environment", [
    {"COLUMNS": "40"}, {"COLUMNS": "300"}, {"PYTHONIOENCODING": "ascii"}, {"TERM": "dumb"}, {"NO_COLOR": "1"},
    {"PYTHONIOENCODING": "latin-1", "COLUMNS": "40", "TERM": "dumb", "LC_ALL": "C"},
])  # fmt: skip
def test_any_console_will_do(arguments: list[str], environment: dict[str, str]) -> None:
    done = metronome(*arguments, **environment)
    assert (done.returncode, done.stderr) == (0, "")
    assert "\x1b" not in done.stdout
    width = int(environment.get("COLUMNS", 100))
    assert max(len(line.rstrip()) for line in done.stdout.splitlines()) <= width


def test_a_reader_that_leaves_early_is_no_error() -> None:
    for _ in range(3):
        done = shell("METRONOME profiles show moshi | head -n 1; echo ${PIPESTATUS[0]}")
        assert done.stdout == "moshi: Moshi 7B\n0\n"
        assert done.stderr == ""


def test_closed_and_full_outputs() -> None:
    assert shell("METRONOME profiles list >&-").returncode == 0
    assert shell("METRONOME profiles list 2>&-").returncode == 0
    full = shell("METRONOME profiles list >/dev/full")
    assert (full.returncode, full.stderr) == (1, "error: cannot write to stdout: No space left on device\n")


def test_the_module_is_the_program() -> None:
    done = metronome("--version")
    assert done.stdout.startswith(f"metronome {__version__}")


def test_it_works_from_a_directory_that_cannot_be_written(tmp_path: Path) -> None:
    locked = tmp_path / "locked"
    locked.mkdir(mode=0o555)
    package = Path(root.__file__).resolve().parents[2]
    done = subprocess.run(
        [sys.executable, "-m", "metronome_cli", "profiles", "list"],
        cwd=locked, env=ENVIRONMENT | {"PYTHONPATH": str(package)}, capture_output=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0


@pytest.mark.parametrize(("command", "code"), [
    ("--help", 0),
    ("capacity --help", 0),
    ("--version", 0),
    ("profiles list", 0),
    ("capacity --profile smoke --dry-run", 0),
    ("predict fleet --peak-sessions 10 --gpus 1 --sessions-per-gpu 1 --html page.html", 3),
])  # fmt: skip
def test_without_any_reader_the_code_stays_and_files_are_written(
    command: str, code: int, tmp_path: Path
) -> None:
    """The reader has left before the first line is written."""
    script = f"cd {tmp_path}; exec 3> >(:); sleep 0.2; METRONOME {command} >&3; echo code $?"
    done = shell(script)
    assert done.stdout.split()[-2:] == ["code", str(code)]
    assert "error" not in done.stderr
    assert (tmp_path / "page.html").exists() == ("page.html" in command)


@pytest.mark.parametrize(
    "command", ["predict --profile smoke --sessions 4 --html page.html", "capacity --help"]
)
def test_a_full_disk_behind_stdout_is_told_and_files_are_kept(command: str, tmp_path: Path) -> None:
    done = shell(f"cd {tmp_path}; METRONOME {command} > /dev/full; echo code $?")
    assert (tmp_path / "page.html").exists() == ("page.html" in command)
    assert done.stdout.split() == ["code", "1"]
    assert "No space left" in done.stderr
    assert "please report" not in done.stderr


def test_a_working_directory_that_was_deleted_is_told(tmp_path: Path) -> None:
    (tmp_path / "gone").mkdir()
    done = shell(f"cd {tmp_path}/gone; rmdir ../gone; METRONOME doctor; echo code $?")
    assert done.stdout.split() == ["code", "2"]
    assert done.stderr.startswith("error: the working directory: No such file")


def test_no_reader_of_errors_and_the_code_stays() -> None:
    done = shell("exec 3> >(:); sleep 0.2; METRONOME profiles show nothing 2>&3; echo code $?")
    assert done.stdout.split() == ["code", "2"]
