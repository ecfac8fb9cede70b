"""An event loop in its own thread, so that pacing does not wait for verdicts, files or the display.

While it runs, Python's thread switch interval is 0.5 ms instead of 5 ms, because the interval bounds the pacing error.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable, Coroutine
from typing import Any

SWITCH_S = 0.0005
_TIMEOUT_S = 10.0


class EventLoopThread:
    """Thread with an event loop. Starts at once; `close` cancels the remaining tasks and waits for them."""

    def __init__(self, name: str = "sockets") -> None:
        self.loop = asyncio.new_event_loop()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._before_s = sys.getswitchinterval()
        sys.setswitchinterval(SWITCH_S)
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
        finally:
            self.loop.run_until_complete(self.loop.shutdown_asyncgens())
            self.loop.close()

    def spawn(self, work: Coroutine[Any, Any, None]) -> Callable[[], None]:
        """Start a task and return a function that cancels it. Both return at once."""
        started: list[asyncio.Task[Any]] = []

        def start() -> None:
            task = self.loop.create_task(work)
            started.append(task)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

        def cancel() -> None:
            started[0].cancel()

        self.post(start)
        return lambda: self.post(cancel)

    def post(self, act: Callable[[], object]) -> None:
        """Call a function in the loop."""
        self.loop.call_soon_threadsafe(act)

    def wait(self, work: Coroutine[Any, Any, Any], timeout_s: float = _TIMEOUT_S) -> Any:
        """Run a coroutine in the loop and return its result. Raises TimeoutError, and what the coroutine raises."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(timeout_s)

    @property
    def busy(self) -> int:
        """Return the tasks that are not done."""
        return len(self._tasks)

    def close(self) -> None:
        """Cancel all tasks and end the thread. A second call does nothing."""
        if not self._thread.is_alive():
            return
        try:
            self.cancel_all()
        finally:
            self.post(self.loop.stop)
            self._thread.join(_TIMEOUT_S)
            sys.setswitchinterval(self._before_s)

    def cancel_all(self) -> None:
        """Cancel every task and wait until all have ended."""
        self.wait(self._cancel_all())

    async def _cancel_all(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
