"""Files of load: what was written is read, and whatever else is in one is refused by file and line."""

import errno
import json
import os
import pickle

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from metronome_cli.core.errors import UsageError
from metronome_cli.load.trace import TraceSession, TraceTrial
from metronome_cli.load.trace_file import (
    AudioFingerprint,
    TraceHeader,
    TraceWriter,
    check_writable,
    read_load,
)

HEAD = TraceHeader(
    version="0.1.0",
    profile="small",
    period_s=0.08,
    sample_rate=16000,
    frame_samples=1280,
    decode_listening=1,
    decode_speaking=2,
    batching="continuous",
    seed=7,
    session_length_s=60.0,
    loop_samples=48_000,
    audio=[AudioFingerprint(file="talk.wav", sha256="0" * 64)],
)
SESSIONS = st.lists(
    st.tuples(
        st.floats(0, 1e6), st.floats(0, 60), st.floats(0, 1e6, exclude_min=True), st.integers(0, 47_999),
        st.lists(st.integers(0, 10**9), min_size=1, max_size=5).filter(any),
    ),
    min_size=1,
    max_size=5,
)  # fmt: skip


def sessions(drawn):
    at = sorted(row[0] for row in drawn)
    return [
        TraceSession(
            session=i,
            start_s=at[i],
            age_s=age,
            lifetime_s=life,
            phase_s=0.04,
            loop_offset=start,
            turn_frames=speaks,
        )
        for i, (_, age, life, start, speaks) in enumerate(drawn)
    ]


def write(path, runs, tell=pytest.fail):
    writer = TraceWriter(path, HEAD, tell)
    for number, (drawn_sessions, end_s) in enumerate(runs):
        take = writer.begin(TraceTrial(purpose=f"run {number}", sessions=len(drawn_sessions)))
        for session in drawn_sessions:
            take(session)
        if end_s is not None:
            writer.end(end_s)
    writer.close()
    return path


@pytest.fixture
def good(tmp_path):
    one_session = sessions([(0.0, 1.5, 30.0, 17, [3, 4])])
    return write(tmp_path / "load.jsonl", [(one_session, 10.0), (one_session * 1, 5.0)])


@given(st.lists(st.tuples(SESSIONS, st.floats(0, 1e6, exclude_min=True)), min_size=1, max_size=4))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40, deadline=None)
def test_what_was_written_is_read_to_the_last_digit(tmp_path, drawn):
    runs = [(sessions(drawn_sessions), end_s) for drawn_sessions, end_s in drawn]
    found = read_load(write(tmp_path / "load.jsonl", runs))
    assert found.head == HEAD
    assert not found.cut_short
    assert [(list(run.sessions), run.end_s) for run in found.runs] == runs


def test_a_killed_run_leaves_the_runs_that_had_ended(good):
    lines = good.read_bytes().splitlines(keepends=True)
    good.write_bytes(b"".join(lines[:-1]))
    found = read_load(good)
    assert len(found.runs) == 1
    assert found.cut_short


def test_a_file_without_a_whole_run_is_refused(good):
    good.write_bytes(b"".join(good.read_bytes().splitlines(keepends=True)[:3]))
    with pytest.raises(UsageError, match=r"load\.jsonl:3: ends before the first trial has ended"):
        read_load(good)


def test_a_file_that_was_cut_anywhere_keeps_the_runs_that_had_ended_and_says_so(good):
    data = good.read_bytes()
    ends = [place + 1 for place in range(len(data)) if data[place : place + 1] == b"\n"]  # of lines
    for size in range(ends[3], len(data)):
        good.write_bytes(data[:size])
        found = read_load(good)
        assert len(found.runs) == 1
        assert found.cut_short == (size > ends[3])
    for size in range(1, ends[3]):
        good.write_bytes(data[:size])
        with pytest.raises(UsageError, match=r"load\.jsonl:\d: "):
            read_load(good)


def test_a_line_that_is_not_complete_and_not_the_last_is_an_error(good):
    lines = good.read_bytes().splitlines(keepends=True)
    good.write_bytes(b"".join([*lines[:2], lines[2][:-9] + b"\n", *lines[3:]]))
    with pytest.raises(UsageError, match=r"load\.jsonl:3: not JSON"):
        read_load(good)


def test_a_run_that_was_stopped_as_it_began_gives_nothing_and_the_others_stay(good):
    text = good.read_text()
    good.write_text(text.replace('"trial_end":0,"at_s":10.0', '"trial_end":0,"at_s":0.0'))
    found = read_load(good)
    assert ([run.head.trial for run in found.runs], found.cut_short) == ([1], False)
    good.write_text(good.read_text().replace('"at_s":5.0', '"at_s":0.0'))
    with pytest.raises(UsageError, match="ends before the first trial has ended"):
        read_load(good)


