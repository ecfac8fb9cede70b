"""What takes input from elsewhere, each with inputs to change and a check that lets a designed refusal pass.

A check may see the input refused by a UsageError, one line or a few, all printable; anything else that is raised is
a fault, as is an input that takes more than ten seconds.
"""

import io
import itertools
import json
import os
import tempfile
from collections.abc import Callable
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
import torch
import yaml
from hypothesis import strategies as st
from safetensors.torch import save

from metronome_cli.audio.library import load_library
from metronome_cli.commands.describe_profile import profile_card
from metronome_cli.commands.init_profile import draft_profile
from metronome_cli.commands.predict.checkpoint_size import tensor_bytes
from metronome_cli.commands.predict.from_metrics import ScrapePlan, forecast_from_metrics
from metronome_cli.commands.predict.from_trace import TracePlan, predict_trace
from metronome_cli.config.cache_policy import CachePolicySpec
from metronome_cli.config.profile import Profile
from metronome_cli.config.settings import resolve
from metronome_cli.config.validation import validate
from metronome_cli.config.yaml_file import parse_yaml
from metronome_cli.core.errors import UsageError
from metronome_cli.core.package_data import data_dir
from metronome_cli.core.quantities import (
    format_duration,
    format_size,
    parse_duration,
    parse_fraction,
    parse_milliseconds,
    parse_rate,
    parse_size,
)
from metronome_cli.core.stop import StopRequest
from metronome_cli.core.strict_json import dumps
from metronome_cli.load.trace import RecordedTurns
from metronome_cli.load.trace_file import read_load
from metronome_cli.measure.objective import Objective
from metronome_cli.models.weights.checkpoint import Checkpoint
from metronome_cli.protocols.registry import HOSTED, PROTOCOLS, client_codec, host_codec
from metronome_cli.report.event_log import EVENTS_FILE, head
from metronome_cli.report.event_replay import CONDITIONS
from metronome_cli.report.html.page import render_html
from metronome_cli.report.plain_text import render_text
from metronome_cli.report.rebuild import rebuild
from metronome_cli.report.report_file import load_report, report_json
from metronome_cli.results.events import ObserverGroup
from tests.audio.sounds import RATE, voice, wav_bytes
from tests.fuzz.mutate import json_text, mutated_bytes, mutated_text, mutated_trees
from tests.report.builders import (
    capacity_report,
    collapse_report,
    forecast_report,
    point,
    policy_report,
    probe_report,
)

MOST_MESSAGE = 4000


@dataclass(frozen=True)
class Target:
    """`check` takes a value of `inputs`. `share`: of all inputs of a run, relative to the others."""

    name: str
    inputs: st.SearchStrategy[Any]
    check: Callable[[Any], None]
    share: float = 1.0


@contextmanager
def may_be_refused():
    """Lets a designed refusal pass, if it can be shown on a terminal."""
    said = None
    try:
        yield
    except UsageError as refusal:
        said = f"{refusal.message}{refusal.hint or ''}"
    if said is not None:
        assert said.strip(), "a refusal without a word"
        assert len(said) < MOST_MESSAGE, f"a refusal of {len(said)} characters"
        said.encode("utf-8")
        assert all(char.isprintable() or char == "\n" for char in said), f"not printable: {said!r}"


# -- small languages ----------------------------------------------------------------------------------------

QUANTITIES = [
    "80ms",
    "1h30m",
    "2 GiB",
    "512MB",
    "50%",
    "0.5",
    "24k",
    "4/s",
    "1.5 s",
    "10m",
    "1e3 ms",
    "12",
    "unlimited",
]
QUANTITY = (parse_duration, parse_milliseconds, parse_size, parse_fraction, parse_rate)


def check_quantity(text):
    for read in QUANTITY:
        with may_be_refused():
            value = read(text)
            assert value >= 0
            assert np.isfinite(value)
            assert format_duration(value)
            assert format_size(value)


OBJECTIVES = [
    "p99<80ms",
    "p99.9 <= 1 s",
    "misses<0.1%",
    "empty<1%",
    "max<200ms",
    "miss_streak<3",
    "occupancy<90%",
    "fell_behind<=0",
]


