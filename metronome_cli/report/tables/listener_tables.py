"""Tables of what listeners heard: playback, the answer by playback delay, turns, and what single calls report."""

from __future__ import annotations

from metronome_cli.core.formatting import NO_DATA, duration, format_ms, number, percent
from metronome_cli.report.tables.table import Column, Table
from metronome_cli.results.capacity_result import TrialResult
from metronome_cli.results.run_report import Report


def listener_tables(report: Report) -> list[Table]:
    """Every table about listeners that the report has something for."""
    trials = sorted(report.capacity.trials if report.capacity else [], key=lambda trial: trial.sessions)
    return [
        playback(trials),
        by_delay(report),
        turns(trials),
        canary(trials),
        context(trials),
        speed(trials),
        misbehaved(trials),
    ]


def playback(trials: list[TrialResult]) -> Table:
    """What listeners heard in each trial."""
    columns = [
        Column("sessions"), Column("run", 2, text=True), Column("delay ms", 6), Column("longest gap ms", 7),
        Column("gaps", 4), Column("starved", 7), Column("need ms p50", 5), Column("p90", 5), Column("max", 6),
    ]  # fmt: skip
    rows = [
        [
            number(trial.sessions), trial.purpose or NO_DATA, f"{heard.delay_ms:g}", format_ms(heard.gap_ms.max),
            number(heard.gaps), percent(heard.starved_share), format_ms(heard.need_ms.p50),
            format_ms(heard.need_ms.p90), format_ms(heard.need_ms.max),
        ]
        for trial in trials
        if (heard := trial.playback) is not None
    ]  # fmt: skip
    return Table("Heard by listeners", columns, rows)


def by_delay(report: Report) -> Table:
    """The answer at each playback delay."""
    found = report.capacity.by_delay if report.capacity else []
    columns = [Column("playback delay ms"), Column("safe sessions"), Column("first failing")]
    rows = [[f"{one.delay_ms:g}", number(one.safe_sessions), number(one.first_failing)] for one in found]
    return Table("Capacity by playback delay", columns, rows)


def turns(trials: list[TrialResult]) -> Table:
    """Turns of the users and answers of the model; times in milliseconds."""
    columns = [
        Column("sessions"), Column("run", 2, text=True), Column("asked", 5), Column("answered", 6),
        Column("reply p50", 6), Column("reply p95", 7), Column("broken", 5), Column("talked over", 3),
        Column("yield p95", 4), Column("startled", 2),
    ]  # fmt: skip
    rows = [
        [
            number(trial.sessions), trial.purpose or NO_DATA, number(found.asked), number(found.answered),
            format_ms(found.reply_ms.p50), format_ms(found.reply_ms.p95), number(found.broken),
            number(found.talked_over), format_ms(found.yield_ms.p95),
            number(found.startled) if found.backchannels else NO_DATA,
        ]
        for trial in trials
        if (found := trial.turns) is not None
    ]  # fmt: skip
    return Table("Turns", columns, rows)


def canary(trials: list[TrialResult]) -> Table:
    """One session under load against itself alone, in milliseconds."""
    columns = [
        Column("sessions"), Column("run", 2, text=True), Column("pairs", 4), Column("added to replies"),
        Column("99 % interval", text=True), Column("second pass alone", 3),
    ]  # fmt: skip
    rows = [
        [
            number(trial.sessions), trial.purpose or NO_DATA, number(found.pairs),
            format_ms(found.reply_added_ms.estimate),
            NO_DATA if (low := found.reply_added_ms.low) is None else f"{low:+.0f} to {found.reply_added_ms.high:+.0f}",
            format_ms(found.repeat_added_ms.estimate),
        ]
        for trial in trials
        if (found := trial.canary) is not None
    ]  # fmt: skip
    return Table("One session against itself alone, ms", columns, rows)


def misbehaved(trials: list[TrialResult]) -> Table:
    """Sessions that misbehaved on purpose, and how long the server held those that it ended."""
    columns = [
        Column("sessions"), Column("run", 2, text=True), Column("behaviour", text=True), Column("count"),
        Column("ended by server"), Column("held p50", 3), Column("held max", 4),
    ]  # fmt: skip
    rows = [
        [
            number(trial.sessions), trial.purpose or NO_DATA, one.behaviour, number(one.count),
            number(one.ended_by_server), duration(one.held_s.p50), duration(one.held_s.max),
        ]
        for trial in trials
        for one in trial.misbehaved
    ]  # fmt: skip
    return Table("Sessions that misbehaved", columns, rows)


def context(trials: list[TrialResult]) -> Table:
    """Caches of single sessions, and answers while listening."""
    columns = [
        Column("sessions"), Column("run", 2, text=True), Column("longest cache", 6), Column("of", 6),
        Column("per second", 4), Column("full in", 5), Column("listens", 3), Column("longest silence", 2),
    ]  # fmt: skip
    rows = []
    for trial in trials:
        cache, beats = trial.context, trial.beats
        if cache is None and beats is None:
            continue
        answers = None if beats is None or not beats.listen + beats.speak else beats
        rows.append(
            [
                number(trial.sessions),
                trial.purpose or NO_DATA,
                number(cache.used_max) if cache else NO_DATA,
                number(cache.limit) if cache else NO_DATA,
                NO_DATA if cache is None or cache.growth_per_s is None else f"{cache.growth_per_s:.1f}",
                duration(cache.full_in_s) if cache else NO_DATA,
                percent(answers.listen / (answers.listen + answers.speak)) if answers else NO_DATA,
                duration(beats.longest_silence_s) if beats else NO_DATA,
            ]
        )
    return Table("Answers while listening, and context", columns, rows)


def speed(trials: list[TrialResult]) -> Table:
    """Real-time factor of answers."""
    columns = [
        Column("sessions"), Column("run", 2, text=True), Column("answers"), Column("RTF p50"), Column("p99"),
        Column("max"), Column("RTFx p50", 3),
    ]  # fmt: skip
    rows = [
        [
            number(trial.sessions),
            trial.purpose or NO_DATA,
            number(rtf.n),
            *map(_ratio, (rtf.p50, rtf.p99, rtf.max, rtf.rtfx_p50)),
        ]
        for trial in trials
        if (rtf := trial.rtf) is not None
    ]  # fmt: skip
    return Table("Speed of answers", columns, rows)


def _ratio(value: float | None) -> str:
    return NO_DATA if value is None else f"{value:.2f}"
