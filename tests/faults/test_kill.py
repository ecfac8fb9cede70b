"""kill -9 at any instant leaves what a report can be made of."""

import random
import signal
import time

import pytest

from metronome_cli.core.errors import UsageError
from metronome_cli.report.event_log import EVENTS_FILE
from metronome_cli.report.rebuild import load_run
from tests.faults.kills import killed, report_of
from tests.faults.runs import SMOKE, ended, start, wait_for_events

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("seed", [3, 8])
def test_a_killed_run_is_reported_from_its_events(tmp_path, seed):
    assert killed(tmp_path, random.Random(seed)) in ("interrupted", "complete")


def test_a_run_that_was_cut_at_any_byte_is_reported_or_said_to_hold_nothing(tmp_path):
    process = start(*SMOKE, "--output", tmp_path)
    assert ended(process)[0] in (0, 3, 4)  # the verdict is another matter
    whole = (tmp_path / EVENTS_FILE).read_bytes()
    (tmp_path / "report.json").unlink()
    rng = random.Random(1)
    found = set()
    for cut in [0, 1, len(whole) - 1, *(rng.randrange(len(whole)) for _ in range(60))]:
        (tmp_path / EVENTS_FILE).write_bytes(whole[:cut])
        try:
            found.add(load_run(tmp_path).status)
        except UsageError:
            found.add("nothing")
    assert found >= {"interrupted", "nothing"}
    (tmp_path / EVENTS_FILE).write_bytes(whole)
    assert report_of(tmp_path) == "complete"


@pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="needs SIGSTOP")
def test_a_run_that_was_suspended_while_it_measured_says_so_and_judges_nothing(tmp_path):
    process = start(*SMOKE, "--sessions", 4, "--clock", "real", "--output", tmp_path)
    assert wait_for_events(tmp_path, 1, process, kind="window")
    process.send_signal(signal.SIGSTOP)
    time.sleep(2.0)
    process.send_signal(signal.SIGCONT)
    code, out, _ = ended(process)
    assert code == 4
    assert "load generator was late in 1 of 1 trial" in " ".join(out.split())
