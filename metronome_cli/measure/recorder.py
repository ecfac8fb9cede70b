"""What a trial counts: every frame once, every batch once.

What: latency of a frame, the instant its output is available minus its planned due time, on the trial clock. Due
times come from the plan, so a late frame does not move later due times (no coordinated omission). A frame is a miss if
its latency exceeds the deadline, and empty if output was owed and none came.
Evidence: the frames of one batch fail together, so a batch is one observation (measure/verdict.py). A batch is an
engine step, or the frames that were due in one period.
Left out: audio capture, the network in process, playback, and warm-up after `reset`.
Known error: percentiles come from a histogram with buckets 0.25 % wide (measure/histogram.py).
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Literal

import numpy as np

from metronome_cli.core.call_events import CallEvent
from metronome_cli.core.session import (
    BacklogReported,
    FrameBatch,
    FrameResult,
    MessagesCounted,
    MisbehavedEnded,
    Reconnected,
    SessionEnded,
    SessionEvent,
    SessionSpec,
    SessionStarted,
)
from metronome_cli.core.types import EndReason
from metronome_cli.measure.histogram import LatencyHistogram
from metronome_cli.measure.listener import Listener
from metronome_cli.measure.silence import silence_timeout_s

FrameKind = Literal["ok", "late", "empty"]
RECENT_BATCHES = 200  # that a live view shows
KEPT_BATCHES = 8192  # of which trend and estimate are computed
MOST_SECONDS = 4096  # entries of the series by second; beyond, each stands for twice as long
DELAY_FACTOR = 2.0  # a failure is certain if it remains with the generator's delay counted this many times
NOT_LOST: frozenset[EndReason] = frozenset({"completed", "shed", "completed_silent"})


@dataclass(slots=True)
class Counts:
    """Counts over a window or a whole trial. `limits_ms`: for each, the frames whose latency exceeds it."""

    deadline_ms: float
    limits_ms: tuple[float, ...] = ()
    frames: int = 0
    batches: int = 0
    frames_sq: int = 0  # sum over batches of (frames of the batch)^2
    misses: int = 0
    late_batches: int = 0  # with at least one miss
    owed: int = 0  # frames that owed output
    owed_sq: int = 0
    empty: int = 0
    latency: LatencyHistogram = field(default_factory=LatencyHistogram)
    stages_s: dict[str, float] = field(default_factory=dict)
    over: list[int] = field(default_factory=list)
    over_anyway: list[int] = field(default_factory=list)  # had the load generator been on time
    misses_anyway: int = 0
    max_anyway_ms: float = 0.0

    def __post_init__(self) -> None:
        self.over = [0] * len(self.limits_ms)
        self.over_anyway = [0] * len(self.limits_ms)

    def add(self, batch: FrameBatch, latencies_ms: Sequence[float], owed: int, empty: int) -> None:
        """Count one batch that has frames."""
        frames, delay_ms = len(latencies_ms), DELAY_FACTOR * batch.delay_s * 1e3
        misses = _above(latencies_ms, self.deadline_ms)
        self.frames += frames
        self.batches += 1
        self.frames_sq += frames * frames
        self.misses += misses
        self.misses_anyway += _above(latencies_ms, self.deadline_ms + delay_ms) if delay_ms else misses
        self.late_batches += misses > 0
        self.owed += owed
        self.owed_sq += owed * owed
        self.empty += empty
        for latency_ms in latencies_ms:
            self.latency.add(latency_ms)
        for place, limit in enumerate(self.limits_ms):
            over = _above(latencies_ms, limit)
            self.over[place] += over
            self.over_anyway[place] += _above(latencies_ms, limit + delay_ms) if delay_ms else over
        self.max_anyway_ms = max(self.max_anyway_ms, max(latencies_ms) - delay_ms)
        for stage, seconds in batch.stages_s.items():
            self.stages_s[stage] = self.stages_s.get(stage, 0.0) + seconds

    def stages_ms(self) -> dict[str, float]:
        """Mean milliseconds per batch in each stage."""
        batches = self.batches
        return {name: 1e3 * seconds / batches for name, seconds in self.stages_s.items()} if batches else {}

    def frames_over(self, limit_ms: float, *, anyway: bool = False) -> int:
        """Frames whose latency exceeds one of `limits_ms`; `anyway`: had the load generator been on time."""
        return (self.over_anyway if anyway else self.over)[self.limits_ms.index(limit_ms)]


def _above(values: Sequence[float], limit: float) -> int:
    return sum(value > limit for value in values)


@dataclass(slots=True)
class SecondCounts:
    """One second of the trial clock, by when a batch was done; `over` as in `Counts`."""

    t_s: float
    batches: int = 0
    frames: int = 0
    frames_sq: int = 0
    late: int = 0
    over: list[int] = field(default_factory=list)
    owed: int = 0
    owed_sq: int = 0
    empty: int = 0
    p50_ms: float | None = None
    p90_ms: float | None = None
    p99_ms: float | None = None
    max_ms: float | None = None

    def merged(self, other: SecondCounts) -> SecondCounts:
        """Both together: counts are sums, percentiles the higher of the two."""
        return SecondCounts(
            self.t_s,
            self.batches + other.batches,
            self.frames + other.frames,
            self.frames_sq + other.frames_sq,
            self.late + other.late,
            [one + two for one, two in zip(self.over, other.over, strict=True)],
            self.owed + other.owed,
            self.owed_sq + other.owed_sq,
            self.empty + other.empty,
            *(
                _highest(getattr(self, name), getattr(other, name))
                for name in ("p50_ms", "p90_ms", "p99_ms", "max_ms")
            ),
        )


def _highest(one: float | None, two: float | None) -> float | None:
    return max((value for value in (one, two) if value is not None), default=None)


class SecondSeries:
    """Counts second by second, in bounded space: beyond `most` entries each stands for twice as long."""

    def __init__(self, limits: int, most: int = MOST_SECONDS) -> None:
        self.each_s = 1
        self.entries: list[SecondCounts] = []
        self._limits = limits
        self._most = most
        self._latencies_ms: list[float] = []  # of the last entry

    def add(
        self,
        done_s: float,
        latencies_ms: Sequence[float],
        late: int,
        over: Sequence[int],
        owed: int,
        empty: int,
    ) -> None:
        """Count one batch; batches come in order of time, nearly."""
        entry = self._entry(done_s)
        frames = len(latencies_ms)
        entry.batches += 1
        entry.frames += frames
        entry.frames_sq += frames * frames
        entry.late += late
        for place, count in enumerate(over):
            entry.over[place] += count
        entry.owed += owed
        entry.owed_sq += owed * owed
        entry.empty += empty
        self._latencies_ms.extend(latencies_ms)

    def _entry(self, done_s: float) -> SecondCounts:
        start_s = math.floor(done_s / self.each_s) * self.each_s
        if self.entries and start_s <= self.entries[-1].t_s:
            return self.entries[-1]
        self.close()
        if len(self.entries) == self._most:
            self._halve()
            return self._entry(done_s)
        self.entries.append(SecondCounts(float(start_s), over=[0] * self._limits))
        return self.entries[-1]

    def close(self) -> None:
        """State the percentiles of the last entry."""
        if self.entries and self._latencies_ms:
            entry = self.entries[-1]
            found = np.percentile(self._latencies_ms, (50, 90, 99, 100), method="inverted_cdf")
            entry.p50_ms, entry.p90_ms, entry.p99_ms, entry.max_ms = map(float, found)
            self._latencies_ms = []

    def _halve(self) -> None:
        """Merge entries into pairs that stand for twice as long."""
        self.each_s *= 2
        kept: list[SecondCounts] = []
        for entry in self.entries:
            entry.t_s = math.floor(entry.t_s / self.each_s) * self.each_s
            if kept and kept[-1].t_s == entry.t_s:
                kept[-1] = kept[-1].merged(entry)
            else:
                kept.append(entry)
        self.entries = kept


@dataclass(frozen=True, slots=True)
class BatchPoint:
    """One batch: when it was done, on the trial clock, and its frames."""

    t_s: float
    frames: int
    late: int
    empty: int
    worst_ms: float
    median_ms: float


@dataclass(frozen=True, slots=True)
class TrialEvidence:
    """What one trial counted, by time. `batches`: the last ones; `seconds`: all, `seconds_each` s per entry."""

    sessions: int
    deadline_ms: float
    limits_ms: tuple[float, ...]
    total: Counts
    seconds: Sequence[SecondCounts]
    batches: Sequence[BatchPoint]
    seconds_each: int = 1


@dataclass(slots=True)
class SessionState:
    """An open session."""

    spec: SessionSpec
    ready: bool = False
    miss_streak: int = 0
    miss_streak_anyway: int = 0
    empty_since_s: float | None = None  # the first empty frame since its last output
    fell_silent: bool = False  # whether it was ever without output for the silence timeout


class Recorder:
    """The only place that counts. `ended`: sessions by end reason; `lost_at_s`: when a reason first came up."""

    def __init__(
        self, deadline_ms: float, limits_ms: Sequence[float] = (), *, period_s: float = 0.08
    ) -> None:
        self.limits_ms = tuple(sorted(set(limits_ms)))
        self.deadline_ms = deadline_ms
        self.period_s = period_s
        self.active: dict[int, SessionState] = {}  # in order of opening
        self.ended: Counter[EndReason] = Counter()
        self.rejected: Counter[Literal["slots", "memory"]] = Counter()
        self.details: dict[str, str] = {}  # by end reason, the message of the first session
        self.first_ended_s: dict[EndReason, float] = {}
        self.stalled_s = 0.0  # time in which this process was not scheduled (measure/stall.py)
        self.last_output_s: float | None = None
        self.empty_since_s: float | None = None  # due time of the first empty frame since any output
        self.setup = LatencyHistogram()  # from opening a session to its start, ms
        self.send_lateness = LatencyHistogram()  # of each frame that was sent on its own, ms
        self.server_backlog = LatencyHistogram()  # as the server reports it, ms
        self.started = 0
        self.reconnects = 0
        self.sent_s = 0.0
        self.received_s = 0.0
        self.misbehaved: list[MisbehavedEnded] = []
        self.listener: Listener | None = None  # hears what the sessions hear, if anything is to be played
        self.message_names: Counter[str] = Counter()  # that are not known
        self.server_errors: Counter[str] = Counter()  # by code
        self.silent_s = 0.0  # of output that was digital silence
        self.sound_s = 0.0
        self.silence_timeout_s = silence_timeout_s(period_s)
        self._record: dict[type, Callable[..., None]] = {
            FrameBatch: self._record_batch,
            SessionStarted: self._record_start,
            SessionEnded: self._record_end,
            Reconnected: self._record_reconnect,
            BacklogReported: self._record_backlog,
            CallEvent: self._record_call,
            MisbehavedEnded: self.misbehaved.append,
            MessagesCounted: self._record_messages,
        }
        self.reset()

    def reset(self) -> None:
        """Restart the counts of frames, as after warm-up; sessions and stalls stay."""
        self.total = Counts(self.deadline_ms, self.limits_ms)
        self.window = Counts(self.deadline_ms)
        self.recent: deque[tuple[float, FrameKind]] = deque(maxlen=RECENT_BATCHES)
        self.batches: deque[BatchPoint] = deque(maxlen=KEPT_BATCHES)
        self.seconds = SecondSeries(len(self.limits_ms))
        self.lateness = LatencyHistogram()  # of the load generator, each batch, ms
        self.delay_max_s = 0.0
        self.miss_streak_max = 0
        self.miss_streak_max_anyway = 0
        for state in self.active.values():
            state.miss_streak = state.miss_streak_anyway = 0
        if self.listener is not None:
            self.listener.restart()

    def look(self, now_s: float) -> None:
        """Account for sound that has not come until now."""
        if self.listener is not None:
            self.listener.look(now_s)

    def close(self, now_s: float) -> None:
        """The trial is over: what still sounds owes nothing more."""
        if self.listener is not None:
            self.listener.close(now_s)

    def opened(self, spec: SessionSpec) -> None:
        """A session is being opened; its events follow."""
        self.active[spec.index] = SessionState(spec)

    @property
    def preparing(self) -> int:
        """Sessions that were opened and are not ready yet."""
        return sum(not state.ready for state in self.active.values())

    @property
    def lost(self) -> int:
        """Sessions that ended before their time and not by a decision of this side."""
        return sum(count for reason, count in self.ended.items() if reason not in NOT_LOST)

    def record(self, event: SessionEvent) -> None:
        """Count one event."""
        self._record[type(event)](event)

    def close_window(self) -> Counts:
        """End the window: its counts. A new one begins."""
        ended, self.window = self.window, Counts(self.deadline_ms)
        return ended

    def collapsed(self, now_s: float) -> bool:
        """Whether nothing but empty frames has come for the silence timeout (measure/silence.py)."""
        return self.empty_since_s is not None and now_s - self.empty_since_s >= self.silence_timeout_s

    def evidence(self, sessions: int) -> TrialEvidence:
        """Everything counted, by time."""
        self.seconds.close()
        return TrialEvidence(
            sessions,
            self.deadline_ms,
            self.limits_ms,
            self.total,
            self.seconds.entries,
            tuple(self.batches),
            self.seconds.each_s,
        )

    # -- one kind of event each ----------------------------------------------------------------------------------

    def _record_batch(self, batch: FrameBatch) -> None:
        for late_s in batch.sent_late_s:
            self.send_lateness.add(late_s * 1e3)
        if not batch.frames:
            return
        latencies_ms = [frame.latency_ms for frame in batch.frames]
        owed = sum(frame.expected > 0 for frame in batch.frames)
        empty = sum(frame.empty for frame in batch.frames)
        self.window.add(batch, latencies_ms, owed, empty)
        self.total.add(batch, latencies_ms, owed, empty)
        self.lateness.add(batch.late_s * 1e3)
        self.delay_max_s = max(self.delay_max_s, batch.delay_s)
        self._record_in_time(batch, latencies_ms, owed, empty)
        for frame in batch.frames:
            self._follow(frame, DELAY_FACTOR * batch.delay_s * 1e3)
        self._follow_output(batch)

    def _record_in_time(
        self, batch: FrameBatch, latencies_ms: Sequence[float], owed: int, empty: int
    ) -> None:
        done_s, worst_ms = max(frame.done_s for frame in batch.frames), max(latencies_ms)
        late = _above(latencies_ms, self.deadline_ms)
        over = [_above(latencies_ms, limit) for limit in self.limits_ms]
        self.seconds.add(done_s, latencies_ms, late, over, owed, empty)
        self.batches.append(
            BatchPoint(done_s, len(latencies_ms), late, empty, worst_ms, median(latencies_ms))
        )
        self.recent.append((worst_ms, "empty" if empty else "late" if late else "ok"))

    def _follow(self, frame: FrameResult, delay_ms: float) -> None:
        """Streaks and silence of one session. One that has ended is followed no more."""
        state = self.active.get(frame.session)
        if frame.delivered:
            self.last_output_s = frame.done_s
        if state is None:
            return
        over_ms = frame.latency_ms - self.deadline_ms
        state.miss_streak = state.miss_streak + 1 if over_ms > 0 else 0
        state.miss_streak_anyway = state.miss_streak_anyway + 1 if over_ms > delay_ms else 0
        self.miss_streak_max = max(self.miss_streak_max, state.miss_streak)
        self.miss_streak_max_anyway = max(self.miss_streak_max_anyway, state.miss_streak_anyway)
        if frame.delivered:
            state.empty_since_s = None
        elif frame.expected:
            since_s = state.empty_since_s = (
                frame.done_s if state.empty_since_s is None else state.empty_since_s
            )
            state.fell_silent |= frame.done_s - since_s >= self.silence_timeout_s

    def _follow_output(self, batch: FrameBatch) -> None:
        """Since when every frame that owed output has been empty."""
        if any(frame.delivered for frame in batch.frames):
            self.empty_since_s = None
        elif self.empty_since_s is None:
            owed_s = [frame.due_s for frame in batch.frames if frame.empty]
            self.empty_since_s = min(owed_s, default=None)

    def _record_start(self, event: SessionStarted) -> None:
        self.started += 1
        self.setup.add(event.setup_s * 1e3)
        if event.session in self.active:
            self.active[event.session].ready = True

    def _record_end(self, event: SessionEnded) -> None:
        self.sent_s += event.sent_s
        self.received_s += event.received_s
        state = self.active.pop(event.session, None)
        if state is None:  # its end is known
            return
        reason = "completed_silent" if event.reason == "completed" and state.fell_silent else event.reason
        self.ended[reason] += 1
        if reason in ("rejected", "queue_timeout"):
            self.rejected[event.limited_by] += 1
        if event.at_s is not None:
            self.first_ended_s.setdefault(reason, event.at_s)
        if reason not in NOT_LOST:
            self.details.setdefault(reason, event.detail)

    def _record_reconnect(self, event: Reconnected) -> None:
        self.reconnects += 1
        self.details.setdefault(f"{event.reason}, and back", event.detail)

    def _record_call(self, event: CallEvent) -> None:
        if self.listener is not None:
            self.listener.take(event)

    def _record_messages(self, event: MessagesCounted) -> None:
        self.message_names.update(event.names)
        self.server_errors.update(event.errors)
        self.silent_s += event.silent_s
        self.sound_s += event.sound_s

    def _record_backlog(self, event: BacklogReported) -> None:
        self.server_backlog.add(event.seconds * 1e3)
