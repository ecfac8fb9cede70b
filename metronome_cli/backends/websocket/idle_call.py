"""One session on an otherwise idle server, before any trial: how does it answer a frame, and when?

What: whether each frame of input gets an answer, and how much input the server holds back until more follows.
Method: send a few frames of room noise, then nothing. Input without output once the output has ended is held back;
delayed output is not. Then send more frames and pause again: the rest must be the same, since it grows if a server
drops input. Left out: text, if the protocol counts sound. Known error: output that comes only after the pause counts
as held back.
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
QUIET_S = 0.5  # without output, after which the output has ended; longer if earlier output took longer
FIRST_OUTPUT_PERIODS = 6  # time limit of the first output if the server need not answer, in frame periods
NOISE_LEVEL = 10 ** (-65 / 20)  # root mean square of room noise against full scale, -65 dBFS
MOST_HELD_BACK = 0.8  # of the first frames; a server that answers fewer does not answer frames
KINDS: tuple[Literal["counted", "units"], ...] = ("counted", "units")


async def learn_answers(found: Endpoint, period_s: float) -> Endpoint:
    """Return the endpoint with the answer rule of an idle call; unchanged if the call failed or showed none."""
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
    """Raise UsageError if the profile's frame is not the unit of input that the protocol fixes."""
    unit_s = found.traits.unit_s
    if unit_s is not None and abs(period_s - unit_s) > 1e-3:
        raise UsageError(
            f"--protocol {found.traits.name} answers units of {unit_s:g} s, the profile has frames of {period_s:g} s",
            hint="use a profile of its model with --profile, such as minicpm-o-4.5",
        )


class _IdleCall:
    """One connection that counts the output."""

    def __init__(self, found: Endpoint, socket: ClientConnection, period_s: float) -> None:
        self._found = found
        self._socket = socket
        self._period_s = period_s
        self._codec = found.codec()
        self._ready = asyncio.Event()
        self._output_came = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._sent_frames = 0
        self._sent_at = 0.0
        self._last_output: float | None = None
        self._slowest_s = 0.0  # s, from the last frame sent to an output
        self._sound_s = 0.0
        self._units = 0
        self._noise = np.random.default_rng(0)

    async def run(self) -> AnswerRule | None:
        """Return the answer rule; None if the call shows none."""
        reading = asyncio.ensure_future(self._read())
        try:
            await self._send(self._codec.opening())
            async with asyncio.timeout(self._found.limits.ready_s):
                await self._ready.wait()
            await self._send(self._codec.started())
            first = await self._send_and_pause(FRAMES)
            if self._last_output is None or min(first) <= 0.0:
                return self._rule(first, first)
            return self._rule(first, await self._send_and_pause(MORE_FRAMES))
        except (TimeoutError, ConnectionClosed):
            return None
        finally:
            reading.cancel()
            with contextlib.suppress(ConnectionClosed):
                await self._send(self._codec.leaving())
            await asyncio.gather(reading, return_exceptions=True)

    async def _send_and_pause(self, frames: int) -> tuple[float, float]:
        """Send frames at their times, wait until the output ends, and return the unanswered input, s: by sound and
        by units."""
        pieces = max(1, round(self._period_s / 0.08))
        size = round(self._period_s * self._found.traits.sample_rate / pieces)
        start = self._loop.time()
        for k in range(frames * pieces):
            noise = (NOISE_LEVEL * self._noise.standard_normal(size)).astype(np.float32)
            await self._send(self._codec.audio(noise))
            self._sent_at = self._loop.time()
            await self._until(start + (k + 1) * self._period_s / pieces)
        self._sent_frames += frames
        while not self._output_ended():
            self._output_came.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.05):
                    await self._output_came.wait()
        sent_s = self._sent_frames * self._period_s
        return sent_s - self._sound_s, sent_s - self._units * self._period_s

    def _output_ended(self) -> bool:
        sent_s = self._sent_frames * self._period_s
        if max(self._sound_s, self._units * self._period_s) >= sent_s - 1e-6:
            return True
        now = self._loop.time()
        if self._last_output is None:
            steady = self._found.traits.answers.owed == "promised"
            timeout_s = (
                self._found.limits.idle_s if steady else QUIET_S + FIRST_OUTPUT_PERIODS * self._period_s
            )
            return now - self._sent_at > timeout_s
        return now - max(self._last_output, self._sent_at) > QUIET_S + 2 * self._slowest_s

    def _rule(self, first: tuple[float, float], second: tuple[float, float]) -> AnswerRule | None:
        """Return the rule that both pauses show, or None. A rest that grows is dropped input, not a hold-back."""
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
            self._output_came.set()

    async def _send(self, messages: Sequence[Message]) -> None:
        for message in messages:
            await self._socket.send(message)

    async def _until(self, at: float) -> None:
        await asyncio.sleep(max(0.0, at - self._loop.time()))