def check_objective(text):
    with may_be_refused():
        found = Objective.parse(text)
        assert Objective.parse(str(found)) == found


POLICIES = ["unbounded", "window(256, 16)", "window(64)", "ring(750)", "recycle(4096)", "window( 1024 , 4 )"]


def check_policy(text):
    with may_be_refused():
        found = CachePolicySpec.parse(text)
        assert CachePolicySpec.parse(str(found)) == found
        assert 0 <= found.resident_tokens(10_000) <= (10**9 if found.kind == "ring" else 10_000)


# -- profiles and settings ----------------------------------------------------------------------------------

PROFILE_TEXTS = [path.read_text() for path in sorted(data_dir("profiles").glob("*.yaml"))]
PROFILE_TREES = [yaml.safe_load(text) for text in PROFILE_TEXTS]


def check_profile(text):
    with may_be_refused():
        use_profile(validate(Profile, parse_yaml(text, "mine.yaml"), "mine.yaml"))


def use_profile(profile):
    """What every command asks of a profile before it loads a model."""
    card = profile_card(profile)
    assert card.cache_bytes_per_session >= 0
    assert profile.positions_at(60.0) >= 0
    assert profile.policy_spec.resident_tokens(1000) >= 0
    for text in profile.objectives:
        Objective.parse(text)
    again = Profile.model_validate(profile.model_dump(mode="json"), context={"plain_numbers": True})
    assert again.shape == profile.shape


def check_profile_tree(tree):
    check_profile(yaml.safe_dump(tree, allow_unicode=True, sort_keys=False))


SETTINGS_TEXT = [
    "profile: smoke\nslo: [p99<80ms, 'empty<1%']\nsessions: 12\nclock: virtual\nsession_length: 10m\n",
    "profile: default\npolicy: window(256, 16)\nkv_pool: 2GiB\nseed: 3\nconfirm_steps: 800\nui: plain\n",
    "gain_target: 70%\ngain_increase: 4\ngain_decrease: 0.5\nmax_sessions: 64\nbatching: tick\n",
]
VARIABLES = ["METRONOME_SLO", "METRONOME_SESSIONS", "METRONOME_POLICY", "METRONOME_KV_POOL", "METRONOME_SEED",
             "METRONOME_CLOCK", "METRONOME_PROFILE", "METRONOME_SESSION_LENGTH", "METRONOME_UI"]  # fmt: skip


def check_settings(case):
    text, name, value = case
    with a_file("settings.yaml", text.encode("utf-8", "surrogatepass")) as file, may_be_refused():
        found = resolve({"config": file}, {name: value.replace("\0", "")} if name else {})
        json.dumps(found.as_dict())
        use_profile(found.profile)


# -- files --------------------------------------------------------------------------------------------------


@contextmanager
def a_file(name, data):
    """A file with that content, gone afterwards."""
    path = Path(SCRATCH.name) / name
    path.write_bytes(data)
    try:
        yield path
    finally:
        path.unlink()


SCRATCH = tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None)


FORMATS = [
    ("FLAC", "PCM_16"), ("OGG", "VORBIS"), ("OGG", "OPUS"), ("MP3", "MPEG_LAYER_III"), ("WAV", "FLOAT"),
    ("WAV", "ULAW"), ("WAV", "IMA_ADPCM"), ("AIFF", "PCM_24"), ("CAF", "PCM_16"), ("W64", "PCM_16"),
    ("RF64", "PCM_16"), ("AU", "PCM_16"),
]  # fmt: skip


def sound_files():
    """A short one in every format that is read, and the beginnings of those that ship."""
    samples = voice(0.25)
    files = [wav_bytes(np.round(samples * 32767).astype("<i2").tobytes())]
    for kind, subtype in FORMATS:
        buffer = io.BytesIO()
        soundfile.write(buffer, samples, RATE, format=kind, subtype=subtype)
        files.append(buffer.getvalue())
    shipped = [
        path
        for path in sorted(data_dir("sample_audio").iterdir())
        if path.suffix in (".flac", ".ogg", ".mp3", ".wav")
    ]
    return files + [path.read_bytes()[:20_000] for path in shipped]


