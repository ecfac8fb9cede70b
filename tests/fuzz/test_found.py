"""What fuzzing has found, each kept as it was first seen."""

import json
from contextlib import suppress

import pytest

from metronome_cli.commands.predict.checkpoint_size import tensor_bytes, weights_in
from metronome_cli.commands.predict.trace_files import read_recording
from metronome_cli.core.errors import MetronomeError, UsageError
from metronome_cli.forecast.checkpoint_config.read_config import read_config
from metronome_cli.protocols.prometheus_text import parse
from metronome_cli.protocols.server_metrics import read
from tests.fuzz.targets import CONFIGS


@pytest.mark.parametrize("text", ["\x1f", "\x1b[31mred", "\ud800", "\u202eleft", "\x00", "\r"])
def test_an_error_that_quotes_a_file_writes_no_control_codes_to_the_terminal(text):
    error = MetronomeError(f"key {text} is unknown", hint=f"not {text}")
    assert error.message.isprintable()
    assert error.hint.isprintable()
    error.message.encode("utf-8")


def test_lines_of_an_error_stay_lines():
    assert MetronomeError("one\ntwo").message == "one\ntwo"


@pytest.mark.parametrize("value", ["80ms", [], {}, True, -1.0, 0.0, 1e300, float("inf")])
def test_a_rotary_base_that_is_no_number_is_named(value):
    with pytest.raises(UsageError, match="rope_theta"):
        read_config({**CONFIGS[0], "rope_theta": value})


@pytest.mark.parametrize("key", ["kv_lora_rank", "qk_rope_head_dim"])
def test_a_latent_size_that_is_no_number_is_named(key):
    with pytest.raises(UsageError, match=key):
        read_config({**CONFIGS[0], "kv_lora_rank": 512, key: "80ms"})


@pytest.mark.parametrize("value", ["text", 1, [], None])
def test_a_part_that_is_no_object_is_passed_over(value):
    assert read_config({**CONFIGS[0], "torch_dtype": None, "thinker_config": value}).dtype == "bfloat16"


@pytest.mark.parametrize("metadata", [[], 3, "x", None, {"total_size": True}])
def test_an_index_without_a_size_counts_the_files(tmp_path, metadata):
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"metadata": metadata}))
    assert weights_in(tmp_path) is None


@pytest.mark.parametrize("header", [b"[]", b"3", b'"x"', b"null"])
def test_a_header_of_tensors_that_is_no_object_is_refused(tmp_path, header):
    file = tmp_path / "model.safetensors"
    file.write_bytes(len(header).to_bytes(8, "little") + header)
    with pytest.raises(UsageError, match="no JSON object"):
        tensor_bytes(file)


def test_a_lone_carriage_return_ends_a_line_of_a_table(tmp_path):
    file = tmp_path / "trace.csv"
    file.write_bytes(b"\rt_s,occupancy\r" + b"".join(b"%d,0.%02d\r" % (t, t) for t in range(20)))
    assert len(read_recording(file).trace.t_s) == 20


def test_a_table_with_an_endless_cell_is_refused(tmp_path):
    file = tmp_path / "trace.csv"
    file.write_text("t_s,occupancy\n" + '"' + "9" * 200_000)
    with pytest.raises(UsageError, match="not a table"):
        read_recording(file)


@pytest.mark.parametrize("name", ["trace.jsonl", "trace.csv"])
@pytest.mark.parametrize("number", ["9" * 400, "9" * 5000, "-" + "9" * 400, "1e999"])
def test_a_number_that_no_float_holds_is_refused(tmp_path, name, number):
    rows = (
        [f'{{"time": {number}, "occupancy": 0.1}}']
        if name.endswith("jsonl")
        else ["t_s,occupancy", f"{number},0.1"]
    )
    file = tmp_path / name
    file.write_text("\n".join(rows) + "\n")
    with pytest.raises(UsageError):
        read_recording(file)


@pytest.mark.parametrize("stamp", ["0001-01-01", "9999-12-31T23:59:59+00:00", "0001-01-01T00:00:00+14:00"])
def test_a_stamp_at_the_end_of_time_is_taken_or_refused(tmp_path, stamp):
    file = tmp_path / "trace.jsonl"
    file.write_text(f'{{"time": "{stamp}", "occupancy": 0.1}}\n')
    with suppress(UsageError):
        read_recording(file)


@pytest.mark.parametrize("blocks", ["\u00b2", "9" * 5000, "-1", "1.5"])
def test_a_pool_whose_size_is_no_number_is_not_known(blocks):
    page = f'vllm:kv_cache_usage_perc 0.5\nvllm:cache_config_info{{num_gpu_blocks="{blocks}",block_size="16"}} 1\n'
    assert read(parse(page)).pool_tokens is None
