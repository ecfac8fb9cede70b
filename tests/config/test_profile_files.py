"""Profiles from files: every mistake becomes one UsageError with file, key, value and what is allowed."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from metronome_cli.config.profile import Profile
from metronome_cli.config.profile_files import load_profile, profile_names
from metronome_cli.config.validation import validate
from metronome_cli.core.errors import UsageError
from metronome_cli.core.package_data import data_dir

SMOKE: dict[str, Any] = yaml.safe_load((data_dir("profiles") / "smoke.yaml").read_text())


def changed(dotted: str, value: Any) -> dict[str, Any]:
    """The smoke profile with one key set, or taken away where the value is None."""
    data = copy.deepcopy(SMOKE)
    *path, last = dotted.split(".")
    at = data
    for key in path:
        at = at.setdefault(key, {})
    if value is None:
        del at[last]
    else:
        at[last] = value
    return data


@pytest.mark.parametrize(("key", "value", "says", "hints"), [
    ("shape.layres", 2, "unknown key 'shape.layres'", "did you mean shape.layers?"),
    ("polcy", "unbounded", "unknown key 'polcy'", "did you mean policy?"),
    ("shape.zzz", 2, "unknown key 'shape.zzz'", "known: layers, heads"),
    ("shape.layers", None, "shape.layers is missing", ""),
    ("shape.layers", 0, "shape.layers is 0; it must be greater than or equal to 1", ""),
    ("shape.layers", "2", "shape.layers is '2'; it must be a valid integer", ""),
    ("shape.layers", True, "shape.layers is True; it must be a valid integer", ""),
    ("title", "a\x1b[31mb", r"title: 'a\x1b[31mb': \x1b cannot be printed", ""),
    ("description", "a\u202eb", r"description: 'a\u202eb': \u202e cannot be printed", ""),
    ("notes", ["fine", "a\rb"], r"notes.1: 'a\rb': \r cannot be printed", ""),
    ("sources", [{"what": "a\x07", "where": "b"}], r"sources.0.what: 'a\x07': \x07 cannot be printed", ""),
    ("stages", [{"name": "a\x9b", "kind": "state", "state_bytes": 1}], r"stages.0.name: 'a\x9b': \x9b cannot", ""),
    ("adapter_options", {"a": "b\x1bc"}, r"\x1b cannot be printed", ""),
    ("shape.head_dim", 1, "shape.head_dim is 1; rotary positions need an even number", ""),
    ("shape.head_dim", 33, "shape.head_dim is 33; rotary positions need an even number", ""),
    ("shape.kv_heads", 3, "shape: heads must be a multiple of kv_heads", ""),
    ("shape.dtype", "bfloat", "shape.dtype is 'bfloat'; it must be one of: float32", "did you mean bfloat16?"),
    ("frame.period", 80, "frame.period: 80: a number needs its unit here, such as 80ms", ""),
    ("frame.period", "80 parsecs", "frame.period: '80 parsecs' is not a duration", "80ms, 2s, 10m"),
    ("frame.period", "90ms", "frame: period must be a whole number of 20 ms client chunks", ""),
    ("frame.period", "0ms", "frame.period", ""),
    ("tokens.prefill", float("inf"), "tokens.prefill is inf", ""),
    ("tokens.prefill", float("nan"), "tokens.prefill is nan", ""),
    ("turn_taking.speaking_share", "150%", "turn_taking.speaking_share: '150%' is not a fraction", "percentage"),
    ("policy", "windw(64)", "policy: 'windw(64)' is not a policy", "window(W, S)"),
    ("policy", "window(9000, 16)", "policy window(9000, 16) is wider than shape.context_length, 8192", ""),
    ("objectives", ["p9x<80ms"], "objectives.0: objective 'p9x<80ms': unknown metric", "did you mean p99?"),
    ("objectives", "p99<80ms", "objectives is 'p99<80ms'; it must be a list", ""),
    ("kv_pool.bytes", "1GiB", "kv_pool: give exactly one of bytes and blocks", ""),
    ("clock", "virtul", "clock is 'virtul'; it must be one of: real, virtual", "did you mean virtual?"),
    ("name", "Two Words", "name is 'Two Words'; it must match", ""),
    ("prompt_tokens", 10_000, "prompt_tokens is 10000; it must be below shape.context_length", ""),
    ("verified", False, "need each other", ""),
    ("stages", [{"name": "talker", "kind": "paged"}], "stage talker: kind paged needs kv_bytes_per_position", ""),
    ("stages", [{"name": "s", "kind": "state", "limt": 3}], "unknown key 'stages.0.limt'", "stages.0.limit"),
])  # fmt: skip
def test_a_mistake_names_its_key_and_what_is_allowed(key: str, value: Any, says: str, hints: str) -> None:
    with pytest.raises(UsageError) as caught:
        validate(Profile, changed(key, value), "mine.yaml")
    assert caught.value.message.startswith("mine.yaml: ")
    assert says in caught.value.message
    assert hints in (caught.value.hint or "")


def test_all_mistakes_are_told_at_once_and_a_misspelt_key_is_not_also_missing() -> None:
    data = changed("shape.layers", None)
    data["shape"] |= {"layres": 2, "vocab_size": -1}
    with pytest.raises(UsageError) as caught:
        validate(Profile, data, "mine.yaml")
    assert caught.value.message == (
        "mine.yaml: 2 mistakes\n"
        "  shape.vocab_size is -1; it must be greater than or equal to 1\n"
        "  unknown key 'shape.layres'"
    )


def test_text_in_any_script_and_on_several_lines_is_text() -> None:
    for text in ("Stimme (zwei Zeilen)\nund mehr", "\u8a9e\u3000\u97f3", "\u0635\u0648\u062a", "a\u00a0b"):
        assert validate(Profile, changed("description", text), "mine.yaml").description == text


def test_a_profile_is_read_back_from_its_numbers() -> None:
    for name in profile_names():
        profile = load_profile(name)
        assert Profile.from_numbers(profile.model_dump(mode="json")) == profile


def test_a_file_is_found_by_path_and_a_name_among_the_shipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = changed("name", "own")
    (tmp_path / "own.yaml").write_text(yaml.safe_dump(own))
    (tmp_path / "smoke").write_text("not a profile")
    monkeypatch.chdir(tmp_path)
    assert load_profile("own.yaml").name == "own"
    assert load_profile("./own.yaml").name == "own"
    assert load_profile(tmp_path / "own.yaml").name == "own"
    assert load_profile("smoke").name == "smoke"


@pytest.mark.parametrize(("name", "says", "hints"), [
    ("defualt", "no profile is called 'defualt'", "did you mean default?"),
    ("Moshi", "no profile is called 'Moshi'", "did you mean moshi?"),
    ("qwen3omni30b", "no profile is called", "did you mean qwen3-omni-30b?"),
    ("zzzz", "no profile is called 'zzzz'", "metronome profiles list"),
    ("../profiles/nothing", "No such file", ""),
    ("/", "not a regular file", ""),
    ("", "has no name", ""),
    ("a/" + "x" * 5000, "File name too long", ""),
])  # fmt: skip
def test_a_name_that_is_not_there(name: str, says: str, hints: str) -> None:
    with pytest.raises(UsageError) as caught:
        load_profile(name)
    assert says in caught.value.message
    assert hints in (caught.value.hint or "")


PATHS = [
    f"{key}.{inner}" for key, value in SMOKE.items() if isinstance(value, dict) for inner in value
] + list(SMOKE)
SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=20), st.lists(st.integers(), max_size=3),
    st.dictionaries(st.text(max_size=5), st.integers(), max_size=2), st.dates(), st.binary(max_size=4),
)  # fmt: skip


@given(st.sampled_from(PATHS), SCALARS)
def test_any_value_anywhere_is_valid_or_one_usage_error(path: str, value: Any) -> None:
    said = "mine.yaml: "
    try:
        validate(Profile, changed(path, value), "mine.yaml")
    except UsageError as error:
        said = error.message
    assert said.startswith("mine.yaml: ")
    assert len(said) < 2000


@given(
    st.recursive(SCALARS, lambda inner: st.dictionaries(st.sampled_from([*SMOKE, "x"]), inner, max_size=8))
)
def test_any_shape_of_data_is_valid_or_one_usage_error(data: Any) -> None:
    if isinstance(data, dict):
        with pytest.raises(UsageError):
            validate(Profile, data, "mine.yaml")