def check_audio(data):
    with a_file("sound.wav", data) as file, may_be_refused():
        library = load_library([file], RATE)
        for clip in library.clips:
            assert np.isfinite(clip.samples).all()
            assert clip.seconds > 0
            assert all(note.isprintable() for note in clip.notes)


def csv_trace():
    rows = [f"{t},{0.02 + 0.004 * t:.4f},{3},{t % 2}" for t in range(60)]
    return "t_s,occupancy,running,waiting\n" + "\n".join(rows) + "\n"


def jsonl_trace():
    return "".join(json.dumps({"time": t, "kv_cache_usage": 0.02 + 0.004 * t}) + "\n" for t in range(60))


def check_csv(text):
    _check_trace("trace.csv", text)


def check_jsonl(text):
    _check_trace("trace.jsonl", text)


def _check_trace(name, text):
    with a_file(name, text.encode("utf-8", "surrogatepass")) as file, may_be_refused():
        found = predict_trace(TracePlan(file))
        assert render_text(found, 80)
        assert report_json(found)


METRICS = [
    """# HELP vllm:kv_cache_usage_perc KV-cache usage. 1 means 100 percent usage.
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.42
vllm:num_requests_running{engine="0",model_name="m"} 7.0
vllm:num_requests_waiting{engine="0",model_name="m"} 0.0
vllm:num_preemptions_total{engine="0",model_name="m"} 0.0
vllm:cache_config_info{block_size="16",num_gpu_blocks="1024"} 1.0
process_start_time_seconds 1.7e+09
""",
    """sglang:token_usage{model_name="m"} 0.28
sglang:num_running_reqs{model_name="m"} 3.0
sglang:num_queue_reqs{model_name="m"} 1.0
sglang:max_total_num_tokens{model_name="m"} 454942.0 1700000000000
""",
]


class Ticks:
    """Time that passes by itself."""

    def __init__(self):
        self.now_s = 0.0

    def now(self):
        return self.now_s

    def wait(self, seconds, stop):
        self.now_s += max(0.0, seconds)


def check_metrics(pages):
    """A server that answers with one page after the other, watched until the last."""
    answers = itertools.chain(pages, itertools.repeat(pages[-1]))
    plan = ScrapePlan("http://server:8000", watch_s=float(len(pages)) - 0.5)
    with may_be_refused():
        found = forecast_from_metrics(
            plan, ObserverGroup(), StopRequest(), lambda address: next(answers), Ticks()
        )
        assert render_text(found, 80)
        assert report_json(found)


REPORTS = [
    make() for make in (capacity_report, collapse_report, policy_report, forecast_report, probe_report)
]
REPORT_TREES = [json.loads(report_json(report)) for report in REPORTS]
REPORT_TEXTS = [report_json(report).encode() for report in REPORTS]


def check_report(data):
    with a_file("report.json", data) as file, may_be_refused():
        assert render_text(load_report(file), 100)


def check_page(text):
    with a_file("report.json", text.encode("utf-8", "surrogatepass")) as file, may_be_refused():
        assert "</html>" in render_html(load_report(file))


def events_text():
    conditions = {key: REPORT_TREES[0][key] for key in CONDITIONS}
    judged = point(16, "pass", "screen")
    windows = [{"phase": "screen", **each.model_dump()} for each in judged.windows[:3]]
    facts = [
        ("run_started", conditions),
        ("audio", REPORT_TREES[0]["audio"]),
        ("phase", {"name": "screen", "detail": ""}),
    ]
    facts += [("window", each) for each in windows] + [("trial", judged.model_dump(mode="json"))]
    facts += [
        ("window", {**windows[0], "phase": "confirm"}),
        ("backend_started", {"weights": "random"}),
        ("phase", {"name": "x"}),
    ]
    lines = [dumps(head())] + [
        dumps({"t": 1.0 * at, "kind": kind, "data": data}) for at, (kind, data) in enumerate(facts)
    ]
    return ("\n".join(lines) + "\n").encode()


