"""`predict` from a profile and from a checkpoint: the report says what was asked, on what grounds."""

from __future__ import annotations

import json
import re
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metronome_cli.commands.predict.checkpoint_size import tensor_bytes, weights_in
from metronome_cli.commands.predict.from_checkpoint import SteadyLoad, load_from, read_checkpoint
from metronome_cli.commands.predict.from_profile import ForecastPlan, predict_profile
from metronome_cli.config.profile import Profile
from metronome_cli.config.profile_files import load_profile
from metronome_cli.core.errors import UsageError
from metronome_cli.forecast.pool_forecast import DEFAULT_CONFIDENCE
from metronome_cli.report.plain_text import render_text
from metronome_cli.report.report_file import report_json
from metronome_cli.results.run_report import Report
from tests.forecast.profiles import profile
from tests.forecast.test_memory import QWEN3

GIB = 2**30
RESETTING = {
    "name": "talker", "kind": "paged", "kv_bytes_per_position": 1024, "resets": "turn", "limit": 4096,
    "positions_per_s": {"listening": 0, "speaking": 50.0},
}  # fmt: skip


def ask(sessions: int = 16, **keys: Any) -> Report:
    plan = {"profile": profile(), "sessions": sessions, "session_length_s": 300.0} | keys
    return predict_profile(ForecastPlan(**plan))


def test_the_report_holds_the_answer_and_survives_json() -> None:
    report = ask()
    assert report.forecast is not None
    assert report.forecast.limited_by == "pool"
    assert report.forecast.fill_time_s.estimate == pytest.approx(2000 * 16 / (16 * 26.5), rel=0.05)
    assert report.exit_code == 0
    again = Report.model_validate_json(report_json(report))
    assert again.forecast == report.forecast


def test_every_assumption_is_listed() -> None:
    said = " ".join(ask(over_s=30.0, occupied=0.1).forecast.assumptions)  # type: ignore[union-attr]
    for figure in ("2,000 blocks of 16", "14 positions in", "25 speaking", "50 %", "8 s", "30 s", "10 %"):
        assert figure in said, figure


