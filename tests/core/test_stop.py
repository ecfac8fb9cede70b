"""The first signal asks, the second leaves: even where the interpreter has no time for a handler."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from metronome_cli.core.stop import ACKNOWLEDGED, StopRequest

# One native call a minute long: no handler runs in the main thread before it is over.
NATIVE = """
import ctypes, signal
from metronome_cli.core.stop import StopRequest
with StopRequest().on_signals():
    libc = ctypes.CDLL(None)
    libc.pthread_join.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
    started = ctypes.c_void_p()
    sleep = ctypes.cast(libc.sleep, ctypes.c_void_p)
    libc.pthread_create(ctypes.byref(started), None, sleep, ctypes.c_void_p(60))
    print("ready", flush=True)
    libc.pthread_join(started, None)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="calls the C library by name")
@pytest.mark.parametrize(("first", "second", "code"), [
    (signal.SIGINT, signal.SIGINT, 130),
    (signal.SIGINT, signal.SIGTERM, 143),
    (signal.SIGTERM, signal.SIGINT, 130),
])  # fmt: skip
def test_the_second_leaves_although_no_handler_can_run(first: int, second: int, code: int) -> None:
    command = [sys.executable, "-c", NATIVE]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(first)
        said = process.stderr.readline() + process.stderr.readline()
        assert said == f"\n{ACKNOWLEDGED}\n"
        process.send_signal(second)
        assert process.wait(30) == code


def test_one_signal_asks_and_what_was_there_comes_back() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with StopRequest().on_signals() as stop:
        assert not stop()
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.signum == signal.SIGTERM
    assert signal.getsignal(signal.SIGTERM) == before
    assert signal.set_wakeup_fd(-1) == -1


def test_the_acknowledgement_goes_to_the_given_function(capfd: pytest.CaptureFixture[str]) -> None:
    told: list[str] = []
    with StopRequest(told.append).on_signals():
        os.kill(os.getpid(), signal.SIGTERM)
    assert told == [ACKNOWLEDGED]
    assert capfd.readouterr().err == ""


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_fork_tells_its_parent_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    with StopRequest().on_signals() as stop:
        child = os.fork()
        if child == 0:
            os.kill(os.getpid(), signal.SIGINT)
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        assert not stop()
    assert capfd.readouterr().err == ""


LOADING = """
import hashlib, sys, time
from metronome_cli.core.stop import LoadInterrupted, StopRequest
with StopRequest().on_signals() as stop:
    try:
        with stop.during_load():
            print("ready", flush=True)
            if sys.argv[1] == "native":
                hashlib.pbkdf2_hmac("sha256", b"", b"", 10**9)  # minutes, without the interpreter's lock
            for _ in range(600):
                time.sleep(1)
    except LoadInterrupted:
        print("ended", stop.signum, flush=True)
"""


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_ends_a_load(signum: int) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", LOADING, "python"], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signum)
        assert process.wait(30) == 0
        assert process.stdout.read() == f"ended {signum}\n"


def test_a_load_that_is_in_a_native_call_ends_too() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", LOADING, "native"], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        time.sleep(0.5)  # until the native call has begun
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 143
