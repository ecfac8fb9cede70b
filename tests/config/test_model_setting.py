"""`--model`: a decoder in a profile's place."""

from __future__ import annotations

import pytest

from metronome_cli.config.profile import Profile
from metronome_cli.config.profile_files import load_profile
from metronome_cli.config.settings import resolve
from metronome_cli.core.errors import UsageError


def made_of(model: str) -> Profile:
    return load_profile("smoke").model_copy(update={"name": f"of-{model}"})


def test_a_models_profile_takes_the_named_ones_place_and_flags_override_it() -> None:
    settings = resolve({"model": "m", "policy": "window(64, 4)"}, {}, from_model=made_of)
    assert (settings.profile.name, settings.profile.policy) == ("of-m", "window(64, 4)")
    assert not settings.given("weights")


def test_a_model_and_a_profile_contradict_each_other() -> None:
    with pytest.raises(UsageError, match="--model and METRONOME_PROFILE both say what runs"):
        resolve({"model": "m"}, {"METRONOME_PROFILE": "smoke"}, from_model=made_of)


def test_a_command_that_runs_no_model_says_so() -> None:
    with pytest.raises(UsageError, match="--model: this command runs no model"):
        resolve({"model": "m"}, {})
