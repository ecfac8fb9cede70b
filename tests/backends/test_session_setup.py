"""What is told before a server has answered."""

import pytest

from metronome_cli.capacity.plan import CapacityPlan
from metronome_cli.capacity.remote_lab import WebsocketSetup
from metronome_cli.capacity.remote_run import run_remote_capacity
from metronome_cli.core.errors import MetronomeError
from tests.capacity.builders import Recorder, small_profile


def test_whose_door_is_knocked_at_is_told_before_anybody_answers():
    """A server that does not answer is waited for; the line says for what, without the address's secrets."""
    heard = Recorder()
    target = "ws://user:secret@127.0.0.1:1"
    with pytest.raises(MetronomeError):
        run_remote_capacity(CapacityPlan(small_profile()), WebsocketSetup(target, protocol="moshi"), heard)
    assert heard.phases == ["knock"]
    assert "127.0.0.1:1" in heard.details[0]
    assert "secret" not in heard.details[0]
