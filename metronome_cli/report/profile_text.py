"""Profiles as plain text: a table of all, or everything about one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from metronome_cli.config.profile import Profile
from metronome_cli.core.formatting import NO_DATA, number, percent, plural
from metronome_cli.core.quantities import format_duration, format_size
from metronome_cli.report.plain_text import fill, render_table, stdout_width
from metronome_cli.report.tables.table import Column, Table

if TYPE_CHECKING:
    from metronome_cli.results.profile_card import MemoryFit, ProfileCard, RatesByState, StageCard

_FIELD = (Column("", text=True), Column("", text=True))
_STATES = (Column("listening"), Column("speaking"), Column("mean", 5))


def render_list(cards: Sequence[ProfileCard], width: int | None = None) -> str:
    """One line a profile."""
    columns = [
        Column("profile", text=True),
        Column("KV a token"),
        Column("grows by", 5),
        Column("policy", 6, text=True),
        Column("runs here", 7, text=True),
        Column("figures", 4, text=True),
    ]
    rows = [
        [
            card.name,
            format_size(card.kv_bytes_per_token),
            _per_s(card.growth_bytes_per_s.mean),
            card.policy,
            "yes" if card.adapter else "planning only",
            "verified" if card.verified else "not all verified",
        ]
        for card in cards
    ]
    return render_table(Table(f"{len(cards)} profiles", columns, rows), _width(width))


def render_card(profile: Profile, card: ProfileCard, width: int | None = None) -> str:
    """All about one profile."""
    width = _width(width)
    blocks = [f"{card.name}: {card.title}"]
    blocks += [fill(profile.description, width)] if profile.description else []
    blocks += [render_table(table, width) for table in _tables(profile, card)]
    blocks += [_bullets("Not verified", card.unverified, width)]
    blocks += [_bullets("Notes", profile.notes, width)]
    sources = [f"{source.what}: {source.where} ({source.grade})" for source in profile.sources]
    blocks += [
        _bullets("Sources (A authors' own, B a port, C second hand, D computed, M measured)", sources, width)
    ]
    return "\n\n".join(block for block in blocks if block)


def _width(width: int | None) -> int:
    return max(30, width or stdout_width())


def _per_s(size: float | None) -> str:
    return NO_DATA if size is None else f"{format_size(size)}/s"


def _bullets(title: str, lines: Sequence[str], width: int) -> str:
    return (
        "\n".join([fill(title, width), *(fill(f"- {line}", width, indent="  ") for line in lines)])
        if lines
        else ""
    )


def _tables(profile: Profile, card: ProfileCard) -> Iterator[Table]:
    yield Table("Frame", _FIELD, _frame(profile))
    yield Table("Shape", _FIELD, _shape(profile))
    yield _growth(profile, card)
    if card.stages:
        yield _stages(card)
    yield Table("One session", _FIELD, _session(profile, card))
    if card.fit is not None:
        yield Table("How many fit", _FIELD, list(_fit(card.fit)))


def _frame(profile: Profile) -> list[list[str]]:
    frame, tokens = profile.frame, profile.tokens
    out = f"{tokens.decode.listening:,} listening, {tokens.decode.speaking:,} speaking"
    summed = ", all streams summed into the positions in" if tokens.fused else ""
    turns = f"speaks {percent(profile.turn_taking.speaking_share)} of the time"
    if 0 < profile.turn_taking.speaking_share < 1:
        turns += f", {format_duration(profile.turn_taking.mean_turn)} a turn"
    return [
        ["period", f"{format_duration(frame.period_s)}, deadline {format_duration(frame.deadline_s)}"],
        ["audio", f"{frame.sample_rate:,} Hz, {frame.samples:,} samples a frame"],
        ["positions in", number(tokens.prefill)],
        ["tokens out", out + summed],
        ["turns", turns],
        ["adapter", profile.adapter or "none: for planning only"],
    ]


def _shape(profile: Profile) -> list[list[str]]:
    shape = profile.shape
    rotary = "no rotary base" if shape.rope_theta is None else f"rotary base {shape.rope_theta:,.0f}"
    served = (
        f" ({shape.served_context_length:,} as its authors serve it)" if shape.served_context_length else ""
    )
    rows = [
        [
            "decoder",
            f"{plural(shape.layers, 'layer')}, hidden {shape.hidden_size:,}, MLP {_known(shape.intermediate_size)}, "
            f"{shape.dtype}",
        ],
        [
            "attention",
            f"{plural(shape.heads, 'head')}, {plural(shape.kv_heads, 'KV head')} of width {shape.head_dim}",
        ],
        ["vocabulary", _known(shape.vocab_size)],
        ["context", f"{_known(shape.context_length)} positions{served}, {rotary}"],
    ]
    if shape.parameters:
        active = f", {shape.active_parameters:,} used by one token" if shape.active_parameters else ""
        rows.append(["read a step", f"{shape.parameters:,} parameters{active}"])
    return rows


def _known(value: int | None) -> str:
    return "unknown" if value is None else f"{value:,}"


def _states(figure: RatesByState, show: object) -> list[str]:
    assert callable(show)
    return [show(value) for value in (figure.listening, figure.speaking, figure.mean)]


def _growth(profile: Profile, card: ProfileCard) -> Table:
    bounded = profile.policy_spec.kind != "unbounded"
    limit = "context reached, were it not bounded" if bounded else "context reached after"
    return Table(
        f"Cache: {format_size(card.kv_bytes_per_token)} a position",
        [Column("", text=True), *_STATES],
        [
            ["positions a second", *_states(card.positions_per_s, number)],
            ["grows by", *_states(card.growth_bytes_per_s, _per_s)],
            [limit, *_states(card.seconds_to_context, _age)],
        ],
    )


def _age(seconds: float | None) -> str:
    return "never" if seconds is None else format_duration(seconds)


def _stages(card: ProfileCard) -> Table:
    columns = [
        Column("stage", text=True),
        Column("kind", text=True),
        Column("a position", 6),
        Column("listening", 5),
        Column("speaking", 7),
        Column("limit", 8),
        Column("at most"),
        Column("", 4, text=True),
    ]
    return Table("Further stages", columns, [_stage(stage) for stage in card.stages])


def _stage(stage: StageCard) -> list[str]:
    growth = stage.growth_bytes_per_s
    says = [] if stage.verified else ["not verified"]
    if stage.resets == "turn":
        says.append("dropped at each turn's end")
    if stage.kind == "per_frame":
        says.append("rebuilt in each frame")
    return [
        stage.name,
        stage.kind.replace("_", " "),
        format_size(stage.kv_bytes_per_position) if stage.kv_bytes_per_position else NO_DATA,
        _per_s(growth.listening) if growth.listening else NO_DATA,
        _per_s(growth.speaking) if growth.speaking else NO_DATA,
        f"{stage.limit:,}" if stage.limit else NO_DATA,
        format_size(stage.bytes_at_most) if stage.bytes_at_most else "no bound",
        ", ".join(says),
    ]


def _session(profile: Profile, card: ProfileCard) -> list[list[str]]:
    at = format_duration(card.fit.session_length_s if card.fit else profile.session_length)
    sinks = f", sinks {profile.sink_positions}" if profile.policy_spec.sinks else ""
    weights = "unknown"
    if card.weight_bytes is not None:
        weights = format_size(card.weight_bytes) + ", once for all sessions"
    return [
        ["policy", f"{card.policy}{sinks}; when no block is free: {profile.on_pool_full}"],
        [f"cache after {at}", f"{format_size(card.cache_bytes_per_session)} on average"],
        ["one session", card.cache],
        ["outside the pool", format_size(card.state_bytes_per_session)],
        ["weights", weights],
        ["objectives", ", ".join(profile.objectives) or "none of its own"],
    ]


def _fit(fit: MemoryFit) -> Iterator[list[str]]:
    pool = "the profile's pool" if fit.memory_bytes is None else format_size(fit.memory_bytes)
    many = "any number" if fit.sessions is None else f"{fit.sessions:,}"
    length, sure = format_duration(fit.session_length_s), percent(fit.confidence)
    yield ["sessions", f"{many} for {length} in {pool} ({sure} confidence)"]
    if fit.binding != "none":
        yield ["limited by", fit.binding]
    for row in fit.memory:
        yield [row.what, f"{format_size(row.bytes)}: {row.how}"]
