"""The events file: on disk at once, whatever the disk does; and the report that a killed run leaves in it."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time

import pytest

from metronome_cli.core.errors import UsageError
from metronome_cli.report.event_log import EVENTS_FILE, EventsFile
from metronome_cli.report.event_replay import CONDITIONS, confirmed
from metronome_cli.report.rebuild import load_run, read_events, rebuild
from metronome_cli.report.report_file import write_report
from tests.report.builders import capacity_report, collapse, point, ramp, window


def told(directory):
    messages = []
    return EventsFile(directory, tell=messages.append), messages


def lines(directory):
    return [json.loads(line) for line in (directory / EVENTS_FILE).read_text().splitlines()]


def begin(events):
    given = capacity_report().model_dump(mode="json", by_alias=True)
    events.event("run_started", {key: given[key] for key in CONDITIONS})
    events.event("audio", given["audio"])
    return given


def tell_points(events, points):
    for each in points:
        events.phase(each.purpose, f"{each.sessions} sessions")
        for entry in each.windows:
            events.event("window", {"phase": each.purpose, **entry.model_dump()})
        events.event("trial", each.model_dump(mode="json"))


# -- writing ----------------------------------------------------------------------------------------


def test_every_line_is_there_as_soon_as_it_is_told(tmp_path):
    events, _ = told(tmp_path / "run")
    events.event("admission", {"t_s": 1.0, "session_limit": float("nan")})
    head, line = lines(tmp_path / "run")
    assert head["schema"] == "metronome.events/2"
    assert (line["kind"], line["data"]) == ("admission", {"t_s": 1.0, "session_limit": None})
    events.close()
    events.event("late", {})


def test_a_directory_that_cannot_be_used_is_refused_before_the_run(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot write"):
        EventsFile(tmp_path / "file" / "run")


def test_an_earlier_runs_files_are_set_aside(tmp_path):
    events, _ = told(tmp_path)
    begin(events)
    events.close()
    write_report(capacity_report(), tmp_path)
    again, _ = told(tmp_path)
    again.event("run_started", {})
    assert len(lines(tmp_path)) == 2
    assert len((tmp_path / "events.jsonl.previous").read_text().splitlines()) == 3
    assert not (tmp_path / "report.json").exists()
    assert (tmp_path / "report.json.previous").exists()


def test_a_run_that_never_began_leaves_an_earlier_one_alone(tmp_path):
    events, _ = told(tmp_path)
    begin(events)
    events.close()
    write_report(capacity_report(), tmp_path)
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    mistyped, _ = told(tmp_path)
    mistyped.phase("audio", "reading speech")
    mistyped.notice("left out noise.mp3")
    mistyped.close()
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before


def test_what_came_before_the_run_began_is_kept_in_order(tmp_path):
    events, _ = told(tmp_path)
    events.phase("audio", "reading speech")
    events.event("run_started", {})
    assert [line.get("kind", "head") for line in lines(tmp_path)] == ["head", "phase", "run_started"]


def test_a_full_disk_is_told_once_and_loses_nothing_that_was_written(tmp_path, monkeypatch):
    events, messages = told(tmp_path)
    begin(events)
    before = (tmp_path / EVENTS_FILE).read_bytes()
    monkeypatch.setattr("os.write", half_of_it_then_no_space(os.write))
    for _ in range(3):
        events.event("admission", {"session_limit": 4.0})
    assert len(messages) == 1
    assert "No space" in messages[0]
    assert (tmp_path / EVENTS_FILE).read_bytes() == before


def half_of_it_then_no_space(write):
    calls = []

    def fail(fd, data):
        calls.append(data)
        if len(calls) > 1:
            raise OSError(28, "No space left on device")
        return write(fd, data[: len(data) // 2])

    return fail


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_device_without_space_ends_events_not_the_run(tmp_path):
    events, messages = told(tmp_path)
    begin(events)
    os.dup2(os.open("/dev/full", os.O_RDWR), events._fd)
    events.event("admission", {"session_limit": 4.0})
    events.event("admission", {"session_limit": 4.0})
    assert len(messages) == 1


def test_a_directory_that_vanished_is_made_again_with_all_that_was_written(tmp_path):
    directory = tmp_path / "run"
    events, messages = told(directory)
    begin(events)
    before = (directory / EVENTS_FILE).read_bytes()
    shutil.rmtree(directory)
    events.event("admission", {"session_limit": 4.0})
    events.event("admission", {"session_limit": 5.0})
    after = (directory / EVENTS_FILE).read_bytes()
    assert after.startswith(before)
    assert after.count(b"\n") == before.count(b"\n") + 2
    assert len(messages) == 1


# -- rebuilding -------------------------------------------------------------------------------------


def test_the_final_report_is_taken_as_it_is(tmp_path):
    events, _ = told(tmp_path)
    begin(events)
    given = capacity_report()
    events.event("report", given.model_dump(mode="json", by_alias=True))
    assert rebuild(tmp_path / EVENTS_FILE) == given
    assert load_run(tmp_path) == given


def test_points_and_windows_make_an_interrupted_report(tmp_path):
    events, _ = told(tmp_path)
    begin(events)
    events.phase("ramp", "AIMD")
    for entry in ramp():
        events.event("window", {"phase": "ramp", **entry.model_dump()})
    given = capacity_report().capacity.trials
    tell_points(events, given)
    events.phase("exceed", "26 sessions")
    for t in range(5):
        events.event("window", {"phase": "exceed", **window(float(t), 26, 90.0, misses=2).model_dump()})
    found = rebuild(tmp_path / EVENTS_FILE)
    assert (found.status, found.verdict, found.exit_code) == ("interrupted", "inconclusive", 130)
    assert found.capacity.trials[:-1] == given
    assert found.capacity.ramp_windows == ramp()
    cut = found.capacity.trials[-1]
    assert (cut.sessions, cut.verdict, cut.misses, cut.purpose) == (26, "inconclusive", 10, "exceed")
    assert found.capacity.safe_sessions == 24
    assert found.capacity.lowest_failing_sessions == 25
    assert "rebuilt from its events" in found.summary
    assert found.audio.files_refused


def test_a_point_that_was_cut_off_leaves_its_warm_up_out_of_the_counts(tmp_path):
    events, _ = told(tmp_path)
    begin(events)
    events.phase("single", "4 sessions")
    warm_up = window(1.0, 4, 99.0, 0.9, misses=9, empty_frames=8, warm_up=True)
    for each in (warm_up, window(2.0, 4, 50.0, 0.4, misses=1)):
        events.event("window", {"phase": "single", **each.model_dump()})
    cut = rebuild(tmp_path / EVENTS_FILE).capacity.trials[0]
    assert (cut.frames, cut.misses, cut.empty_frames) == (48, 1, 0)
    assert cut.latency_ms.max == pytest.approx(55.0)
    assert cut.occupancy_max == 0.9


def test_one_judged_number_keeps_its_verdict(tmp_path):
    events, _ = told(tmp_path)
    begin(events)
    tell_points(events, [point(16, "fail", "single", collapse=collapse())])
    found = rebuild(tmp_path / EVENTS_FILE)
    assert (found.verdict, found.capacity.method) == ("fail", "single")


def test_a_collapse_of_an_unjudged_point_is_kept(tmp_path):
    events, _ = told(tmp_path)
    begin(events)
    events.phase("single", "16 sessions")
    events.event("window", {"phase": "single", **window(41.0, 16, 5.0, 1.0).model_dump()})
    events.event("collapse", collapse().model_dump())
    assert rebuild(tmp_path / EVENTS_FILE).capacity.trials[-1].collapse == collapse()


def test_short_looks_and_the_check_of_memory_confirm_nothing():
    assert confirmed([point(24, "pass", "screen")]) is None
    assert confirmed([point(24, "pass", "memory", policy="unbounded")]) is None
    assert confirmed([point(24, "pass", "confirm")]) == 24
    assert confirmed([point(24, "pass", "confirm"), point(25, "pass", "exceed")]) == 25
    assert confirmed([point(24, "pass", "confirm"), point(24, "fail", "exceed")]) is None


@pytest.mark.parametrize("cut", [1, 40, -1])
def test_a_torn_last_line_is_passed_over(tmp_path, cut):
    events, _ = told(tmp_path)
    begin(events)
    tell_points(events, [point()])
    file = tmp_path / EVENTS_FILE
    whole = file.read_bytes()
    file.write_bytes(whole + b'{"t": 1, "kind": "trial", "data": {"sess'[:cut])
    assert rebuild(file).capacity.safe_sessions == 24


def test_a_malformed_line_elsewhere_is_refused_by_its_number(tmp_path):
    events, _ = told(tmp_path)
    begin(events)
    file = tmp_path / EVENTS_FILE
    file.write_bytes(file.read_bytes() + b"{oops\n" + b'{"t": 1, "kind": "x", "data": {}}\n')
    with pytest.raises(UsageError, match=r"events\.jsonl:4"):
        rebuild(file)


@pytest.mark.parametrize("text", ["", "\n", "{}\n", '{"schema": "metronome.events/2"}\n', "[]\n"])
def test_what_is_no_run_is_refused(tmp_path, text):
    (tmp_path / EVENTS_FILE).write_text(text)
    with pytest.raises(UsageError):
        load_run(tmp_path)


def test_a_directory_without_a_run_is_refused(tmp_path):
    with pytest.raises(UsageError, match="neither"):
        load_run(tmp_path)


def test_events_of_kinds_not_known_are_passed_over(tmp_path):
    events, _ = told(tmp_path)
    begin(events)
    events.event("of_the_future", {"a": 1})
    assert rebuild(tmp_path / EVENTS_FILE).status == "interrupted"


def test_a_run_killed_at_any_instant_leaves_a_report(tmp_path):
    rng = random.Random(7)
    for trial in range(3):
        directory = tmp_path / str(trial)
        victim = subprocess.Popen([sys.executable, "-m", "tests.report.victim", str(directory)])
        try:
            wait_for_lines(directory / EVENTS_FILE, rng.randrange(2, 120), victim)
        finally:
            victim.send_signal(signal.SIGKILL)
            victim.wait()
        found = load_run(directory)
        assert found.status == "interrupted"
        judged = [event for event in read_events(directory / EVENTS_FILE) if event["kind"] == "trial"]
        assert len(found.capacity.trials) >= len(judged)


def wait_for_lines(file, count, process):
    """Until the file has that many lines, or the process is gone."""
    while process.poll() is None:
        if file.exists() and file.read_bytes().count(b"\n") >= count:
            return
        time.sleep(0.005)
    raise AssertionError("the run ended by itself")


def test_a_directory_is_one_runs_at_a_time(tmp_path) -> None:
    first = EventsFile(tmp_path)
    with pytest.raises(UsageError, match="another run is writing"):
        EventsFile(tmp_path)
    first.close()
    EventsFile(tmp_path).close()
    assert list(tmp_path.iterdir()) == []
