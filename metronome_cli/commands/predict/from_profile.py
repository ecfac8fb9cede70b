"""`predict` from a profile: when the pool is full, with what probability, what limits the load, and how many fit.

Nothing is measured and no model is loaded. Also the Python API:

    from metronome_cli.commands.predict.from_profile import ProfilePlan, predict_profile
    report = predict_profile(ProfilePlan(load_profile("qwen3-omni-30b"), sessions=128, session_length_s=300.0))

Other sources: from_checkpoint.py, from_trace.py, from_metrics.py, size_fleet.py.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Literal

from metronome_cli.commands.predict.cache_part import cache_part
from metronome_cli.config.cache_groups import describe_groups
from metronome_cli.config.profile import Profile
from metronome_cli.core.errors import UsageError, Verdict
from metronome_cli.core.formatting import format_probability, percent, plural
from metronome_cli.core.quantities import format_duration, format_size
from metronome_cli.forecast.checkpoint_config.read_config import DecoderConfig
from metronome_cli.forecast.first_passage import FirstPassage
from metronome_cli.forecast.implied_pool import implied
from metronome_cli.forecast.memory import DEFAULT_SHARE, MemoryPlan, WeightBytes, profile_weights
from metronome_cli.forecast.pool_forecast import (
    DEFAULT_CONFIDENCE,
    MOST_SESSIONS,
    ForecastQuery,
    HazardOutlook,
    PoolBudget,
    PoolForecast,
    forecast_pool,
    max_sessions_and_cause,
)
from metronome_cli.results.forecast_result import Forecast, HazardForecast, ImpliedPool, Interval, MemoryLine
from metronome_cli.results.report_draft import ReportDraft, format_interval
from metronome_cli.results.run_report import Report


@dataclass(frozen=True, slots=True)
class ForecastPlan:
    """What to forecast. `profile` has every override applied; sizes in bytes, times in seconds, shares 0..1.

    The pool is the profile's, unless `memory` (the device's) is given and sized down to it. `weights`
    overrides what the profile says of them. `seen_t_sat_s`: a collapse seen elsewhere, to be explained.
    `fail_within_s` makes the exit code say whether the run ends sooner.
    """

    profile: Profile
    sessions: int
    session_length_s: float | None = None  # None: the profile's
    over_s: float = 0.0
    occupied: float = 0.0
    confidence: float = DEFAULT_CONFIDENCE
    memory: int | None = None
    memory_share: float = DEFAULT_SHARE
    weights: WeightBytes | None = None
    seen_t_sat_s: float | None = None
    fail_within_s: float | None = None
    fail_probability: float = 0.05
    source: Literal["profile", "config"] = "profile"
    decoder: DecoderConfig | None = None  # what the checkpoint's file says, for source config
    notes: tuple[str, ...] = ()
    argv: tuple[str, ...] = ()
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def length_s(self) -> float:
        return self.session_length_s if self.session_length_s is not None else self.profile.session_length

    @property
    def memory_plan(self) -> MemoryPlan | None:
        """The way from the device's memory to a pool, where memory was given."""
        if self.memory is None:
            return None
        weights = self.weights or profile_weights(self.profile)
        block_tokens = self.profile.kv_pool.block_size if self.profile.kv_pool else 16
        return MemoryPlan(self.profile, self.memory, weights, self.memory_share, block_tokens)

    def question(self) -> ForecastQuery:
        """Return the parameters of the forecast. Raises UsageError if quantities are missing or out of range."""
        _check(self)
        plan = self.memory_plan
        if plan is not None:
            budget = plan.budget(self.sessions, self.occupied)
        else:
            own = PoolBudget.of(self.profile)
            if own.blocks_for(self.sessions) < 1:
                raise UsageError("the pool is smaller than one block", hint="give a larger --kv-pool")
            budget = PoolBudget(own.blocks_for, own.block_tokens, self.occupied)
        return ForecastQuery(self.profile, self.sessions, self.length_s, budget, self.over_s, self.confidence)


def predict_profile(plan: ForecastPlan) -> Report:
    """Forecast it. Raises UsageError for quantities that are missing or contradict each other."""
    draft = ReportDraft(plan.argv, plan.settings, plan.profile)
    if plan.seen_t_sat_s is not None and plan.memory is None and plan.profile.kv_pool is None:
        return _explain(plan, draft)
    if plan.memory is not None and plan.weights is None and plan.source == "config":
        return _without_weights(plan, draft)
    question = plan.question()
    answer = forecast_pool(question)
    forecast = _forecast(plan, question, answer)
    verdict = _verdict(plan, question)
    return draft.report(_sentence(plan, answer), verdict=verdict, forecast=forecast)


