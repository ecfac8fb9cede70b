"""With --json stdout holds the report and nothing else, whatever other code prints during the run and after it."""

from __future__ import annotations

import json
import subprocess
import sys

NOISY = """
import os, sys, threading
from metronome_cli.cli.console import end_stdout, kept_for_report, write

def noise():
    print("a library prints")
    os.write(1, b"C code prints\\n")

with kept_for_report(keep={keep}):
    noise()
    thread = threading.Thread(target=noise)
    thread.start()
    thread.join()
    child = os.system("echo a child prints")
write('{{"report": 1}}')
if {keep}:
    end_stdout()
os.write(1, b"printed at exit\\n")
"""


def run(keep: bool) -> subprocess.CompletedProcess[str]:
    script = NOISY.format(keep=keep)
    return subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True
    )


def test_stdout_holds_the_report_and_nothing_else() -> None:
    done = run(keep=True)
    assert json.loads(done.stdout) == {"report": 1}
    for line in ("a library prints", "C code prints", "a child prints", "printed at exit"):
        assert line in done.stderr


def test_without_json_nothing_is_moved() -> None:
    done = run(keep=False)
    assert done.stderr == ""
    assert "a child prints" in done.stdout
