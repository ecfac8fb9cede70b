"""A disk that fills and a directory that goes away, under a real run: the answer comes, and what was lost is said."""

import json
import shutil
import sys

import pytest

from metronome_cli.report.event_log import EVENTS_FILE
from tests.faults.runs import SMOKE, call, ended, start, wait_for_events

pytestmark = pytest.mark.slow
LIMIT = 4096  # bytes that any file of the run may grow to


@pytest.mark.skipif(sys.platform == "win32", reason="needs limits of resources")
def test_a_disk_that_fills_mid_run_costs_files_not_the_answer(tmp_path):
    prelude = f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, ({LIMIT}, {LIMIT}))"
    code, out, err = ended(start(*SMOKE, "--sessions", 4, "--json", "--output", tmp_path, prelude=prelude))
    assert code == 1
    assert json.loads(out)["verdict"] is not None
    assert err.count("no more events are kept, the run continues") == 1
    assert "cannot write" in err
    assert "report.json" in err
    kept = (tmp_path / EVENTS_FILE).read_bytes()
    assert len(kept) <= LIMIT
    assert all(json.loads(line) for line in kept.splitlines())  # no line is torn
    assert [file.name for file in tmp_path.iterdir()] == [EVENTS_FILE]


def test_a_directory_that_vanishes_mid_run_is_made_again_with_all_that_was_in_it(tmp_path):
    directory = tmp_path / "run"
    process = start(*SMOKE, "--output", directory)
    assert wait_for_events(directory, 8, process)
    before = (directory / EVENTS_FILE).read_bytes()
    shutil.rmtree(directory)
    code, _, err = ended(process)
    assert "made again" in err
    assert (directory / EVENTS_FILE).read_bytes().startswith(before[: before.rindex(b"\n")])
    report = json.loads((directory / "report.json").read_bytes())
    assert report["status"] == "complete"
    assert report["exit_code"] == code  # what it found depends on how busy the machine is
    rebuilt, out, _ = call("report", directory, "--from-events", "--json")
    assert rebuilt == 0
    assert json.loads(out) == report


def test_a_directory_that_became_a_file_costs_files_not_the_answer(tmp_path):
    directory = tmp_path / "run"
    process = start(*SMOKE, "--sessions", 4, "--json", "--output", directory)
    assert wait_for_events(directory, 4, process)
    shutil.rmtree(directory)
    directory.write_text("in the way")
    code, out, err = ended(process)
    assert code == 1
    assert json.loads(out)["status"] == "complete"
    assert "cannot write" in err