@pytest.mark.parametrize(("within_s", "code"), [(60.0, 0), (120.0, 3)])
def test_fail_within_decides_the_exit_code(within_s: float, code: int) -> None:
    assert ask(fail_within_s=within_s).exit_code == code


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"sessions": 0}, "is too small"), ({"occupied": 1.0}, "leaves no pool"), ({"confidence": 0.2}, "confidence"),
        ({"session_length_s": 0.9}, "before its first frame"), ({"memory_share": 0.0, "memory": GIB}, "memory share"),
        ({"profile": profile(kv_pool=None)}, "no pool"),
    ],
)  # fmt: skip
def test_quantities_that_make_no_sense_are_refused(keys: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        ask(**keys)


def test_memory_makes_the_pool_and_lists_the_way() -> None:
    report = ask(profile=profile(kv_pool=None), memory=8 * GIB)
    assert report.forecast is not None
    assert report.forecast.memory[0].bytes == 8 * GIB
    assert report.forecast.memory[-1].what == "KV pool"


def test_a_collapse_seen_elsewhere_implies_a_pool_that_explains_it() -> None:
    report = ask(sessions=96, seen_t_sat_s=99.0)
    assert report.forecast is not None
    assert report.forecast.implied_pool is not None
    pool_tokens = report.forecast.implied_pool.pool_tokens
    assert pool_tokens is not None
    again = ask(sessions=96, profile=profile(kv_pool={"blocks": pool_tokens // 16}))
    assert again.forecast is not None
    assert again.forecast.fill_time_s.estimate == pytest.approx(99.0, rel=0.01)


def test_without_a_pool_the_collapse_is_explained_and_nothing_forecast() -> None:
    report = ask(sessions=96, seen_t_sat_s=99.0, profile=profile(kv_pool=None))
    assert report.forecast is not None
    assert report.forecast.fill_time_s.estimate is None
    assert report.forecast.implied_pool is not None
    assert report.forecast.implied_pool.pool_tokens == pytest.approx(96 * 99 * 26.5, rel=0.05)
    assert "imply a pool of" in report.summary


@pytest.mark.parametrize(("keys", "says"), [
    ({"sessions": 128}, "at 155.3 s; a session of 5 min sees it with a probability of >99.9 %."),
    ({"sessions": 128}, "128 sessions fill the pool at "),
    ({"sessions": 128}, ", limited by the pool."),
    ({"sessions": 1, "kv_pool": {"bytes": "900GiB"}, "session_length_s": 3600.0},
     "1 session reaches the end of the context at 2472 s; a session of 1 h sees it with a probability of >99.9 %."),
    ({"sessions": 2, "kv_pool": {"bytes": "900GiB"}, "session_length_s": 3600.0},
     "2 sessions reach the end of the context at 2472 s"),
    ({"sessions": 1, "policy": "window(64, 16)", "session_length_s": 9000.0},
     "1 session reaches the limit of stage talker at "),
    ({"sessions": 10}, "10 sessions hold for 5 min with a probability of >99.9 %; if continued, they would fill the "
                       "pool at 1979 s. Safe for 5 min: 66 sessions"),
    ({"sessions": 1, "policy": "window(64, 16)"},
     "1 session holds for 5 min with a probability of >99.9 %; if continued, it would reach the limit of stage talker"),
    ({"sessions": 1, "policy": "window(64, 16)", "stages": [RESETTING], "turn_taking": {"speaking_share": 0.5,
                                                                                        "mean_turn": 8.0}},
     "would reach the limit of stage talker at 86 h 17 min (90 % interval 6 h 24 min to 372 h 50 min)."),
    ({"sessions": 1, "policy": "ring(40000)", "kv_pool": {"bytes": "1GiB"}},
     "1 session does not fit: what it takes when it starts is more than the pool."),
])  # fmt: skip
def test_the_answer_reads_as_a_sentence(keys: dict[str, Any], says: str) -> None:
    shipped = load_profile("qwen3-omni-30b").model_dump(mode="json")
    changed = {key: keys[key] for key in keys if key in shipped}
    plain = {"session_length_s": 300.0} | {key: keys[key] for key in keys if key not in shipped}
    assert says in predict_profile(ForecastPlan(Profile.from_numbers(shipped | changed), **plain)).summary


def test_no_window_is_advised_where_a_further_stage_ends_the_run() -> None:
    shipped = load_profile("qwen3-omni-30b").model_dump(mode="json") | {"policy": "window(64, 16)"}
    plan = ForecastPlan(Profile.from_numbers(shipped), 1, session_length_s=7200.0)
    report = predict_profile(plan)
    assert report.forecast is not None
    assert (report.forecast.limited_by, report.forecast.fitting_window_tokens) == ("stage talker limit", None)
    assert "A window of" not in report.summary


def test_rings_that_do_not_fit_are_refused_from_the_start() -> None:
    report = ask(sessions=40, profile=profile(policy="ring(3000)"))
    assert report.forecast is not None
    assert report.forecast.fill_time_s.estimate == 0
    assert report.summary.startswith("40 sessions do not fit")
    assert report.forecast.max_sessions == 2000 // -(-3013 // 16)


@pytest.mark.parametrize(("pool", "label"), [("48GiB", "pool full"), ("900GiB", "ends")])
def test_only_a_pool_that_ends_the_run_is_called_full(pool: str, label: str) -> None:
    shipped = load_profile("qwen3-omni-30b").model_dump(mode="json") | {"kv_pool": {"bytes": pool}}
    sessions = 128 if label == "pool full" else 1
    report = predict_profile(ForecastPlan(Profile.from_numbers(shipped), sessions, session_length_s=3600.0))
    table = render_text(report).split("Forecast\n")[1]
    assert table.startswith(f"{label} ")


def rows_of(report: Report) -> dict[str, str]:
    """The forecast's table."""
    table = render_text(report).split("Forecast\n")[1].split("\n\n")[0]
    return {name.strip(): text.strip() for name, text in (line.split("  ", 1) for line in table.splitlines())}


def test_the_table_says_what_limits_within_the_session_and_what_comes_after_it() -> None:
    rows = rows_of(ask(2))
    assert rows["limited by, within 5 min"] == "nothing"
    assert rows["first hazard without an end"] == "pool"
    rows = rows_of(ask(16))
    assert rows["limited by, within 5 min"] == "pool"
    assert "first hazard without an end" not in rows
    assert rows_of(ask(40, profile=profile(policy="ring(3000)")))["pool full"] == "at once"


sizes = st.integers(0, 50)
cases = st.fixed_dictionaries(
    {
        "tokens": st.fixed_dictionaries(
            {
                "prefill": sizes,
                "decode": st.fixed_dictionaries({"listening": sizes, "speaking": sizes}),
                "fused": st.booleans(),
            }
        ),
        "turn_taking": st.fixed_dictionaries(
            {"speaking_share": st.floats(0, 1), "mean_turn": st.floats(0.01, 500).map(lambda t: f"{t:.4f}s")}
        ),
        "kv_pool": st.fixed_dictionaries(
            {"blocks": st.integers(1, 10**6), "block_size": st.sampled_from([1, 16, 256])}
        ),
        "policy": st.sampled_from(
            ["unbounded", "window(64, 16)", "window(5000)", "ring(100)", "recycle(300)"]
        ),
        "prompt_tokens": st.integers(0, 5000),
    }
)


@given(
    keys=cases, sessions=st.integers(1, 3000), length_s=st.floats(1.0, 1e5), occupied=st.floats(0, 0.99),
    over_s=st.sampled_from([0.0, 20.0]),
)  # fmt: skip
@settings(max_examples=60, deadline=None)
def test_whatever_is_asked_the_answer_makes_sense(
    keys: dict[str, Any], sessions: int, length_s: float, occupied: float, over_s: float
) -> None:
    report = ask(
        sessions, profile=profile(**keys), session_length_s=length_s, occupied=occupied, over_s=over_s
    )
    forecast = report.forecast
    assert forecast is not None
    assert forecast.collapse_probability is not None
    for probability in (forecast.collapse_probability, *(h.collapse_probability for h in forecast.hazards)):
        assert 0 <= probability <= 1
    assert (forecast.limited_by == "none") == (forecast.collapse_probability <= 1 - DEFAULT_CONFIDENCE)
    assert (forecast.first_hazard == "none") == (forecast.fill_time_s.estimate is None)
    assert forecast.max_sessions is None or (forecast.limited_by == "none") == (
        sessions <= forecast.max_sessions
    )
    assert not re.search(r"e[+-]\d", report.summary)
    span = [forecast.fill_time_s.low, forecast.fill_time_s.estimate, forecast.fill_time_s.high]
    known = [t for t in span if t is not None]
    assert known == sorted(known)
    assert all(later is None for later in span[len(known) :])
    assert Report.model_validate_json(report_json(report)).forecast == forecast


# -- checkpoints -----------------------------------------------------------------------------------


def checkpoint(directory: Path, config: dict[str, Any], shards: int = 2) -> Path:
    """A directory with a config and safetensors files of 1000 float32 each, headers and all."""
    directory.mkdir(exist_ok=True)
    (directory / "config.json").write_text(json.dumps(config))
    for shard in range(shards):
        header = {
            "__metadata__": {"format": "pt"},
            "a": {"dtype": "F32", "shape": [600], "data_offsets": [0, 2400]},
            "b": {"dtype": "F32", "shape": [400], "data_offsets": [2400, 4000]},
        }
        text = json.dumps(header).encode()
        blob = struct.pack("<Q", len(text)) + text + bytes(4000)
        (directory / f"model-{shard}.safetensors").write_bytes(blob)
    return directory


def test_weights_come_from_the_headers(tmp_path: Path) -> None:
    found = weights_in(checkpoint(tmp_path / "m", QWEN3))
    assert found is not None
    assert found.size == 8000
    assert "2 safetensors files" in found.how


def test_an_index_says_the_total(tmp_path: Path) -> None:
    directory = checkpoint(tmp_path / "m", QWEN3)
    (directory / "model.safetensors.index.json").write_text(
        '{"metadata": {"total_size": 12345}, "weight_map": {}}'
    )
    found = weights_in(directory)
    assert found is not None
    assert found.size == 12_345


def test_without_files_the_shape_says_it(tmp_path: Path) -> None:
    found = read_checkpoint(checkpoint(tmp_path / "m", QWEN3, shards=0), SteadyLoad.steady(27))
    assert found.weights.size == pytest.approx(16.4e9, rel=0.02)
    assert "shape" in found.weights.how


@pytest.mark.parametrize(
    "blob", [b"", b"\x05\x00\x00\x00\x00\x00\x00\x00nope!", b"\xff" * 64, struct.pack("<Q", 2) + b"{}"]
)
def test_what_is_no_safetensors_file_is_refused(tmp_path: Path, blob: bytes) -> None:
    file = tmp_path / "x.safetensors"
    file.write_bytes(blob)
    with pytest.raises(UsageError, match=r"x\.safetensors"):
        tensor_bytes(file)


def test_a_checkpoint_and_memory_forecast(tmp_path: Path) -> None:
    found = read_checkpoint(checkpoint(tmp_path / "m", QWEN3, shards=0), SteadyLoad.steady(27))
    plan = ForecastPlan(
        found.profile, sessions=64, session_length_s=300.0, memory=80 * GIB, weights=found.weights,
        source="config", notes=found.notes,
    )  # fmt: skip
    report = predict_profile(plan)
    assert report.forecast is not None
    pool = report.forecast.memory[-1].bytes
    assert report.forecast.fill_time_s.estimate == pytest.approx(pool / (144 * 1024) / (64 * 27), rel=0.03)
    assert found.profile.shape.kv_bytes_per_token == 144 * 1024


def test_a_profile_lends_its_load_to_another_shape(tmp_path: Path) -> None:
    found = read_checkpoint(checkpoint(tmp_path / "m", QWEN3), profile())
    assert found.profile.tokens == profile().tokens
    assert found.profile.shape.layers == 36


def test_a_latent_cache_costs_what_it_costs(tmp_path: Path) -> None:
    config = QWEN3 | {"kv_lora_rank": 512, "qk_rope_head_dim": 64}
    found = read_checkpoint(checkpoint(tmp_path / "m", config), SteadyLoad.steady(27))
    assert found.profile.shape.kv_bytes_per_token == 36 * 576 * 2


def test_no_config_no_guess(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no config\.json"):
        read_checkpoint(tmp_path, SteadyLoad.steady(27))
    (tmp_path / "config.json").write_text("[1, 2]")
    with pytest.raises(UsageError, match="not a JSON object"):
        read_checkpoint(tmp_path, SteadyLoad.steady(27))


def test_flags_make_one_load() -> None:
    assert load_from(None, None, None, None) is None
    assert load_from(None, None, None, 27.0) == SteadyLoad(1.0, 27.0)
    assert load_from(2.0, 28.0, (25, 1), None) == SteadyLoad(2.0, 28.0, listening=1, speaking=25)
    with pytest.raises(UsageError, match="excludes"):
        load_from(2.0, None, None, 27.0)
    with pytest.raises(UsageError, match="--prefill-tokens"):
        load_from(2.0, None, None, None)


def test_neither_torch_nor_transformers_is_needed() -> None:
    code = (
        "import sys; from metronome_cli.commands.predict.from_profile import *; "
        "from metronome_cli.config.profile_files import load_profile; "
        "predict_profile(ForecastPlan(load_profile('default'), sessions=16)); "
        "assert not {'torch', 'transformers'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
