"""What is told before a server has answered."""

import pytest

from metronome_cli.backends.websocket.backend import WebsocketSetup
from metronome_cli.capacity.plan import CapacityPlan
from metronome_cli.commands.capacity_on_server import run_on_server
from metronome_cli.core.errors import MetronomeError
from tests.capacity.builders import ObserverLog, small_profile


def test_the_server_is_named_before_it_answers():
    """A server that does not answer is waited for; the line says for what, without the address's secrets."""
    heard = ObserverLog()
    target = "ws://user:secret@127.0.0.1:1"
    with pytest.raises(MetronomeError):
        run_on_server(CapacityPlan(small_profile()), WebsocketSetup(target, protocol="moshi"), heard)
    assert heard.phases == ["connect"]
    assert "127.0.0.1:1" in heard.details[0]
    assert "secret" not in heard.details[0]