def check_events(data):
    with a_file(EVENTS_FILE, data) as file, may_be_refused():
        assert render_text(rebuild(file), 80)


CONFIGS = [
    {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 2048, "num_hidden_layers": 16,
     "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 8192, "vocab_size": 128256,
     "max_position_embeddings": 131072, "torch_dtype": "bfloat16", "rope_theta": 500000.0, "head_dim": 64,
     "tie_word_embeddings": True},
    {"model_type": "qwen2_5_omni", "thinker_config": {"text_config": {"hidden_size": 3584, "num_hidden_layers": 28,
     "num_attention_heads": 28, "num_key_value_heads": 4, "intermediate_size": 18944, "vocab_size": 152064,
     "max_position_embeddings": 32768, "sliding_window": 32768, "use_sliding_window": False}}},
    {"model_type": "mixtral", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
     "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 32000, "num_local_experts": 8,
     "num_experts_per_tok": 2, "max_position_embeddings": 32768, "sliding_window": None, "dtype": "float16"},
]  # fmt: skip


def check_config(text):
    with a_file("config.json", text.encode("utf-8", "surrogatepass")) as file, may_be_refused():
        use_profile(draft_profile(file).profile)


def load_text():
    """A recording of two short runs."""
    head = {"schema": "metronome.load/2", "version": "1", "profile": "smoke", "period_s": 0.08, "sample_rate": 16000,
            "frame_samples": 1280, "tokens_listening": 1, "tokens_speaking": 2, "batching": "continuous", "seed": 0,
            "session_length_s": 60.0, "loop_samples": 100000,
            "audio": [{"file": "a.wav", "sha256": "0" * 64}]}  # fmt: skip
    lines = [head]
    for run in (0, 1):
        lines.append({"trial": run, "kind": "trial", "purpose": "confirm", "sessions": 2, "ages": "spread",
                      "fills_only": False, "length_s": 8.0})  # fmt: skip
        lines += [{"caller": n, "at_s": 0.1 * n, "age_s": 3.0, "lifetime_s": 8.0, "phase_s": 0.02, "start": 640 * n,
                   "speaks": [10, 20, 30]} for n in range(3)]  # fmt: skip
        lines.append({"end": run, "at_s": 8.0})
    return "".join(dumps(line) + "\n" for line in lines)


def check_load(text):
    with a_file("load.jsonl", text.encode("utf-8", "surrogatepass")) as file, may_be_refused():
        found = read_load(file)
        for run in found.runs:
            for caller in run.sessions:
                turns = RecordedTurns(caller, found.head.period_s)
                assert turns.speaking(caller.age_s + 1.0) in (True, False)


def weights_file():
    """Two tensors, as safetensors."""
    return save({"a.weight": torch.arange(6.0).view(2, 3), "b": torch.ones(4, dtype=torch.int32)})


def check_weights(data):
    with a_file("model.safetensors", data) as file:
        with may_be_refused():
            assert tensor_bytes(file) >= 0
        with may_be_refused():
            checkpoint = Checkpoint.open(file)
            for name in checkpoint.files:
                checkpoint.shape(name)
                checkpoint.read(name, torch.device("cpu"))


# -- frames of protocols ------------------------------------------------------------------------------------


def spoken():
    """For each protocol and side, messages that the other side sends: (protocol, from the server, message)."""
    audio = (0.2 * np.sin(np.arange(24_000) / 20)).astype(np.float32)
    said = []
    for name in PROTOCOLS:
        client = client_codec(name)()
        count = client.traits.sample_rate // 12
        pieces = [m for at in range(0, 12 * count, count) for m in client.audio(audio[at : at + count])]
        said += [(name, False, m) for m in (*client.opening(), *client.started(), *pieces, *client.closing())]
        if name in HOSTED:
            host = host_codec(name)()
            answers = [m for _ in range(4) for m in host.answer(audio[:count], "héllo", 100)]
            said += [
                (name, True, m)
                for m in (*host.greeting(), *host.refusal("full"), *answers, *host.echo(3), *host.farewell())
            ]
    return said


