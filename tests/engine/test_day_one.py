"""The benchmark for the first day with a GPU runs, reduced, where there is none, and takes up what is missing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "day_one.py"


def test_it_runs_reduced_on_a_cpu_and_goes_on_where_it_was(tmp_path: Path) -> None:
    pytest.importorskip("triton")
    out = tmp_path / "day_one.json"
    out.write_text(json.dumps({"graphs": {"kept": True}}), "utf-8")
    command = [sys.executable, "-W", "ignore", str(SCRIPT), "--out", str(out)]
    for part in ("kernel", "graphs", "waits", "mixture"):
        command += ["--only", part]
    run = subprocess.run(command, env=os.environ, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    found = json.loads(out.read_text("utf-8"))
    assert found["graphs"] == {"kept": True}
    assert all(row["right"] for part in ("kernel", "mixture") for row in found[part]["rows"])
    assert all(row["gb_s"] is None for row in found["kernel"]["rows"])  # a CPU's time is not one of a GPU's
    assert "skipped" in found["waits"]
    assert found["device"]["name"] == "CPU"
