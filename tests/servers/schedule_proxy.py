"""A websocket proxy that delays, drops and bunches the sound of a server by a known schedule, and notes what it sent.

Independent of the package. The schedule names for each chunk of sound, by number, how long it is held, in seconds, or
None for one that is dropped. Chunks stay in order, so a chunk that is held holds those behind it.
"""

import asyncio
import base64
import json
import time

from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

BYTES_PER_S = 48_000  # PCM16 at 24 kHz


class ScheduleProxy:
    """One handler for every connection. `calls`: of each, (time of sending, seconds of sound) of each chunk.

    `worst_s`: by how much the proxy itself was late at most.
    """

    def __init__(self, upstream, schedule):
        self._upstream = upstream
        self._schedule = schedule
        self.calls = []
        self.worst_s = 0.0

    async def __call__(self, socket):
        async with connect(self._upstream, max_size=None) as server:
            both = [
                asyncio.ensure_future(self._up(socket, server)),
                asyncio.ensure_future(self._down(socket, server)),
            ]
            try:
                await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in both:
                    task.cancel()
                await asyncio.gather(*both, return_exceptions=True)

    async def _up(self, socket, server):
        try:
            async for message in socket:
                await server.send(message)
        except ConnectionClosed:
            pass

    async def _down(self, socket, server):
        sent, number, free_s = [], 0, 0.0
        self.calls.append(sent)
        try:
            async for message in server:
                seconds = seconds_of(message)
                if seconds:
                    held_s = self._schedule(number)
                    number += 1
                    if held_s is None:
                        continue
                    free_s = max(free_s, time.perf_counter() + held_s)
                    await asyncio.sleep(free_s - time.perf_counter())
                    self.worst_s = max(self.worst_s, time.perf_counter() - free_s)
                    sent.append((time.perf_counter(), seconds))
                await socket.send(message)
        except ConnectionClosed:
            pass


def seconds_of(message):
    """Seconds of sound in a message of the server; 0 without any."""
    event = json.loads(message)
    if event["type"] != "response.output_audio.delta":
        return 0.0
    return len(base64.b64decode(event["delta"])) / BYTES_PER_S


async def speaking_server(socket):
    """One answer as long as the call: 80 ms of sound for each 80 ms of input."""
    await socket.send(json.dumps({"type": "session.created", "session": {"type": "realtime"}}))
    delta = base64.b64encode(bytes(3840)).decode()
    begun, owed_s = False, 0.0
    async for message in socket:
        event = json.loads(message)
        if event["type"] != "input_audio_buffer.append":
            continue
        owed_s += len(base64.b64decode(event["audio"])) / BYTES_PER_S
        if not begun:
            begun = True
            await socket.send(json.dumps({"type": "response.created", "response": {"status": "in_progress"}}))
        while owed_s >= 0.08 - 1e-9:
            owed_s -= 0.08
            await socket.send(json.dumps({"type": "response.output_audio.delta", "delta": delta}))
