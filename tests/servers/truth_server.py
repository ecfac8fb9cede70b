"""Servers of known delay: frame k is answered a known time after its message came, and the server keeps the truth.

Independent of the package: the messages are written from the protocols' own descriptions. Delays are a function of the
frame's number. `held_back` frames at the end wait for more input, as a model with a look-ahead makes them wait.
"""

import asyncio
import base64
import contextlib
import json
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from pathlib import Path

import msgpack
import numpy as np
import sphn
from websockets.asyncio.server import serve
from websockets.exceptions import ConnectionClosed

PERIOD_S = 0.08


DELAYS_MS = {
    "constant": lambda k, ms: ms,
    "drifting": lambda k, ms: 20.0 + ms * k / 24,
    "stepping": lambda k, ms: 20.0 if k < 12 else ms,
}


class Call:
    """One connection: answers in order, each at its time. `seen`: delays of the answers in ms, as they really were."""

    def __init__(self, socket, peer, delay_ms, held_back):
        self.socket, self.peer, self.delay_ms, self.held_back = socket, peer, delay_ms, held_back
        self.seen = []
        self._frames = 0
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
        if number >= self.held_back:
            self._due.put_nowait((now, now + self.delay_ms(number) / 1e3, self.peer.answer()))

    async def _answer(self):
        while True:
            came, due, messages = await self._due.get()
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            for message in messages:
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


async def serve_truth(announce):
    """Serve every protocol on one port until cancelled; the query of an address says which delays, and how held back:
    `?peer=moshi&delay=constant&ms=20&held=0`. `/seen/constant/20` tells the delays of the latest call of these.
    """
    calls = {}

    async def meet(socket):
        asked = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(socket.request.path).query))
        shape, ms = DELAYS_MS[asked["delay"]], float(asked["ms"])
        call = calls[asked["delay"], asked["ms"]] = Call(
            socket, PEERS[asked["peer"]](), lambda k: shape(k, ms), int(asked["held"])
        )
        await call.run()

    def seen(connection, request):
        kind, delay, ms = (request.path + "///").split("/")[1:4]
        return connection.respond(200, json.dumps(calls[delay, ms].seen)) if kind == "seen" else None

    async with serve(
        meet,
        "127.0.0.1",
        0,
        process_request=seen,
        select_subprotocol=lambda connection, offered: offered[0] if offered else None,
        compression=None,
        max_size=1 << 24,
    ) as server:
        announce(next(iter(server.sockets)).getsockname()[1])
        await asyncio.get_running_loop().create_future()


@contextlib.contextmanager
def truth_server():
    """The server in a process of its own, so that neither side's work delays the other; its port."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.servers.truth_server"],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).resolve().parents[2],
    ) as process:
        try:
            yield int(process.stdout.readline())
        finally:
            process.kill()


def address(port, peer, delay="constant", ms=20.0, held=0):
    """Where that protocol is served at those delays."""
    query = urllib.parse.urlencode({"peer": peer, "delay": delay, "ms": ms, "held": held})
    return f"ws://127.0.0.1:{port}{PEERS[peer].path}?{query}"


def seen_delays(port, delay="constant", ms=20.0):
    """Delays of the latest call of these in ms, as the server saw them."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/seen/{delay}/{ms}", timeout=5) as answer:
        return json.loads(answer.read())


if __name__ == "__main__":
    asyncio.run(serve_truth(lambda port: print(port, flush=True)))
