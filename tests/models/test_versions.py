"""An older `transformers`, as an environment of vLLM may pin it, is refused by name."""

import pytest

from metronome_cli.core.errors import UsageError
from metronome_cli.models.weights.versions import need_transformers


@pytest.mark.parametrize("found", ["5.20.0", "5.24.1", "6.0.0", "5.20.0.dev0"])
def test_new_enough(found):
    need_transformers(found)


@pytest.mark.parametrize("found", ["5.19.0", "4.57.3", "5.9", "0"])
def test_too_old(found):
    with pytest.raises(UsageError, match=found) as caught:
        need_transformers(found)
    assert "--backend vllm" in caught.value.hint


def test_what_is_installed_here_will_do():
    need_transformers()