def predict_most(plan: ForecastPlan) -> Report:
    """How many sessions the pool holds for the session length, and the forecast for that number.

    `plan.sessions` is not read. Raises UsageError as `predict_profile` does.
    """
    draft = ReportDraft(plan.argv, plan.settings, plan.profile)
    most, cause = max_sessions_and_cause(replace(plan, sessions=1).question())
    if most is None:
        forecast = _nothing(plan, "no number of sessions fills the pool within the session length")
        return draft.report(
            f"Memory does not limit the number of sessions for {format_duration(plan.length_s)}.",
            forecast=forecast,
        )
    plan = replace(plan, sessions=max(1, most))
    question = plan.question()
    sure = f"{percent(plan.confidence)} confidence"
    text = f"At most {plural(most, 'session')} for {format_duration(plan.length_s)} ({sure}). Limited by: {cause}."
    verdict = _verdict(plan, question) if most else "fail"
    return draft.report(text, verdict=verdict, forecast=_forecast(plan, question, forecast_pool(question)))


def _check(plan: ForecastPlan) -> None:
    if plan.sessions < 1:
        raise UsageError(f"--sessions {plan.sessions} is too small", hint="give at least 1 session")
    if plan.sessions > MOST_SESSIONS:
        raise UsageError(
            f"{plan.sessions:,} sessions are more than can be computed", hint=f"at most {MOST_SESSIONS:,}"
        )
    plan.profile.check_length(plan.length_s)
    if not 0 <= plan.occupied < 1:
        raise UsageError(f"occupied {plan.occupied:g} leaves no pool", hint="give a share from 0 to below 1")
    if not 0.5 <= plan.confidence < 1:
        raise UsageError(f"confidence {plan.confidence:g} is out of range", hint="from 50% to below 100%")
    if not 0 < plan.memory_share <= 1:
        raise UsageError(f"memory share {plan.memory_share:g} is out of range", hint="above 0, at most 1")


def _forecast(plan: ForecastPlan, question: ForecastQuery, answer: PoolForecast) -> Forecast:
    memory = plan.memory_plan
    lines = [] if memory is None else memory.lines(plan.sessions)
    return Forecast(
        source=plan.source,
        sessions=plan.sessions,
        session_length_s=plan.length_s,
        fill_time_s=answer.t_sat,
        collapse_probability=answer.probability,
        first_hazard=answer.first,
        limited_by=answer.binding,
        max_sessions=answer.max_sessions,
        max_sessions_limited_by=answer.max_binding,
        fitting_window_tokens=answer.safe_window,
        confidence=plan.confidence,
        hazards=[_hazard(one) for one in answer.each],
        **model_facts(plan.profile, plan.decoder),
        memory=[MemoryLine(what=line.what, bytes=line.size, how=line.how) for line in lines],
        implied_pool=_implied(plan),
        fills=answer.t_sat.estimate is not None,
        occupancy=plan.occupied,
        fill_rate_per_s=_rate(question),
        assumptions=assumptions(plan, question),
    )


def _hazard(one: HazardOutlook) -> HazardForecast:
    return HazardForecast(
        name=one.name,
        mean_growth_time_s=one.first_order_s,
        fill_time_s=one.t,
        collapse_probability=one.probability,
        blocks=one.blocks,
        steady_occupancy=one.settles_at,
    )


def model_facts(profile: Profile, decoder: DecoderConfig | None) -> dict[str, Any]:
    """Return cache, context and rotary base from the checkpoint's file, else from the profile."""
    if decoder is None:
        shape, groups = profile.shape, profile.cache_groups
        return {
            "cache": cache_part(groups),
            "context_length": shape.context_length,
            "rope_theta": shape.rope_theta,
        }
    return {
        "cache": cache_part(decoder.groups),
        "context_length": decoder.context,
        "rope_theta": decoder.rope_theta,
    }


