"""Sessions in Ray actors make one report, and an actor that dies ends the point and is named.

Runs where `.ci/peers.sh ray` has made an environment with Ray; everything else comes from this one.
"""

import json
import os
import subprocess
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
PYTHON = ROOT / ".peers" / "ray" / "bin" / "python"
pytestmark = [
    pytest.mark.skipif(not PYTHON.exists(), reason="no environment with Ray: .ci/peers.sh ray"),
    pytest.mark.slow,
]


@pytest.fixture(scope="module")
def told():
    paths = os.pathsep.join([str(ROOT), sysconfig.get_paths()["purelib"]])
    done = subprocess.run(
        [PYTHON, "-m", "tests.peers.ray_side"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "RAY_AUTH_MODE": "disabled"},
        stdout=subprocess.PIPE,
        timeout=400,
        check=True,
    )
    return json.loads(done.stdout)


def test_two_actors_make_one_point(told):
    point = told["whole"]
    assert told["workers"] == 2
    assert point["network"]["sessions_started"] == 4
    assert point["sessions_ended_early"] == {}
    assert point["frames"] / point["batches"] == pytest.approx(4, abs=0.5)


def test_an_actor_that_dies_ends_the_point_and_is_named(told):
    point = told["killed"]
    assert (point["verdict"], point["ended_by"]) == ("inconclusive", "load_generator")
    assert "Ray worker 2 of 2 was lost" in point["reason"]
    assert point["frames"] > 0


def test_clocks_of_one_machine_are_found_to_agree(told):
    """An error of the order of the way there and back."""
    assert abs(told["offset_s"]) < 0.5
