"""The collapse on vLLM itself, on a processor: its instant, its silence, the window that prevents it, and what dies.

Runs where `.ci/peers.sh vllm` has made the peer's environment. The model is two small random layers; 4 sessions add 16
positions each every 80 ms.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent.parent
PYTHON = ROOT / ".peers" / "vllm" / "bin" / "python"
pytestmark = pytest.mark.skipif(not PYTHON.exists(), reason="no environment of the peer: .ci/peers.sh vllm")

SESSIONS, PER_FRAME, PERIOD_S, BLOCK = 4, 16, 0.08, 32
PATIENCE_S = 400


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Llama of two layers with a tokenizer of as many words as it has rows."""
    from tokenizers import Tokenizer, models
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    folder = tmp_path_factory.mktemp("model")
    config = LlamaConfig(
        vocab_size=512, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=32, max_position_embeddings=16384, dtype="float32",
    )  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(folder)
    words = {f"w{place}": place for place in range(512)}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="w0"))
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="w0").save_pretrained(folder)
    return folder


def profile(
    folder: Path,
    *,
    blocks: int,
    policy: str = "unbounded",
    context_length: int = 16384,
    period_s: float = PERIOD_S,
) -> Path:
    path = folder / "duplex.yaml"
    path.write_text(
        f"""
name: duplex
title: a small decoder, 12 tokens in and 4 out
adapter: decoder
frame: {{period: {period_s}s, sample_rate: 16000, max_backlog: 500}}
tokens: {{prefill: 12, decode: {{listening: 4, speaking: 4}}}}
shape: {{layers: 2, heads: 4, kv_heads: 2, head_dim: 32, hidden_size: 64, intermediate_size: 128,
         vocab_size: 512, dtype: float32,
  context_length: {context_length}}}
kv_pool: {{blocks: {blocks}, block_size: {BLOCK}}}
policy: {policy}
objectives: ["empty<1%"]
"""
    )
    return path


def command(name: str, *arguments: str | Path) -> list[str]:
    return [str(PYTHON), "-W", "ignore", "-m", "metronome_cli", name, *map(str, arguments), "--json"]


def capacity(folder: Path, model: Path, length: str, **shape: Any) -> list[str]:
    return command(
        "capacity", "--backend", "vllm", "--profile", profile(folder, **shape), "--weights", model,
        "--sessions", str(SESSIONS), "--session-length", length, "--output", folder / "run", "--soak", "--ui", "none",
        "--vllm-arg", "enforce_eager=true", "--vllm-arg", "dtype=float32",
    )  # fmt: skip


def measured(arguments: list[str]) -> tuple[dict[str, Any], int]:
    """The report on stdout, and nothing else there; the exit code."""
    environ = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        arguments, cwd=ROOT, env=environ, capture_output=True, text=True, check=False, timeout=PATIENCE_S
    )
    assert done.stdout.startswith("{"), done.stderr[-3000:]
    return json.loads(done.stdout), done.returncode


def test_the_collapse_comes_at_the_forecast_time_and_in_silence(model: Path, tmp_path: Path) -> None:
    blocks, period_s = 660, 0.16  # a slow machine keeps this beat
    report, code = measured(capacity(tmp_path, model, "90s", blocks=blocks, period_s=period_s))
    point = report["capacity"]["trials"][0]
    assert (code, report["verdict"], point["ended_by"], point["limited_by"]) == (
        3,
        "fail",
        "pool_full",
        "memory",
    )
    by_profile_s = blocks * BLOCK / (SESSIONS * PER_FRAME) * period_s  # 52.8 s
    full_s = point["pool_full_at_s"]
    assert full_s == pytest.approx(by_profile_s, rel=0.05)

    expected, _ = measured(command("predict", "trace", tmp_path / "run", "--fit-share", "30%"))
    assert expected["forecast"]["fill_time_s"]["estimate"] == pytest.approx(full_s, rel=0.05)

    collapse = point["collapse"]
    assert collapse["occupancy"] > 0.99
    assert (collapse["running"], collapse["waiting"]) == (0, 0)
    assert collapse["last_output_s"] == pytest.approx(full_s, abs=1.0)
    assert point["empty_frames"] > SESSIONS * 5
    assert point["sessions_fell_behind"] == 0
    before = [window for window in point["windows"] if window["t_s"] < full_s - 1]
    assert all(window["empty_frames"] == 0 for window in before)
    assert report["backend"]["version"].startswith("0.32")
    assert report["backend"]["arguments"]["enforce_eager"] is True


