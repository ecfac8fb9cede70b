"""The unmodified `openai` SDK against `serve --protocol realtime`: every event validates against the SDK's types."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.server.test_reference_server import reference

ROOT = Path(__file__).resolve().parents[2]
PEER = ROOT / ".peers" / "openai" / "bin" / "python"
HERE = bool(importlib.util.find_spec("openai"))
SIDE = Path(__file__).with_name("openai_side.py")

pytestmark = pytest.mark.skipif(not (PEER.exists() or HERE), reason="needs .ci/peers.sh openai")


@pytest.mark.parametrize("flavour", ["ga", "beta"])
def test_the_sdk_holds_a_conversation(flavour):
    python = str(PEER) if PEER.exists() else sys.executable
    with reference("realtime") as url:
        done = subprocess.run(
            [python, str(SIDE), url, flavour],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
            env={**os.environ, "NO_PROXY": "*"},
        )
    assert done.returncode == 0, done.stderr[-2000:]
    told = json.loads(done.stdout)
    assert "failed" not in told, told
    assert told["wrong"] == []
    assert told["cancelled"] == [True, "cancelled"]
    assert told["whole"] == "completed"
    assert told["empty"] == "input_audio_buffer_commit_empty"
    assert told["nonsense"] == ["unknown_event", "mine"]
    assert told["bad_audio"] == "invalid_value"
    assert told["ids"]
    assert told["deltas"] > 10
