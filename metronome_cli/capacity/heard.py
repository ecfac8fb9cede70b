"""Results of a trial's listener for the report."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, get_args

import numpy as np

from metronome_cli.capacity.context import AloneReplies
from metronome_cli.core.session import MisbehavedEnded
from metronome_cli.load.misbehaving import Behaviour
from metronome_cli.measure.listener import Call, Listener
from metronome_cli.measure.listener_verdict import RATIO_SCALE
from metronome_cli.measure.paired import Bounded, differences, median_interval
from metronome_cli.measure.playback import DELAYS_S, CallPlayback
from metronome_cli.measure.values import LimitedValues
from metronome_cli.results.cycles_result import Measured
from metronome_cli.results.events import HeardNow
from metronome_cli.results.listener_result import (
    Beats,
    Canary,
    Context,
    DelayVerdict,
    Misbehaved,
    OverCalls,
    Playback,
    PlaybackAt,
    Rtf,
    Times,
    Turns,
)


def heard_results(listener: Listener | None, at_delays: Sequence[DelayVerdict] = ()) -> dict[str, Any]:
    """Return the listener fields of a trial's result; None if not measured."""
    if listener is None:
        return {}
    calls = list(listener.calls.values())
    return {
        "playback": _playback(listener, calls, at_delays) if listener.heard else None,
        "turns": _turns(listener) if listener.asked or listener.shares["broken"].units else None,
        "beats": _beats(listener) if listener.beats.listen else None,
        "context": _context(calls),
        "rtf": _rtf(listener.times["rtf"]) if listener.times["rtf"].units else None,
    }


def heard_now(listener: Listener | None) -> HeardNow | None:
    """Return the listener figures of a live view."""
    fields = heard_results(listener)
    if not any(fields.values()):
        return None
    playback, turns = fields["playback"] or Playback(delay_ms=0.0), fields["turns"] or Turns()
    beats, context = fields["beats"], fields["context"]
    return HeardNow(
        longest_gap_ms=playback.gap_ms.max,
        starved_share=playback.starved_share,
        need_p50_ms=playback.need_ms.p50,
        need_max_ms=playback.need_ms.max,
        asked=turns.asked,
        answered=turns.answered,
        reply_p50_ms=turns.reply_ms.p50,
        reply_p95_ms=turns.reply_ms.p95,
        talked_over=turns.talked_over,
        yield_p95_ms=turns.yield_ms.p95,
        listens_share=None if beats is None else beats.listen / (beats.listen + beats.speak),
        cache=None if context is None else context.used_max,
        cache_limit=None if context is None else context.limit,
        full_in_s=None if context is None else context.full_in_s,
    )


def canary(listener: Listener | None, alone: AloneReplies | None) -> Canary | None:
    """Compare the canary under load with itself alone; None if no turn can be paired."""
    added = None if listener is None or alone is None else listener.added()
    if added is None or alone is None or not added.n:
        return None
    repeat = median_interval(differences(alone.first_ms, alone.again_ms))
    return Canary(pairs=added.n, reply_added_ms=_measured(added), repeat_added_ms=_measured(repeat))


def _measured(bounded: Bounded) -> Measured:
    return Measured(estimate=bounded.estimate, low=bounded.low, high=bounded.high, n=bounded.n)


def misbehaved(ended: Sequence[MisbehavedEnded]) -> list[Misbehaved]:
    """Return the counts by behaviour, in the order of the kinds."""
    found = []
    for behaviour in get_args(Behaviour):
        own = [one for one in ended if one.behaviour == behaviour]
        held_s = [one.held_s for one in own if one.by_server]
        ends = [None if (q := _quantile(held_s, share)) is None else q / 1e3 for share in (0.5, 0.9, 1.0)]
        spread = OverCalls(p50=ends[0], p90=ends[1], max=ends[2])
        if own:
            found.append(
                Misbehaved(behaviour=behaviour, count=len(own), ended_by_server=len(held_s), held_s=spread)
            )
    return found