def frames():
    """A message after changes, on a side that may or may not expect it."""
    said = spoken()
    return st.one_of(
        [
            st.tuples(st.just(name), st.just(side), changed, st.booleans())
            for name in PROTOCOLS
            for side in (False, True)
            if (changed := _changed([m for n, s, m in said if (n, s) == (name, side)])) is not None
        ]
    )


def _changed(messages):
    binary = [m for m in messages if isinstance(m, bytes)]
    text = [m for m in messages if isinstance(m, str)]
    kinds = [mutated_bytes(binary, near=64)] if binary else []
    if text:
        trees = [tree for m in text if isinstance(tree := json.loads(m), dict)]
        kinds += [
            mutated_text(text),
            mutated_bytes([m.encode() for m in text]).map(_loose),
            json_text(mutated_trees(trees)),
        ]
    return st.one_of(kinds) if kinds else None


def _loose(data):
    return data.decode("utf-8", "replace")


def check_frame(case):
    name, from_server, message, as_other = case
    if as_other:
        message = _loose(message) if isinstance(message, bytes) else message.encode("utf-8", "surrogatepass")
    if from_server or name not in HOSTED:
        reader = client_codec(name)()
    else:
        reader = host_codec(name)()
        with suppress(AttributeError):
            reader.greeting()
    for _ in range(2):  # twice: a codec that has seen garbage goes on
        for event in reader.read(message):
            for field in ("what", "why", "text"):
                said = getattr(event, field, "")
                assert len(said) <= max(300, len(message)), f"{field} of {len(said)} characters"
            seconds = getattr(event, "seconds", 0.0)
            assert 0.0 <= seconds < 1e9, f"{seconds} seconds"


# -- all ----------------------------------------------------------------------------------------------------


def targets():
    """Every target."""
    settings = st.tuples(
        st.one_of(mutated_text(SETTINGS_TEXT), st.sampled_from(SETTINGS_TEXT)),
        st.sampled_from([*VARIABLES, ""]),
        mutated_text([*QUANTITIES, *OBJECTIVES, *POLICIES, "virtual", "smoke", "12"]),
    )
    any_text = st.text(max_size=30)
    pages = st.sampled_from(METRICS) | mutated_text(METRICS)
    return [
        Target("quantities", mutated_text(QUANTITIES) | any_text, check_quantity, share=1.5),
        Target("objectives", mutated_text(OBJECTIVES) | any_text, check_objective, share=1.5),
        Target("policies", mutated_text(POLICIES) | any_text, check_policy, share=1.5),
        Target("profiles, text", mutated_text(PROFILE_TEXTS), check_profile),
        Target("profiles, trees", mutated_trees(PROFILE_TREES), check_profile_tree, share=0.5),
        Target("settings", settings, check_settings),
        Target("audio files", mutated_bytes(sound_files(), near=400), check_audio, share=2.0),
        Target("traces, CSV", mutated_text([csv_trace()]), check_csv, share=0.4),
        Target("traces, JSON lines", mutated_text([jsonl_trace()]), check_jsonl, share=0.4),
        Target("Prometheus text", st.lists(pages, min_size=1, max_size=6), check_metrics, share=0.3),
        Target("reports, bytes", mutated_bytes(REPORT_TEXTS), check_report),
        Target(
            "reports, trees",
            json_text(mutated_trees(REPORT_TREES)).map(lambda t: t.encode("utf-8", "surrogatepass")),
            check_report,
            share=0.5,
        ),
        Target("pages", json_text(mutated_trees(REPORT_TREES)), check_page, share=0.02),
        Target("events", mutated_bytes([events_text()]), check_events),
        Target("config.json, trees", json_text(mutated_trees(CONFIGS)), check_config),
        Target(
            "config.json, text",
            mutated_text([json.dumps(config, indent=1) for config in CONFIGS]),
            check_config,
            share=0.5,
        ),
        Target("recorded load", mutated_text([load_text()]), check_load, share=0.5),
        Target("safetensors", mutated_bytes([weights_file()], near=160), check_weights, share=0.5),
        Target("protocol frames", frames(), check_frame, share=2.0),
    ]
