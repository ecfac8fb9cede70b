"""A server of OpenAI's realtime events that answers each turn of its user a known time after the speech ended.

Independent of the package. It hears by energy, as a simple detector of speech does: `silence_s` of quiet ends a turn.
`outcome(turn)` says what becomes of each: "answered", "none" or "failed".
"""

import asyncio
import base64
import json
import time

import numpy as np

RATE = 24_000
CHUNK_S = 0.2


class TurnServer:
    """One handler for every connection. `ends`: of each call, when its turns were heard to end (perf_counter)."""

    def __init__(self, reply_s, silence_s=0.5, answer_s=1.0, outcome=lambda turn: "answered"):
        self.reply_s, self.silence_s, self.answer_s, self.outcome = reply_s, silence_s, answer_s, outcome
        self.ends = []

    async def __call__(self, socket):
        await socket.send(json.dumps({"type": "session.created", "session": {"type": "realtime"}}))
        ends, speaking, quiet_s, tasks = [], False, 0.0, []
        self.ends.append(ends)
        try:
            async for message in socket:
                event = json.loads(message)
                if event["type"] != "input_audio_buffer.append":
                    continue
                samples = np.frombuffer(base64.b64decode(event["audio"]), dtype="<i2") / 32768
                loud = np.sqrt(np.mean(samples**2)) > 10 ** (-45 / 20)
                quiet_s = 0.0 if loud else quiet_s + len(samples) / RATE
                if loud and not speaking:
                    speaking = True
                    await socket.send(json.dumps({"type": "input_audio_buffer.speech_started"}))
                elif speaking and quiet_s >= self.silence_s:
                    speaking = False
                    ends.append(time.perf_counter() - quiet_s)
                    await socket.send(json.dumps({"type": "input_audio_buffer.speech_stopped"}))
                    tasks.append(asyncio.ensure_future(self._answer(socket, len(ends) - 1, ends[-1])))
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _answer(self, socket, turn, end_s):
        what = self.outcome(turn)
        if what == "none":
            return
        await asyncio.sleep(max(0.0, end_s + self.reply_s - time.perf_counter()))
        await socket.send(json.dumps({"type": "response.created", "response": {"status": "in_progress"}}))
        delta = base64.b64encode(bytes(2 * round(CHUNK_S * RATE))).decode()
        for _ in range(round(self.answer_s / CHUNK_S)):
            await socket.send(json.dumps({"type": "response.output_audio.delta", "delta": delta}))
        status = "completed" if what == "answered" else "failed"
        await socket.send(json.dumps({"type": "response.done", "response": {"status": status}}))