def _rate(question: ForecastQuery) -> float:
    """Share of the pool that all sessions fill a second, in the long run."""
    if not question.profile.shape.kv_bytes_per_token:
        return 0.0
    blocks = question.budget.blocks_for(question.sessions)
    positions = question.profile.mean_tokens_per_frame / question.profile.frame.period_s
    return question.sessions * positions / (blocks * question.budget.block_tokens)


def _implied(plan: ForecastPlan) -> ImpliedPool | None:
    if plan.seen_t_sat_s is None:
        return None
    found = implied(plan.profile, plan.sessions, plan.seen_t_sat_s)
    return ImpliedPool(
        fill_time_s=plan.seen_t_sat_s,
        sessions=plan.sessions,
        pool_tokens=found.pool_positions,
        pool_bytes=found.pool_positions * plan.profile.shape.kv_bytes_per_token,
        positions_per_s=found.positions_per_s,
    )


def _explain(plan: ForecastPlan, draft: ReportDraft) -> Report:
    """No pool is known: say what the collapse that was seen implies, and forecast nothing."""
    _check(plan)
    found = _implied(plan)
    assert found is not None
    forecast = _nothing(plan, "no pool is given, so the fill time is unknown", implied=found)
    answer = f"The size of the pool is unknown. {_implied_sentence(plan, found)}"
    return draft.report(answer, forecast=forecast)


def _without_weights(plan: ForecastPlan, draft: ReportDraft) -> Report:
    """Memory is given and the weights are unknown: say what a session keeps, and forecast nothing."""
    _check(plan)
    groups = plan.decoder.groups if plan.decoder else plan.profile.cache_groups
    answer = (
        f"A session's cache {describe_groups(groups)}. The size of the weights is unknown, so how many sessions "
        "fit is not known; give --kv-pool, or put the safetensors files beside the configuration."
    )
    return draft.report(answer, forecast=_nothing(plan, "the size of the weights is unknown"))


def _nothing(plan: ForecastPlan, reason: str, implied: ImpliedPool | None = None) -> Forecast:
    """A forecast of what is known without a pool."""
    return Forecast(
        source=plan.source,
        sessions=plan.sessions,
        session_length_s=plan.length_s,
        fill_time_s=Interval(estimate=None, low=None, high=None),
        collapse_probability=None,
        limited_by="none",
        max_sessions=None,
        fitting_window_tokens=None,
        implied_pool=implied,
        reason=reason,
        assumptions=_load_assumptions(plan),
        **model_facts(plan.profile, plan.decoder),
    )


def _implied_sentence(plan: ForecastPlan, found: ImpliedPool) -> str:
    one = found.sessions == 1
    text = f"{plural(found.sessions, 'session')} that {'fills' if one else 'fill'} it at {found.fill_time_s:.4g} s"
    pool = f"{plural(found.pool_tokens or 0, 'position')}, {format_size(found.pool_bytes or 0)}"
    text += f" {'implies' if one else 'imply'} a pool of {pool} at this profile's rate"
    if found.positions_per_s is None:
        return text + "."
    return text + f", or {found.positions_per_s:.3g} positions per second and session in its own pool."


def _verdict(plan: ForecastPlan, question: ForecastQuery) -> Verdict | None:
    """Fail if the run ends within `fail_within_s` with at least `fail_probability`."""
    if plan.fail_within_s is None:
        return None
    probability = FirstPassage(question.hazards()).by(plan.fail_within_s)
    return "fail" if probability >= plan.fail_probability else "pass"


def assumptions(plan: ForecastPlan, question: ForecastQuery) -> list[str]:
    """Return all assumptions of the forecast, one sentence each."""
    blocks, block_tokens = question.budget.blocks_for(plan.sessions), question.budget.block_tokens
    per_token = plan.profile.shape.kv_bytes_per_token
    pool = (
        f"pool: {plural(blocks, 'block')} of {_positions(block_tokens)} at {format_size(per_token)} per position, "
        f"{format_size(blocks * block_tokens * per_token)}"
    )
    taken = f"{percent(plan.occupied)} of the pool is in use from the start and stays in use"
    groups = plan.decoder.groups if plan.decoder else plan.profile.cache_groups
    cache = f"cache: {describe_groups(groups)}"
    return [pool, cache, *([taken] if plan.occupied else []), *_load_assumptions(plan)]


