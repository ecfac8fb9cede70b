"""What is refused before a model is loaded."""

from __future__ import annotations

import pytest

from metronome_cli.backends.in_process import engine
from metronome_cli.capacity import in_process
from metronome_cli.capacity.in_process import load_model
from metronome_cli.cli.main import run
from metronome_cli.config.model_shape import KvPoolSpec
from metronome_cli.config.profile_files import load_profile
from metronome_cli.core.errors import UsageError
from metronome_cli.results.events import ObserverGroup

HAS = 4 * 2**30


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A machine of 4 GiB; names of the profiles whose models were loaded there, in vain."""
    names: list[str] = []

    def load(profile: object, **_: object) -> None:
        names.append(profile.name)  # type: ignore[attr-defined]
        raise MemoryError

    monkeypatch.setattr(in_process, "usable_memory", lambda: HAS)
    monkeypatch.setattr(engine, "load_adapter", load)
    return names


def test_a_pool_that_no_memory_holds_is_refused_before_the_model_is_loaded(
    loaded: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ["capacity", "--profile", "smoke", "--device", "cpu", "--ui", "none", "--pool", "1TiB"]
    assert run(argv) == 2
    out, err = capsys.readouterr()
    assert (out, loaded) == ("", [])
    assert err.startswith("error: a KV pool of 1 TiB is more than this machine has, 4 GiB\n\nhint: ")


@pytest.mark.parametrize(("blocks_more", "names"), [(0, ["smoke"]), (1, [])])
def test_a_pool_may_be_as_large_as_memory(blocks_more: int, names: list[str], loaded: list[str]) -> None:
    profile = load_profile("smoke")
    blocks = HAS // (16 * profile.shape.kv_bytes_per_token)
    asked = profile.model_copy(update={"pool": KvPoolSpec(blocks=blocks + blocks_more)})
    with pytest.raises(UsageError if blocks_more else Exception):
        load_model(asked, device="cpu", seed=0, weights=None, observer=ObserverGroup())
    assert loaded == names