def test_under_a_window_it_does_not_come(model: Path, tmp_path: Path) -> None:
    """The same load would fill this pool in 10 s."""
    report, _ = measured(capacity(tmp_path, model, "20s", blocks=250, policy="window(256)"))
    point = report["capacity"]["trials"][0]
    assert point["ended_by"] in ("completed", "load_generator")  # the latter where this machine is busy
    assert (point["pool_full_at_s"], point["collapse"], point["empty_frames"]) == (None, None, 0)
    plateau = [
        window["occupancy"] for window in point["windows"][:-1] if window["t_s"] > 5
    ]  # the last: all left
    assert max(plateau) <= SESSIONS * 10 / 250
    assert max(plateau) - min(plateau) < 0.02
    assert report["backend"]["window"] in {
        f"kept: {blocks} blocks held after 704 positions" for blocks in (8, 9, 10)
    }


def test_a_session_that_fills_the_context_takes_the_engine_with_it(model: Path, tmp_path: Path) -> None:
    report, code = measured(capacity(tmp_path, model, "30s", blocks=800, context_length=1000))
    point = report["capacity"]["trials"][0]
    assert (code, report["status"], report["error"]) == (3, "complete", None)
    assert (point["ended_by"], point["limited_by"]) == ("context_limit", "context_length")
    assert point["sessions_ended_early"]["context_limit"] >= 1
    assert sum(point["sessions_ended_early"].values()) == SESSIONS
    assert point["duration_s"] == pytest.approx(1000 / PER_FRAME * PERIOD_S, abs=2.0)
    assert point["frames"] > 0


@pytest.fixture
def running(model: Path, tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    arguments = capacity(tmp_path, model, "60s", blocks=2000)
    environ = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        arguments, cwd=ROOT, env=environ, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    yield process
    process.kill()
    process.communicate()


def test_a_killed_worker_ends_the_run_with_the_reason_and_the_report(
    running: subprocess.Popen[str], tmp_path: Path
) -> None:
    events = tmp_path / "run" / "events.jsonl"
    deadline = time.monotonic() + PATIENCE_S
    while not (events.exists() and events.read_text().count('"window"') >= 2):
        assert running.poll() is None, "it ended before it was measuring"
        assert time.monotonic() < deadline
        time.sleep(0.5)
    workers = [pid for pid in descendants(running.pid) if "Worker" in name_of(pid)]
    assert workers
    os.kill(workers[0], signal.SIGKILL)
    report = json.loads(running.communicate(timeout=120)[0])
    point = report["capacity"]["trials"][0]
    assert (running.returncode, report["status"], point["ended_by"]) == (1, "failed", "backend_error")
    assert report["error"].startswith("vLLM's engine stopped: Worker proc VllmWorker-0 died unexpectedly")
    assert point["reason"] == report["error"]
    assert point["frames"] > 0
    assert descendants(running.pid) == []


def descendants(pid: int) -> list[int]:
    """Processes below that one."""
    parents = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
    found, border = [], {pid}
    while border:
        border = {child for child, parent in parents.items() if parent in border}
        found += sorted(border)
    return found


def name_of(pid: int) -> str:
    try:
        return (Path("/proc") / str(pid) / "cmdline").read_text().replace("\0", " ")
    except OSError:
        return ""
