"""What is refused before a model is loaded."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from metronome_cli.backends import memory_check
from metronome_cli.backends.in_process.engine import InProcessModel
from metronome_cli.backends.memory_check import FreeMemory, check_memory, free_memory, memory_need, shortage
from metronome_cli.cli.main import run
from metronome_cli.config.model_shape import KvPoolSpec
from metronome_cli.config.profile_files import load_profile
from metronome_cli.core.errors import UsageError

GIB = 2**30


def having(size: int) -> object:
    return lambda device: FreeMemory("this machine", size)


def test_moshi_is_refused_on_a_small_machine_before_torch_is_there() -> None:
    code = (
        "import sys; from metronome_cli.backends import memory_check as m; "
        "m.available_memory = lambda: 14 * 2**30; from metronome_cli.cli.main import run; "
        "code = run(['capacity', '--profile', 'moshi', '--device', 'cpu', '--ui', 'none']); "
        "assert 'torch' not in sys.modules, 'loaded'; sys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith("error: moshi needs about ")
    assert "this machine has 14 GiB free" in done.stderr
    assert "predict --profile moshi --gpu h100" in done.stderr.replace("\n", " ")
    assert "--profile moshi-tiny" in done.stderr.replace("\n", " ")


def test_the_dry_run_says_so_too(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["capacity", "--profile", "moshi", "--device", "cpu", "--dry-run"]
    monkeypatch.setattr(memory_check, "available_memory", lambda: 14 * GIB)
    assert run(argv) == 0
    assert "moshi needs about" in capsys.readouterr().out
    monkeypatch.setattr(memory_check, "available_memory", lambda: 140 * GIB)
    assert run(argv) == 0
    assert "needs about" not in capsys.readouterr().out


@pytest.mark.parametrize("name", ["smoke", "default", "qwen2.5-omni-tiny"])
def test_a_model_takes_what_was_computed(name: str) -> None:
    profile = load_profile(name)
    model = InProcessModel.load(profile, device="cpu", seed=0, weights=None)
    described = model.fresh_engine(profile, 1).describe()
    need = memory_need(profile)
    assert 4 * described["parameters"] <= need.weights
    assert described["pool_bytes"] == need.pool


def test_a_device_keeps_the_profile_s_dtype_and_a_processor_has_float32() -> None:
    profile = load_profile("moshi")
    on_device, on_cpu = memory_need(profile, on_cpu=False), memory_need(profile)
    assert on_device.weights == profile.shape.weight_bytes
    assert on_cpu.weights == 2 * on_device.weights


def test_what_is_free_is_enough_and_a_byte_less_is_not() -> None:
    profile = load_profile("smoke")
    need = memory_need(profile).total
    check_memory(profile, "cpu", free=having(need))  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="smoke needs about"):
        check_memory(profile, "cpu", free=having(need - 1))  # type: ignore[arg-type]


def test_a_pool_that_is_the_reason_is_named() -> None:
    profile = load_profile("smoke").model_copy(update={"pool": KvPoolSpec(blocks=2**28)})
    message, hint = shortage(profile, memory_need(profile), FreeMemory("this machine", 4 * GIB))
    assert "KV pool" in message
    assert "smaller KV pool" in hint


def test_free_memory_is_no_more_than_the_machine_has() -> None:
    size = free_memory("cpu").size
    assert size is not None
    assert size > 0


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_free_memory_of_a_device() -> None:
    size = free_memory("cuda").size
    assert size is not None
    assert size <= torch.cuda.get_device_properties(0).total_memory
