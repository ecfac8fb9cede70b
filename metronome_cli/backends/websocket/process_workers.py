"""Workers as processes on this machine. They share its monotonic clock and end with their parent."""

from __future__ import annotations

import contextlib
import multiprocessing
import signal
from collections.abc import Sequence

from metronome_cli.backends.websocket.socket_host import HostSetup
from metronome_cli.backends.websocket.worker import WorkerCommand, WorkerReply, worker_main
from metronome_cli.backends.websocket.worker_client import WorkerClient, WorkerLostError


class ProcessChannel:
    """The pipe to one process."""

    def __init__(self, setup: HostSetup, name: str) -> None:
        self.name = name
        context = multiprocessing.get_context("spawn")  # a fork would copy running threads
        self._pipe, theirs = context.Pipe()
        self.process = context.Process(target=worker_main, args=(theirs, setup), name=name, daemon=True)
        self.process.start()
        theirs.close()

    def ask(self, commands: Sequence[WorkerCommand]) -> None:
        try:
            self._pipe.send(list(commands))
        except OSError:
            raise WorkerLostError(self._how_it_ended()) from None

    def answer(self) -> WorkerReply | None:
        try:
            if not self._pipe.poll():
                return None
            answer: WorkerReply = self._pipe.recv()
        except (EOFError, OSError):
            raise WorkerLostError(self._how_it_ended()) from None
        return answer

    def _how_it_ended(self) -> str:
        self.process.join(1.0)
        code = self.process.exitcode
        if code is None:
            return "closed its pipe"
        if code < 0:
            with contextlib.suppress(ValueError):
                return f"was killed by {signal.Signals(-code).name}"
        return f"ended with status {code}"

    def end(self, timeout_s: float) -> None:
        self._pipe.close()
        self.process.join(timeout_s)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()
        self.process.close()


def start_workers(setup: HostSetup, count: int) -> list[WorkerClient]:
    """Start `count` worker processes."""
    return [WorkerClient(ProcessChannel(setup, f"worker {n + 1} of {count}")) for n in range(count)]
