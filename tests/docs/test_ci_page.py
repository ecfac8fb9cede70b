"""The workflows of docs/ci.md: they parse, and their steps do what they say under `bash -e`."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from metronome_cli.core.files import write_text
from metronome_cli.report.report_file import report_json
from tests.report.builders import capacity_report

PAGE = Path(__file__).parents[2] / "docs" / "ci.md"
STAND_IN = """#!/bin/bash
# stands in for metronome: `capacity` copies a report that was made before and ends with its code
if [ "$1" != capacity ]; then exec {python} -m metronome_cli "$@"; fi
while [ $# -gt 0 ]; do case $1 in --seed) seed=$2 ;; --output) out=$2 ;; esac; shift; done
mkdir -p "$out" && cp "{made}/$seed.json" "$out/report.json" && exit "$(cat "{made}/$seed.code")"
"""


def workflows():
    return [
        yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", PAGE.read_text("utf-8"), re.S)
    ]


def github_steps():
    """The shell steps of the first workflow, without those that call GitHub or install."""
    steps = next(iter(workflows()[0]["jobs"].values()))["steps"]
    return [step["run"] for step in steps if "run" in step and not re.match(r"gh |pip ", step["run"])]


def repeats(directory, *codes):
    """Reports of five repeats with these exit codes, and the stand-in that gives them out."""
    made, tools = directory / "made", directory / "bin"
    tools.mkdir(parents=True)
    verdicts = {0: "pass", 3: "fail", 4: "inconclusive"}
    for seed, code in enumerate(codes, 1):
        write_text(made / f"{seed}.code", str(code))
        write_text(
            made / f"{seed}.json", report_json(capacity_report(verdict=verdicts.get(code), exit_code=code))
        )
    tool = tools / "metronome"
    tool.write_text(STAND_IN.format(python=sys.executable, made=made))
    tool.chmod(0o755)


def gitlab_steps():
    """The script of the GitLab job."""
    return workflows()[1]["capacity"]["script"]


def run_steps(directory, steps):
    """Exit code of each step; a later step runs whatever came before, as `if: always()` has it."""
    here = str(Path(__file__).parents[2])
    environment = {
        **os.environ, "PATH": f"{directory / 'bin'}:{os.environ['PATH']}", "PYTHONPATH": here,
        "GITHUB_STEP_SUMMARY": str(directory / "summary.md"),
    }  # fmt: skip
    return [
        subprocess.run(["bash", "-e", "-c", step], cwd=directory, env=environment, check=False).returncode
        for step in steps
    ]


@pytest.mark.parametrize(
    ("codes", "ends"),
    [((0, 0, 0, 0, 0), [0, 0, 0]), ((0, 3, 4, 0, 0), [0, 3, 0]), ((0, 1, 0, 0, 0), [1, 0, 0])],
)
def test_the_steps_survive_failed_and_inconclusive_repeats(tmp_path, codes, ends):
    repeats(tmp_path, *codes)
    for seed in range(5):
        write_text(tmp_path / "baseline" / str(seed) / "report.json", report_json(capacity_report()))
    assert run_steps(tmp_path, github_steps()) == ends
    assert len(list((tmp_path / "runs").iterdir())) == (5 if ends[0] == 0 else 2)
    assert (tmp_path / "summary.md").read_text().startswith("### metronome: ")


def test_the_first_run_of_a_branch_passes_without_a_baseline(tmp_path):
    repeats(tmp_path, 0, 0, 0, 0, 0)
    assert run_steps(tmp_path, github_steps()) == [0, 0, 0]
    assert "No baseline" in (tmp_path / "summary.md").read_text()


@pytest.mark.parametrize(("codes", "ends"), [((0, 0, 0, 0, 0), [0, 0]), ((4, 3, 4, 0, 3), [0, 3])])
def test_the_gitlab_job_judges_all_repeats_together(tmp_path, codes, ends):
    repeats(tmp_path, *codes)
    for seed in range(5):
        write_text(tmp_path / "baseline" / str(seed) / "report.json", report_json(capacity_report()))
    assert run_steps(tmp_path, gitlab_steps()) == ends
    assert (tmp_path / "comparison.md").read_text().startswith("### metronome: ")


def test_both_workflows_keep_their_runs():
    github, gitlab = workflows()
    steps = github["jobs"]["capacity"]["steps"]
    assert any("upload-artifact" in str(step.get("uses")) and step["if"] == "always()" for step in steps)
    assert gitlab["capacity"]["artifacts"]["when"] == "always"