def _load_assumptions(plan: ForecastPlan) -> list[str]:
    profile, tokens = plan.profile, plan.profile.tokens
    out = f"{tokens.decode.listening} decoded listening, {tokens.decode.speaking} speaking"
    out = "decoded ones fused with them" if tokens.fused else out
    mean = profile.mean_tokens_per_frame / profile.frame.period_s
    starts = (
        f"spread over {format_duration(plan.over_s)}"
        if plan.over_s
        else "together, phases spread over one period,"
    )
    return [
        f"frame of {format_duration(profile.frame.period_s)}: {_positions(tokens.prefill)} in, {out}; "
        f"{mean:.3g} per second on average",
        _turns(profile),
        f"policy {profile.policy}; {_positions(profile.prompt_tokens)} of prompt per session",
        f"sessions start {starts} and stay to the end",
        *_served_limit(profile),
        "every frame is served when it is due; deadlines are not considered, although late frames fill the pool later",
        *plan.notes,
    ]


def _served_limit(profile: Profile) -> list[str]:
    """When a session reaches the limit of its authors' own server, if there is one below the model's context."""
    served = profile.shape.served_context_length
    if served is None:
        return []
    per_s = profile.mean_tokens_per_frame / profile.frame.period_s
    after = format_duration(round((served - profile.prompt_tokens) / per_s)) if per_s else "never"
    return [
        f"its authors' server ends a session at {served:,} positions, after {after} on average; not in the forecast"
    ]


def _positions(count: float) -> str:
    return plural(int(count), "position") if float(count).is_integer() else f"{count:g} positions"


def _turns(profile: Profile) -> str:
    share, turn = profile.turn_taking.speaking_share, format_duration(profile.turn_taking.mean_turn)
    if not 0 < share < 1:
        return f"turns: the model {'always' if share else 'never'} speaks"
    return f"turns: the model speaks {percent(share)} of the time, {turn} at a time on average, lengths exponential"


def _sentence(plan: ForecastPlan, answer: PoolForecast) -> str:
    """Return the answer, its conditions and the limiting factor."""
    who, length = plural(plan.sessions, "session"), format_duration(plan.length_s)
    text = _fate(answer, who, plan.sessions == 1, length)
    if answer.max_sessions is not None:
        text += f" Safe for {length}: {plural(answer.max_sessions, 'session')} ({percent(plan.confidence)} confidence)"
        text += f", limited by {_named(answer.max_binding)}." if answer.max_binding != "none" else "."
    if answer.binding != "none" and answer.safe_window is not None:
        text += f" A window of {plural(answer.safe_window, 'position')} makes {who} safe."
    found = _implied(plan)
    return text if found is None else f"{text} {_implied_sentence(plan, found)}"


def _fate(answer: PoolForecast, who: str, one: bool, length: str) -> str:
    """What becomes of the sessions that were asked for: within their length, and if they went on."""
    if answer.t_sat.estimate is None:
        return f"{who} {'does' if one else 'do'} not saturate the pool."
    if answer.t_sat.estimate == 0:
        it = "it takes when it starts" if one else "they take when they start"
        return f"{who} {'does' if one else 'do'} not fit: what {it} is more than {_named(answer.first)}."
    if answer.binding == "none":
        chance = format_probability(1 - answer.probability)
        text = f"{who} {'holds' if one else 'hold'} for {length} with a probability of {chance}"
        end = _ends(answer.first, one=False)
        return (
            f"{text}; if continued, {'it' if one else 'they'} would {end} at {format_interval(answer.t_sat)}."
        )
    text = f"{who} {_ends(answer.first, one)} at {format_interval(answer.t_sat)}; a session of {length} sees "
    it = "it" if answer.first == answer.binding else f"an end, by {_named(answer.binding)},"
    return f"{text}{it} with a probability of {format_probability(answer.probability)}."


def _ends(binding: str, one: bool) -> str:
    """What the sessions do when that hazard comes."""
    if binding == "context":
        return f"{'reaches' if one else 'reach'} the end of the context"
    verb = "reach" if binding.endswith(" limit") else "fill"
    return f"{verb}{('es' if verb == 'reach' else 's') if one else ''} {_named(binding)}"


def _named(binding: str) -> str:
    """A hazard in a sentence: the pool, the context, stage talker, the limit of stage talker."""
    if binding.endswith(" limit"):
        return f"the limit of {binding.removesuffix(' limit')}"
    return binding if binding.startswith("stage ") else f"the {binding}"
