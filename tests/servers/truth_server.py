"""Servers of known delay: frame k is answered a known time after its message came, and the server keeps the truth.

Independent of the package: the messages are written from the protocols' own descriptions. Delays are a function of the
frame's number. `held_back` frames at the end wait for more input, as a model with a look-ahead makes them wait.
"""

import asyncio
import base64
import contextlib
import json
import time

import msgpack
import numpy as np
import sphn
from websockets.asyncio.server import serve
from websockets.exceptions import ConnectionClosed

PERIOD_S = 0.08


class Truth:
    """Delays in ms of the answered frames of each call: planned, and as the server itself saw them."""

    def __init__(self, delay_ms, held_back=0):
        self.delay_ms = delay_ms
        self.held_back = held_back
        self.calls = []


class Call:
    """One connection: answers in order, each at its time."""

    def __init__(self, truth, socket, peer):
        self.truth, self.socket, self.peer = truth, socket, peer
        self.seen = []
        truth.calls.append(self)
        self._frames = 0
        self._waiting = []
        self._due = asyncio.Queue()

    async def run(self):
        answering = asyncio.ensure_future(self._answer())
        try:
            for message in self.peer.greeting():
                await self.socket.send(message)
            async for message in self.socket:
                now = time.perf_counter()
                for reply in self.peer.replies(message):
                    await self.socket.send(reply)
                for _ in range(self.peer.frames(message)):
                    self._frame(now)
        except ConnectionClosed:
            pass
        finally:
            answering.cancel()
            await asyncio.gather(answering, return_exceptions=True)

    def _frame(self, now):
        """A frame came; it releases the one before it that waits for more input."""
        number, self._frames = self._frames, self._frames + 1
        if number >= self.truth.held_back:
            self._due.put_nowait((now, now + self.truth.delay_ms(number) / 1e3))

    async def _answer(self):
        while True:
            came, due = await self._due.get()
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            for message in self.peer.answer():
                await self.socket.send(message)
            self.seen.append((time.perf_counter() - came) * 1e3)


class MoshiPeer:
    path = "/api/chat"
    period_s = PERIOD_S

    def __init__(self):
        self._reader = sphn.OpusStreamReader(24000)
        self._writer = sphn.OpusStreamWriter(24000)
        self._decoded = 0

    def greeting(self):
        return [b"\x00"]

    def replies(self, message):
        return []

    def frames(self, message):
        """Messages of audio: Opus decodes a frame's last milliseconds with the next, so messages are what counts."""
        return int(message[:1] == b"\x01" and len(message) > 1)

    def answer(self):
        pages = self._writer.append_pcm(np.zeros(1920, dtype=np.float32))
        return [b"\x01" + pages]


class MoshiServerPeer:
    path = "/api/asr-streaming"
    period_s = PERIOD_S

    def __init__(self):
        self._steps = 1000

    def greeting(self):
        return [msgpack.packb({"type": "Ready"})]

    def replies(self, message):
        return []

    def frames(self, message):
        return int(msgpack.unpackb(message)["type"] == "Audio")

    def answer(self):
        self._steps += 1
        return [msgpack.packb({"type": "Step", "step_idx": self._steps, "prs": [], "buffered_pcm": 0})]


class RealtimePeer:
    """One response for the whole call, a delta of one period for each frame."""

    path = "/v1/realtime"
    period_s = PERIOD_S
    delta = base64.b64encode(bytes(2 * 1920)).decode()

    def __init__(self):
        self._created = False

    def greeting(self):
        return [json.dumps({"type": "session.created", "session": {"type": "realtime", "id": "s"}})]

    def replies(self, message):
        return [json.dumps({"type": "session.updated"})] if "session.update" in message else []

    def frames(self, message):
        return int('"input_audio_buffer.append"' in message)

    def answer(self):
        created, self._created = self._created, True
        begin = [] if created else [json.dumps({"type": "response.created", "response": {"id": "r"}})]
        return [*begin, json.dumps({"type": "response.output_audio.delta", "delta": self.delta})]


class VllmPeer(RealtimePeer):
    """A piece of text for each frame."""

    def greeting(self):
        return [json.dumps({"type": "session.created", "id": "sess-1", "created": 1})]

    def replies(self, message):
        return []

    def answer(self):
        return [json.dumps({"type": "transcription.delta", "delta": "a"})]


class MiniCpmPeer(RealtimePeer):
    """Units of one second: it listens, but for every third, which it answers with sound."""

    period_s = 1.0
    audio = base64.b64encode(bytes(4 * 2400)).decode()

    def __init__(self):
        self._units = 0

    def greeting(self):
        return [json.dumps({"type": "session.queue_done"})]

    def replies(self, message):
        wants = '"session.update"' in message
        return [json.dumps({"type": "session.created", "session_id": "rt"})] if wants else []

    def answer(self):
        self._units += 1
        told = {"kv_cache_length": 58 + 13 * self._units}
        if self._units % 3:
            return [json.dumps({"type": "response.listen", **told})]
        return [json.dumps({"type": "response.output_audio.delta", "text": "a", "audio": self.audio, **told})]


PEERS = {
    "moshi": MoshiPeer,
    "moshi-server": MoshiServerPeer,
    "realtime": RealtimePeer,
    "vllm-realtime": VllmPeer,
    "minicpm": MiniCpmPeer,
}


@contextlib.asynccontextmanager
async def truth_server(protocol, delay_ms, held_back=0):
    """Serve a protocol at `delay_ms(frame)`; its address and what it saw."""
    truth, peer = Truth(delay_ms, held_back), PEERS[protocol]
    async with serve(
        lambda socket: Call(truth, socket, peer()).run(),
        "127.0.0.1",
        0,
        subprotocols=["realtime"] if protocol == "realtime" else None,
        compression=None,
        max_size=1 << 24,
    ) as server:
        yield f"ws://127.0.0.1:{next(iter(server.sockets)).getsockname()[1]}{peer.path}", truth