@pytest.mark.parametrize(
    ("number", "change", "said"),
    [
        (1, {"schema": "metronome.load/1"}, r"load\.jsonl:1: schema 'metronome.load/1', where"),
        (1, {"schema": None}, r"load\.jsonl:1: no schema"),
        (1, {"period_s": 0}, r"load\.jsonl:1: period_s: "),
        (1, {"audio": [{"file": "a", "sha256": "xyz"}]}, r"load\.jsonl:1: audio.0.sha256: "),
        (2, {"trial": 4}, r"load\.jsonl:2: trial 4; 0 is expected"),
        (2, {"sessions": 0}, r"load\.jsonl:2: sessions: "),
        (2, {"surprise": 1}, r"load\.jsonl:2: surprise: "),
        (3, {"session": 1}, r"load\.jsonl:3: session 1; 0 is expected"),
        (3, {"start_s": -1}, r"load\.jsonl:3: start_s: "),
        (3, {"start_s": "0"}, r"load\.jsonl:3: start_s: "),
        (3, {"loop_offset": 48_000}, r"load\.jsonl:3: loop_offset 48000 is beyond the loop"),
        (3, {"lifetime_s": 0}, r"load\.jsonl:3: lifetime_s: "),
        (3, {"phase_s": 0.08}, r"load\.jsonl:3: phase_s 0.08 is no part of the period, 0.08 s"),
        (3, {"age_s": 60.5}, r"load\.jsonl:3: age_s 60.5 is more than a session lasts, 60 s"),
        (3, {"turn_frames": [0, 0]}, r"load\.jsonl:3: turn_frames: no frames"),
        (3, {"turn_frames": []}, r"load\.jsonl:3: turn_frames: no frames"),
        (3, {"turn_frames": [1, -1]}, r"load\.jsonl:3: turn_frames.1: "),
        (3, {"turn_frames": [10**12]}, r"load\.jsonl:3: turn_frames.0: "),
        (4, {"trial_end": 1}, r"load\.jsonl:4: trial_end 1: that trial is not open"),
    ],
)
def test_a_wrong_line_is_named_with_what_is_wrong(good, number, change, said):
    lines = good.read_text().splitlines()
    lines[number - 1] = json.dumps(json.loads(lines[number - 1]) | change)
    good.write_text("\n".join(lines) + "\n")
    with pytest.raises(UsageError, match=said):
        read_load(good)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"", "not JSON"),
        (b"[1]", "not a JSON object"),
        (b'{"at_s": NaN}', "NaN is not JSON"),
        (b'{"trial_end":0,"trial_end":0}', "the same key twice"),
        (b"{}", "neither a trial, nor a session, nor a trial_end"),
        (b"\xff", "not UTF-8"),
        (b"[" * 100_000, "nested deeper"),
        (pickle.dumps(os.getcwd, 0).replace(b"\n", b" "), "not"),
    ],
)
def test_a_line_that_is_none_is_named(good, line, said):
    lines = good.read_bytes().splitlines()
    lines[1] = line
    good.write_bytes(b"\n".join(lines) + b"\n")
    with pytest.raises(UsageError, match=rf"load\.jsonl:2: .*{said}"):
        read_load(good)


@given(st.binary(max_size=200), st.integers(0, 400), st.integers(0, 60))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=150, deadline=None)
def test_any_damage_is_read_or_refused_by_name(good, noise, place, length):
    data = good.read_bytes()
    broken = good.with_name("broken.jsonl")
    broken.write_bytes(data[:place] + noise + data[place + length :])
    said = None
    try:
        read_load(broken)
    except UsageError as error:
        said = error.message
    assert said is None or "broken.jsonl:" in said


def test_a_disk_that_is_full_is_told_once_and_costs_nothing_else(tmp_path, monkeypatch):
    told, real, room = [], os.write, 700

    def full(fd, data):
        nonlocal room
        if room <= 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        written = real(fd, data[:room])
        room -= written
        return written

    monkeypatch.setattr(os, "write", full)
    drawn_sessions = sessions([(0.0, 1.5, 30.0, 17, [3, 4])])
    path = write(tmp_path / "load.jsonl", [(drawn_sessions, 10.0)] * 5, told.append)
    assert len(told) == 1
    assert told[0].message == f"cannot write {path}: No space left on device"
    assert "make room" in told[0].hint
    assert path.read_bytes().endswith(b"\n")  # no half line
    assert read_load(path).runs


def test_a_place_that_cannot_be_written_is_refused_before_anything_runs(tmp_path):
    with pytest.raises(UsageError, match="--record: cannot write"):
        check_writable(tmp_path / "missing" / "load.jsonl")
    with pytest.raises(UsageError, match="it is a directory"):
        check_writable(tmp_path)
    check_writable(tmp_path / "load.jsonl")
    assert not list(tmp_path.iterdir())
