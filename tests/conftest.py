"""What holds for every test: none is judged by how long an example took, or by what else the machine does."""

import os
from pathlib import Path

import pytest
from hypothesis import settings

from metronome_cli.measure import machine_load

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # as the command line does, before torch is imported
os.environ.setdefault("TRITON_INTERPRET", "1")  # kernels run without a GPU; read when Triton is imported

settings.register_profile("metronome", deadline=None, derandomize=bool(os.environ.get("CI")))
settings.load_profile("metronome")


@pytest.fixture(autouse=True)
def no_file_says_how_busy_the_machine_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_load, "_STAT", Path("/nowhere"))
