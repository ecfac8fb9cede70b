"""A machine that other work kept busy is said where the answer stands."""

import pytest

from metronome_cli.capacity.summary import summarize
from metronome_cli.report.conditions import notes
from tests.report.builders import every_report


@pytest.fixture
def report():
    return every_report()["capacity"].model_copy(deep=True)


@pytest.mark.parametrize(("busy", "said"), [(1.9, True), (0.1, False), (None, False)])
def test_the_cores_that_others_used_are_in_answer_and_notes(report, busy, said):
    report.environment = {**report.environment, "cores": 2, "busy_cores": busy}
    text = summarize(report, report.capacity.trials[0])
    assert ("on a busy machine: other work used 1.9 of 2 cores." in text) == said
    assert any("1.9 of 2 cores" in note for note in notes(report)) == said