def _playback(listener: Listener, calls: Sequence[Call], at_delays: Sequence[DelayVerdict]) -> Playback:
    heard = [call.playback for call in calls if call.playback.need_s is not None]
    gaps_s = [gap_s for one in heard for gap_s in _stretches(one)]
    needs_s = [one.need_s for one in heard if one.need_s is not None]
    starved_s = sum(one.player.starved_s for one in heard)
    played_s = sum(one.media_s - one.player.skipped_s for one in heard)
    return Playback(
        delay_ms=listener.setup.delay_s * 1e3,
        gap_ms=_times_of([gap_s * 1e3 for gap_s in gaps_s]),
        gaps=sum(one.player.gaps for one in heard),
        starved_share=_share(starved_s, played_s),
        skipped_s=sum(one.player.skipped_s for one in heard),
        need_ms=OverCalls(
            p50=_quantile(needs_s, 0.5), p90=_quantile(needs_s, 0.9), max=_quantile(needs_s, 1.0)
        ),
        curve=[_at(heard, delay_s) for delay_s in DELAYS_S],
        at_delays=list(at_delays),
    )


def _stretches(call: CallPlayback) -> list[float]:
    """Longest gap of each stretch, the open one included."""
    return call.longest_gaps_s + ([call.player.stretch_longest_s] if call.open else [])


def _at(heard: Sequence[CallPlayback], delay_s: float) -> PlaybackAt:
    players = [player for call in heard for player in call.players if player.delay_s == delay_s]
    played_s = sum(
        call.media_s - player.skipped_s
        for call in heard
        for player in call.players
        if player.delay_s == delay_s
    )
    return PlaybackAt(
        delay_ms=delay_s * 1e3,
        gap_free_calls=sum(call.enough(delay_s) for call in heard),
        calls=len(heard),
        gaps_per_min=60 * sum(player.gaps for player in players) / played_s if played_s > 0 else None,
        starved_share=_share(sum(player.starved_s for player in players), played_s),
    )


def _share(part: float, rest: float) -> float | None:
    return part / (part + rest) if part + rest > 0 else None


def _quantile(values_s: Sequence[float], q: float) -> float | None:
    """In milliseconds."""
    return 1e3 * float(np.quantile(values_s, q, method="inverted_cdf")) if values_s else None


def _times_of(values_ms: Sequence[float]) -> Times:
    if not values_ms:
        return Times()
    p50, p95, p99, highest = np.quantile(values_ms, (0.5, 0.95, 0.99, 1.0), method="inverted_cdf")
    return Times(n=len(values_ms), p50=float(p50), p95=float(p95), p99=float(p99), max=float(highest))


def _times(values: LimitedValues) -> Times:
    return Times(
        n=values.units,
        p50=values.percentile(0.5),
        p95=values.percentile(0.95),
        p99=values.percentile(0.99),
        max=values.histogram.max_ms,
    )


def _turns(listener: Listener) -> Turns:
    shares, times = listener.shares, listener.times
    return Turns(
        asked=listener.asked,
        answered=listener.asked - shares["unanswered"].bad,
        unheard=listener.unheard,
        answers=shares["broken"].units,
        broken=shares["broken"].bad,
        talked_over=shares["talked_over"].bad,
        by="text" if listener.setup.steady else "sound",
        reply_ms=_times(times["reply"]),
        endpoint_ms=_times(times["endpoint"]),
        think_ms=_times(times["think"]),
        yield_ms=_times(times["yield"]),
        barge_ins=listener.barge_ins,
        unyielding=shares["unyielding"].bad,
        backchannels=listener.backchannels,
        startled=shares["startled"].bad,
        no_chance=listener.no_chance,
    )


def _beats(listener: Listener) -> Beats:
    beats = listener.beats
    return Beats(listen=beats.listen, speak=beats.speak, longest_silence_s=beats.longest_silence_s)


def _context(calls: Sequence[Call]) -> Context | None:
    known = [call.cache for call in calls if call.cache.last is not None]
    if not known:
        return None
    ends = [cache for cache in known if cache.full_in_s is not None]
    first = (
        min(ends, key=lambda cache: cache.full_in_s or 0.0) if ends else max(known, key=lambda c: c.last or 0)
    )
    return Context(
        used_max=max(cache.last or 0 for cache in known),
        limit=first.limit,
        growth_per_s=first.growth_per_s,
        full_in_s=first.full_in_s,
    )


def _rtf(values: LimitedValues) -> Rtf:
    p50, p99, highest = values.percentile(0.5), values.percentile(0.99), values.histogram.max_ms
    return Rtf(
        n=values.units,
        p50=None if p50 is None else p50 / RATIO_SCALE,
        p99=None if p99 is None else p99 / RATIO_SCALE,
        max=None if highest is None else highest / RATIO_SCALE,
        rtfx_p50=RATIO_SCALE / p50 if p50 else None,
    )
