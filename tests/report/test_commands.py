"""`metronome report` and `metronome compare` as a user calls them: output, files, exit codes."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from metronome_cli.cli.main import run
from metronome_cli.core.files import write_text
from metronome_cli.report.compare.compared_metrics import METRICS, find_metric
from metronome_cli.report.compare.gates import Gate
from metronome_cli.report.event_log import EventsFile
from metronome_cli.report.event_replay import CONDITIONS
from metronome_cli.report.report_file import report_json, write_report
from tests.report.builders import capacity_report, collapse_report, point


@pytest.fixture
def killed(tmp_path):
    """The directory of a run that was killed after one point."""
    events = EventsFile(tmp_path / "killed")
    given = capacity_report().model_dump(mode="json", by_alias=True)
    events.event("run_started", {key: given[key] for key in CONDITIONS})
    events.event("trial", point().model_dump(mode="json"))
    events.close()
    return tmp_path / "killed"


def test_report_prints_text_and_json(tmp_path, capsys):
    write_report(capacity_report(), tmp_path)
    assert run(["report", str(tmp_path)]) == 0
    assert capsys.readouterr().out.startswith("Safe concurrency: 24 sessions")
    assert run(["report", str(tmp_path / "report.json"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["capacity"]["safe_sessions"] == 24


def test_report_rebuilds_after_a_kill_and_saves_when_asked(killed, capsys):
    assert run(["report", str(killed)]) == 0
    assert "rebuilt from its events" in capsys.readouterr().out.replace("\n", " ")
    assert not (killed / "report.json").exists()
    assert run(["report", str(killed), "--save"]) == 0
    assert json.loads((killed / "report.json").read_text())["status"] == "interrupted"
    assert (killed / "report.html").exists()
    assert run(["report", str(killed), "--from-events", "--json"]) == 0


def test_report_converts(tmp_path):
    write_report(collapse_report(), tmp_path)
    files = [tmp_path / "out" / "page.html", tmp_path / "out" / "junit.xml"]
    assert run(["report", str(tmp_path), "--html", str(files[0]), "--junit", str(files[1])]) == 0
    assert all(file.stat().st_size > 500 for file in files)


@pytest.mark.parametrize("content", [None, "", "{}", '{"schema": "metronome.report/2"}'])
def test_what_is_no_report_exits_2_and_says_which_file(tmp_path, capsys, content):
    file = tmp_path / "report.json"
    if content is not None:
        file.write_text(content)
    assert run(["report", str(file)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "report.json" in err.replace("\n", "")


def test_compare_exits_by_its_gates(tmp_path, capsys):
    base = write_text(tmp_path / "base.json", report_json(capacity_report(24)))
    new = write_text(tmp_path / "new.json", report_json(capacity_report(23)))
    assert run(["compare", str(base), str(new)]) == 0
    assert run(["compare", str(base), str(new), "--fail-on", "safe_sessions:-1"]) == 3
    assert run(["compare", str(base), str(new), "--fail-on", "stage.none:5%"]) == 4
    assert run(["compare", str(base), str(new), "--fail-on", "p99"]) == 2
    missing = ["compare", str(tmp_path / "none"), str(new), "--fail-on", "p99:5%"]
    assert run(missing) == 2
    assert run([*missing, "--allow-missing-baseline"]) == 0
    capsys.readouterr()
    assert run(["compare", str(base), str(new), "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["state"] == "compared"
    assert run(["compare", str(base), str(new), "--format", "markdown"]) == 0
    assert capsys.readouterr().out.startswith("### metronome: ")


def test_compare_refuses_another_machine_unless_allowed(tmp_path, capsys):
    base = write_text(tmp_path / "base.json", report_json(capacity_report()))
    new = write_text(tmp_path / "new.json", report_json(capacity_report(environment={"cpu": "Other"})))
    assert run(["compare", str(base), str(new)]) == 2
    assert "--allow-mismatch" in capsys.readouterr().err
    assert run(["compare", str(base), str(new), "--allow-mismatch"]) == 0


def test_output_survives_an_ascii_console_and_a_reader_that_leaves(tmp_path):
    write_report(capacity_report(summary="Sicher: 24 Sitzungen für 10 min, übrigens"), tmp_path)
    command = [sys.executable, "-m", "metronome_cli", "report", str(tmp_path)]
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "NO_COLOR": "1", "TERM": "dumb"}
    done = subprocess.run(command, capture_output=True, env=environment, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.startswith(b"Sicher: 24 Sitzungen f?r 10 min")
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, env=environment, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize("broken", [b"", b"{", b'{"schema": "metronome.report/0"}'])
@pytest.mark.parametrize("named", ["killed", "killed/report.json"])
def test_a_report_that_cannot_be_read_beside_events_is_told_how_to_rebuild_it(
    killed, monkeypatch, capsys, broken, named
):
    monkeypatch.chdir(killed.parent)
    (killed / "report.json").write_bytes(broken)
    assert run(["report", named]) == 2
    err = capsys.readouterr().err
    assert err.startswith("error: killed/report.json: ")
    assert "hint: events.jsonl is beside it: metronome report killed --from-events makes another of it" in err
    assert run(["report", "killed", "--from-events"]) == 0


def test_these_commands_import_no_torch():
    code = (
        "import sys; from metronome_cli.cli.main import run; run(['report', '--help']); run(['compare', '--help']); "
        "bad = {'torch', 'matplotlib', 'scipy', 'transformers'} & set(sys.modules); sys.exit(bool(bad))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == 0


def test_every_metric_is_in_the_page_on_gates():
    page = (Path(__file__).parent.parent.parent / "docs" / "ci.md").read_text(encoding="utf-8")
    table = page.split("| metric |")[1].split("\n\n")[0]
    listed = re.findall(r"`([^`]+)`", "\n".join(line.split("|")[1] for line in table.splitlines()[2:]))
    assert set(listed) == {*METRICS, "stage.NAME"}
    for row in table.splitlines()[2:]:
        _, names, worse, changes, _ = row.split("|")
        for name in re.findall(r"`([^`]+)`", names):
            metric = find_metric(name)
            assert metric is not None
            assert worse.strip() == ("rises" if metric.better == "lower" else "falls")
            for change in re.findall(r"`([^`]+)`", changes):
                Gate.parse(f"{name}:{change}")


def test_a_home_that_cannot_be_written_makes_a_page_without_a_word(tmp_path):
    write_report(capacity_report(), tmp_path)
    nowhere = dict.fromkeys(("HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "MPLCONFIGDIR"), "/proc/nowhere")
    page = tmp_path / "page.html"
    command = [sys.executable, "-m", "metronome_cli", "report", str(tmp_path), "--html", str(page)]
    done = subprocess.run(command, capture_output=True, env={**os.environ, **nowhere}, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert "<svg" in page.read_text(encoding="utf-8")
