"""One call to an otherwise idle server, before anything is measured: what is a frame answered with, and when?

What: whether each frame of input gets an answer, and how much input the server holds back until more follows. From:
a few frames of room noise, then a pause without input: what has not come when nothing comes any more is held back, what
comes after a delay is not. Then a few more frames and another pause, which must leave the same rest, since a server
that drops input leaves more each time. Left out: text, if the protocol counts sound. Known error: a rest that comes
only after the pause is over counts as held back.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

from metronome_cli.backends.websocket.connection import close_within_1s
from metronome_cli.backends.websocket.endpoint import ConnectError, Endpoint
from metronome_cli.core.errors import UsageError
from metronome_cli.protocols.interface import AnswerRule
from metronome_cli.protocols.messages import (
    AudioOutput,
    Message,
    Ready,
    Reply,
    ServerMessage,
    UnitAnswered,
)

FRAMES = 8
MORE_FRAMES = 4
QUIET_S = 0.5  # without output: nothing more comes, unless it was longer under way than that
PATIENCE_PERIODS = 6  # how long the first output of a server may take that owes none, in frame periods
NOISE_LEVEL = 10 ** (-65 / 20)  # root mean square of room noise against full scale, -65 dBFS
MOST_HELD_BACK = 0.8  # of the first frames: a server that answers fewer answers something else than frames
KINDS: tuple[Literal["counted", "units"], ...] = ("counted", "units")


async def learn_answers(found: Endpoint, period_s: float) -> Endpoint:
    """The endpoint with the rule that an idle call showed; unchanged if the call showed none or did not come about."""
    if not found.traits.learns:
        return found
    try:
        socket = await found.connect()
    except ConnectError:
        return found
    try:
        return replace(found, learned=await _IdleCall(found, socket, period_s).run())
    finally:
        with contextlib.suppress(ConnectionClosed):
            await close_within_1s(socket)


def check_unit(found: Endpoint, period_s: float) -> None:
    """Raises UsageError if the profile's frames are not the units of input that the protocol fixes."""
    unit_s = found.traits.unit_s
    if unit_s is not None and abs(period_s - unit_s) > 1e-3:
        raise UsageError(
            f"--protocol {found.traits.name} answers units of {unit_s:g} s, the profile has frames of {period_s:g} s",
            hint="name a profile of its model with --profile, such as minicpm-o-4.5",
        )


class _IdleCall:
    """One connection; counts what comes."""

    def __init__(self, found: Endpoint, socket: ClientConnection, period_s: float) -> None:
        self._found = found
        self._socket = socket
        self._period_s = period_s
        self._codec = found.codec()
        self._ready = asyncio.Event()
        self._news = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._sent_frames = 0
        self._sent_at = 0.0
        self._last_output: float | None = None
        self._slowest_s = 0.0  # from the last sending to an output
        self._sound_s = 0.0
        self._units = 0
        self._noise = np.random.default_rng(0)

    async def run(self) -> AnswerRule | None:
        """The rule; None if the call says nothing."""
        reading = asyncio.ensure_future(self._read())
        try:
            await self._send(self._codec.opening())
            async with asyncio.timeout(self._found.limits.ready_s):
                await self._ready.wait()
            await self._send(self._codec.started())
            first = await self._stretch(FRAMES)
            if self._last_output is None or min(first) <= 0.0:
                return self._rule(first, first)
            return self._rule(first, await self._stretch(MORE_FRAMES))
        except (TimeoutError, ConnectionClosed):
            return None
        finally:
            reading.cancel()
            with contextlib.suppress(ConnectionClosed):
                await self._send(self._codec.leaving())
            await asyncio.gather(reading, return_exceptions=True)

    async def _stretch(self, frames: int) -> tuple[float, float]:
        """Send that many frames at their times, then nothing; the rest, in seconds by sound and by units."""
        pieces = max(1, round(self._period_s / 0.08))
        size = round(self._period_s * self._found.traits.sample_rate / pieces)
        start = self._loop.time()
        for k in range(frames * pieces):
            noise = (NOISE_LEVEL * self._noise.standard_normal(size)).astype(np.float32)
            await self._send(self._codec.audio(noise))
            self._sent_at = self._loop.time()
            await self._until(start + (k + 1) * self._period_s / pieces)
        self._sent_frames += frames
        while not self._settled():
            self._news.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.05):
                    await self._news.wait()
        sent_s = self._sent_frames * self._period_s
        return sent_s - self._sound_s, sent_s - self._units * self._period_s

    def _settled(self) -> bool:
        sent_s = self._sent_frames * self._period_s
        if max(self._sound_s, self._units * self._period_s) >= sent_s - 1e-6:
            return True
        now = self._loop.time()
        if self._last_output is None:
            steady = self._found.traits.answers.owed == "promised"
            patience_s = self._found.limits.idle_s if steady else QUIET_S + PATIENCE_PERIODS * self._period_s
            return now - self._sent_at > patience_s
        return now - max(self._last_output, self._sent_at) > QUIET_S + 2 * self._slowest_s

    def _rule(self, first: tuple[float, float], second: tuple[float, float]) -> AnswerRule | None:
        """What both pauses show; None: nothing. A rest that grows is input that was dropped, not held back."""
        expected = self._found.traits.answers
        period_s = self._period_s
        owed: Literal["promised", "learned"] = "promised" if expected.owed == "promised" else "learned"
        for kind, before_s, after_s in zip(KINDS, first, second, strict=True):
            if expected.owed == "promised" and kind != expected.kind:
                continue
            one_by_one = abs(before_s - after_s) < 0.5 * period_s and after_s > -0.5 * period_s
            if one_by_one and before_s < MOST_HELD_BACK * FRAMES * period_s:
                return AnswerRule(kind, owed, max(0.0, after_s))
        return None

    async def _read(self) -> None:
        with contextlib.suppress(ConnectionClosed):
            async for message in self._socket:
                for event in self._codec.read(message):
                    await self._take(event)

    async def _take(self, event: ServerMessage) -> None:
        if isinstance(event, Ready):
            self._ready.set()
        elif isinstance(event, Reply):
            await self._send(event.messages)
        elif isinstance(event, UnitAnswered) or (isinstance(event, AudioOutput) and event.seconds):
            self._units += isinstance(event, UnitAnswered)
            self._sound_s += event.seconds if isinstance(event, AudioOutput) else 0.0
            self._last_output = self._loop.time()
            self._slowest_s = max(self._slowest_s, self._last_output - self._sent_at)
            self._news.set()

    async def _send(self, messages: Sequence[Message]) -> None:
        for message in messages:
            await self._socket.send(message)

    async def _until(self, at: float) -> None:
        await asyncio.sleep(max(0.0, at - self._loop.time()))
