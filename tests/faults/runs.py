"""Real runs in processes of their own, for tests of what may happen to one."""

import os
import subprocess
import sys
import time

from metronome_cli.report.event_log import EVENTS_FILE

ENVIRONMENT = {key: value for key, value in os.environ.items() if not key.startswith("METRONOME_")}
ENVIRONMENT |= {"OMP_NUM_THREADS": "1"}
SMOKE = ("capacity", "--profile", "smoke", "--ui", "plain")


def start(*arguments, prelude=""):
    """A run of the program; `prelude` is Python that comes before it."""
    call = "import sys; from metronome_cli.cli.main import main; main(sys.argv[1:])"
    command = [sys.executable, "-c", f"{prelude}\n{call}", *map(str, arguments)]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT
    )


def ended(process, seconds=300):
    """Exit code, stdout and stderr of a run that ends by itself."""
    out, err = process.communicate(timeout=seconds)
    assert "Traceback" not in err
    return process.returncode, out, err


def call(*arguments):
    """A short command, from start to end."""
    return ended(start(*arguments))


def wait_for_events(directory, lines, process, seconds=300.0, kind=""):
    """Until its events file has so many lines, of that kind; False when the run was over before."""
    sign = f'"kind":"{kind}"'.encode() if kind else b"\n"
    file, until = directory / EVENTS_FILE, time.monotonic() + seconds
    while time.monotonic() < until:
        if file.exists() and file.read_bytes().count(sign) >= lines:
            return True
        if process.poll() is not None:
            return False
        time.sleep(0.002)
    raise AssertionError("no events")
