"""Who decides a setting: default < profile < file < environment < flag; unknown names are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from metronome_cli.backends.websocket.endpoint import SessionTimeouts
from metronome_cli.capacity.plan import DEFAULT_ARRIVALS_PER_S, DEFAULT_OFFERED
from metronome_cli.capacity.time_budget import DEFAULT_PERIOD_S, DEFAULT_S
from metronome_cli.commands.plan_capacity import IDLE_PERIODS
from metronome_cli.config.settings import resolve
from metronome_cli.config.settings_table import OTHER_VARIABLES, SETTINGS
from metronome_cli.core.errors import UsageError


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "run.yaml"
    path.write_text("policy: window(100, 4)\nseed: 3\nslo: [p99<70ms, 'empty<2%']\n")
    return path


def test_each_source_overrides_the_ones_below_it(config: Path) -> None:
    flags: dict[str, object] = {}
    environ: dict[str, str] = {}
    seen = [resolve(flags, environ)]
    flags["config"] = config
    seen.append(resolve(flags, environ))
    environ["METRONOME_POLICY"] = "window(90, 4)"
    seen.append(resolve(flags, environ))
    flags["policy"] = "window(80, 4)"
    seen.append(resolve(flags, environ))
    assert [settings["policy"] for settings in seen] == [
        "window(128, 16)", "window(100, 4)", "window(90, 4)", "window(80, 4)",
    ]  # fmt: skip
    assert [settings.values["policy"].origin for settings in seen] == [
        "profile default", str(config), "METRONOME_POLICY", "--policy",
    ]  # fmt: skip
    assert [settings.profile.policy for settings in seen] == [settings["policy"] for settings in seen]
    assert [settings.given("policy") for settings in seen] == [False, True, True, True]


def test_a_variable_can_name_the_settings_file(config: Path) -> None:
    settings = resolve({}, {"METRONOME_CONFIG": str(config)})
    assert settings["seed"] == 3
    assert [str(objective) for objective in settings["slo"]] == ["p99<70ms", "empty<2%"]


def test_overrides_reach_the_profile() -> None:
    settings = resolve(
        {
            "kv_pool": "1GiB",
            "speaking_share": "25%",
            "session_length": "5m",
            "slo": ["p99<60ms"],
            "max_batch_size": 8,
        },
        {},
    )
    profile = settings.profile
    assert profile.kv_pool is not None
    assert (profile.kv_pool.bytes, profile.kv_pool.blocks, profile.kv_pool.block_size) == (2**30, None, 16)
    assert (profile.turn_taking.speaking_share, profile.session_length, profile.max_batch_size) == (
        0.25,
        300.0,
        8,
    )
    assert profile.objectives == ("p99<60ms",)


def test_flags_not_given_are_none_false_or_empty() -> None:
    settings = resolve({"policy": None, "soak": False, "slo": [], "audio": ()}, {"METRONOME_SOAK": "yes"})
    assert settings["soak"] is True
    assert settings.values["slo"].origin == "profile default"


def test_lists_in_variables() -> None:
    settings = resolve({}, {"METRONOME_SLO": "p99<60ms,empty<1%", "METRONOME_AUDIO": "a:b"})
    assert [str(objective) for objective in settings["slo"]] == ["p99<60ms", "empty<1%"]
    assert settings["audio"] == (Path("a"), Path("b"))


@pytest.mark.parametrize(("flags", "environ", "text", "says", "hints"), [
    ({}, {"METRONOME_POLCY": "x"}, "", "unknown environment variable METRONOME_POLCY", "METRONOME_POLICY?"),
    ({}, {"METRONOME_SEED": "x"}, "", "METRONOME_SEED: 'x' is not a whole number", "a whole number"),
    ({}, {}, "polcy: unbounded", "unknown key 'polcy'", "did you mean policy?"),
    ({}, {}, "session-length: 5m", "unknown key 'session-length'", "did you mean session_length?"),
    ({}, {}, "session_length: 5", "session_length: 5 has no unit", "number and a unit"),
    ({}, {}, "seed: 1.5", "seed: 1.5 is not a whole number", ""),
    ({}, {}, "soak: maybe", "soak: 'maybe' is neither true nor false", ""),
    ({"policy": "x"}, {}, "", "--policy: 'x' is not a policy", "window(W, S)"),
    ({"session_length": "0s"}, {}, "", "--session-length: '0s' is no time at all", "more than zero"),
    ({"clock": "virtul"}, {}, "", "--clock: 'virtul' is not known", "did you mean virtual?"),
    ({"policy": "window(70000, 16)"}, {}, "", "profile default with --policy: policy window(70000, 16) is wider", ""),
    ({"profile": "defualt"}, {}, "", "no profile is called 'defualt'", "did you mean default?"),
    ({"arrival_rate": "8"}, {}, "", "--arrival-rate: '8' is not a rate", ""),
    ({"device_memory": "0GiB"}, {}, "", "--device-memory: '0GiB' is no memory at all", ""),
])  # fmt: skip
def test_errors_name_the_source_and_what_is_allowed(tmp_path, flags, environ, text, says, hints) -> None:
    if text:
        (tmp_path / "run.yaml").write_text(text)
        flags = flags | {"config": tmp_path / "run.yaml"}
    with pytest.raises(UsageError) as caught:
        resolve(flags, environ)
    assert says in caught.value.message
    assert hints in (caught.value.hint or "")


def test_every_setting_says_who_gave_it() -> None:
    for key, entry in resolve({}, {}).as_dict().items():
        assert key in SETTINGS
        assert isinstance(entry, dict)
        assert entry["from"] in ("default", "profile default")


def test_names_of_variables_and_flags_follow_the_key() -> None:
    row = SETTINGS["session_length"]
    assert (row.flag, row.variable) == ("--session-length", "METRONOME_SESSION_LENGTH")
    variables = [row.variable for row in SETTINGS.values()] + list(OTHER_VARIABLES)
    assert len(set(variables)) == len(variables)


def test_what_holds_where_nothing_is_given_is_what_the_program_takes() -> None:
    shown = {key: row.default_text for key, row in SETTINGS.items()}
    assert shown["search_time"].startswith(f"{DEFAULT_S:g}s,")
    assert f"over {DEFAULT_PERIOD_S * 1e3:g} ms" in shown["search_time"]
    assert shown["offered_sessions"] == str(DEFAULT_OFFERED)
    assert shown["arrival_rate"] == f"{DEFAULT_ARRIVALS_PER_S:g}/s"
    assert shown["idle_timeout"] == f"{SessionTimeouts().idle_s:g}s, or {IDLE_PERIODS} periods if longer"
    assert all(row.default is None for row in SETTINGS.values() if row.otherwise)
