"""The one table of settings: key, how a value is read, what it means, default, the profile's word for it.

The keys of a settings file, the variables (METRONOME_ and the key in capitals) and the flags (-- and the key
with dashes) are made from it; `--help`, docs/environment.md and docs/commands.md show its texts.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from metronome_cli.config import readers

PREFIX = "METRONOME_"


FORMATS: Mapping[
    str, str
] = {  # report format: help of its option; `report/<name>.py` has `render(report) -> str`
    "html": "Write a self-contained HTML report.",
    "junit": "Write JUnit XML, one case per objective.",
}


@dataclass(frozen=True, slots=True)
class Setting:
    """One row. `read` checks what was given; `profile_key` is where the profile says the same, dotted.

    `on_command_line` False: only a file or a variable gives it. `otherwise`: what holds where nothing is given and no
    one value is the default.
    """

    key: str
    read: readers.ValueReader
    help: str
    default: Any = None
    profile_key: str | None = None
    on_command_line: bool = True
    otherwise: str = ""

    @property
    def flag(self) -> str:
        return "--" + self.key.replace("_", "-")

    @property
    def choices(self) -> tuple[str, ...]:
        """The words it may be; empty where it is not one of a few."""
        return self.read.words if isinstance(self.read, readers.ChoiceReader) else ()

    @property
    def default_text(self) -> str:
        """Its default as help and pages show it; empty where it has none."""
        if self.default is None or self.default == ():
            return "the profile's" if self.profile_key else self.otherwise
        text = f"{self.default:g}s" if self.read is readers.duration else str(self.default)
        text = text.lower() if isinstance(self.default, bool) else text
        return f"the profile's, else {text}" if self.profile_key else text

    @property
    def variable(self) -> str:
        return PREFIX + self.key.upper()


SETTINGS: dict[str, Setting] = {
    row.key: row
    for row in (
        Setting("profile", readers.text, "Profile by name, or a YAML file.", "default"),
        Setting(
            "model",
            readers.text,
            "Any decoder instead of a profile: a directory, a .gguf file, or a cached name.",
        ),
        Setting(
            "audio",
            readers.several(readers.path, os.pathsep),
            "Recording, or directory of recordings; repeatable.",
            (),
        ),
        Setting(
            "backend",
            readers.choice("in-process", "vllm"),
            "System under test: in-process (this project's engine) or vllm; --url: a server.",
            "in-process",
        ),
        Setting(
            "vllm_arg",
            readers.several(readers.argument, "\n"),
            "Argument for vLLM's engine, such as tensor_parallel_size=2; repeatable.",
            (),
        ),
        Setting("weights", readers.text, "random, or a checkpoint directory.", "random"),
        Setting("device", readers.text, "auto, cpu, cuda or cuda:N.", "auto"),
        Setting("seed", readers.whole(), "Seed of load and weights.", 0),
        Setting(
            "clock",
            readers.choice("real", "virtual"),
            "real waits; virtual jumps over idle time.",
            "real",
            "clock",
        ),
        Setting(
            "batching",
            readers.choice("continuous", "periodic"),
            "continuous: step when a frame is due; periodic: one step per period.",
            "continuous",
        ),
        Setting(
            "session_length",
            readers.duration,
            "Length of a session, such as 10m.",
            None,
            "session_length",
        ),
        Setting(
            "speaking_share",
            readers.fraction,
            "Share of time that the model speaks.",
            None,
            "turn_taking.speaking_share",
        ),
        Setting(
            "policy",
            readers.policy,
            "unbounded, 'window(W, S)', 'ring(W)' or 'recycle(W)', in tokens.",
            None,
            "policy",
        ),
        Setting(
            "sink_positions",
            readers.choice("rolling", "absolute"),
            "How sinks are placed: rolling or absolute.",
            None,
            "sink_positions",
        ),
        Setting(
            "on_pool_full",
            readers.choice("stall", "preempt", "refuse"),
            "If no KV block is free: stall, preempt or refuse.",
            None,
            "on_pool_full",
        ),
        Setting("kv_pool", readers.size, "Size of the KV pool, such as 2GiB.", None, "kv_pool.bytes"),
        Setting(
            "max_batch_size",
            readers.whole(1),
            "Largest number of frames in one step.",
            None,
            "max_batch_size",
            False,
        ),
        Setting("device_memory", readers.size, "Memory of the device, such as 96GiB, for planning."),
        Setting(
            "slo",
            readers.several(readers.objective, ","),
            "Objective such as 'p99<80ms' or 'empty<1%'; repeatable.",
            None,
            "objectives",
        ),
        Setting(
            "playback_delay",
            readers.several(readers.delay, ","),
            "How long a listener waits before playing, such as 0ms,120ms.",
            otherwise="0ms",
        ),
        Setting(
            "cycles", readers.whole(2), "Fill the server and leave it this often: does capacity come back?"
        ),
        Setting(
            "cycle_wait",
            readers.duration,
            "How long the server is left alone after each cycle.",
            60.0,
        ),
        Setting(
            "canary",
            readers.flag,
            "Hear one session alone first, and tell what load adds to its replies.",
            False,
        ),
        Setting(
            "misbehaving",
            readers.text,
            "Sessions that misbehave, such as mute:5%,reset:2%.",
            otherwise="none",
        ),
        Setting(
            "churn",
            readers.text,
            "Session lengths, such as exp:3m; sessions come and go.",
            otherwise="none: all sessions last the session length",
        ),
        Setting(
            "script",
            readers.path,
            "What users say to a server, and when: turns, or a file.",
            otherwise="they speak all the time",
        ),
        Setting("sessions", readers.whole(1), "Test this number of sessions, without a search."),
        Setting("max_sessions", readers.whole(1), "Upper limit of the search.", 4096),
        Setting(
            "search_method",
            readers.choice("ramp", "bisect"),
            "First stage of the search: ramp (AIMD) or bisect (doubling).",
            "ramp",
        ),
        Setting(
            "search_time",
            readers.duration,
            "Time limit of the search.",
            otherwise="40s, longer in proportion for frames over 80 ms",
        ),
        Setting("soak", readers.flag, "Run the whole session length.", False),
        Setting(
            "compare_policies",
            readers.flag,
            "Compare cache policies under one load and controller.",
            False,
        ),
        Setting(
            "admission_control",
            readers.choice("memory"),
            "memory: admit sessions by forecast KV occupancy.",
        ),
        Setting("offered_sessions", readers.whole(1), "Sessions offered to each policy.", otherwise="128"),
        Setting("arrival_rate", readers.rate, "Sessions that arrive, such as 8/s.", otherwise="4/s"),
        Setting("record", readers.path, "Write the load of every trial to this file."),
        Setting("replay", readers.path, "Replay the load of a file that --record wrote."),
        Setting("repeat", readers.whole(1), "Run the trial of --sessions N times with different seeds."),
        Setting("url", readers.text, "Websocket server to load, such as ws://HOST:PORT."),
        Setting(
            "protocol",
            readers.choice(
                "auto",
                "moshi",
                "moshi-server",
                "realtime",
                "unmute",
                "vllm-realtime",
                "minicpm",
                "transcription",
            ),
            "Its protocol: auto, moshi, moshi-server, realtime, unmute, vllm-realtime, minicpm or transcription.",
            "auto",
        ),
        Setting(
            "turn_end",
            readers.choice("vad", "model", "commit"),
            "Who ends turns: vad (the server), model, or commit (this client).",
            otherwise="vad for realtime, commit for transcription",
        ),
        Setting(
            "workers",
            readers.whole(1),
            "Worker processes for the sessions of --url.",
            otherwise="this one alone",
        ),
        Setting("ray_address", readers.text, "Ray cluster for the workers: auto, an address, or local."),
        Setting("metrics_url", readers.text, "Prometheus endpoint of the server: http://HOST:PORT/metrics."),
        Setting(
            "occupancy_metric",
            readers.text,
            "Gauge of the used share of the KV pool, 0 to 1, for other servers.",
        ),
        Setting(
            "served_model_name",
            readers.text,
            "Model name that a vllm-realtime server expects.",
            otherwise="the first in its own list",
        ),
        Setting("ca_file", readers.path, "Trust this authority, or server's own certificate, too; PEM."),
        Setting(
            "connect_timeout", readers.duration, "Longest wait for the server to open a connection.", 10.0
        ),
        Setting("ready_timeout", readers.duration, "Longest wait from connection to ready.", 10.0),
        Setting(
            "idle_timeout",
            readers.duration,
            "Time without a message that ends a session.",
            otherwise="10s, or 6 periods if longer",
        ),
        Setting(
            "reconnect",
            readers.choice("none", "once", "always"),
            "After a lost connection: none, once or always.",
            "none",
        ),
        Setting("output", readers.path, "Directory for report.json, report.html and events.jsonl."),
        *(Setting(name, readers.path, text) for name, text in FORMATS.items()),
        Setting(
            "prometheus_listen", readers.address, "Serve the run's own metrics here: :9464 or HOST:PORT."
        ),
        Setting("dry_run", readers.flag, "Print the plan, its duration and memory; run nothing.", False),
        Setting("json", readers.flag, "Print only the report, as JSON, on stdout.", False),
        Setting(
            "ui",
            readers.choice("auto", "live", "plain", "none"),
            "Progress view: auto, live, plain or none.",
            "auto",
        ),
    )
}
OTHER_VARIABLES = {
    PREFIX + "CONFIG": "YAML file of settings.",
    PREFIX + "DEBUG": "1: show the traceback of an internal error.",
    PREFIX + "API_KEY": "Key for the target server; never printed or stored.",
    PREFIX + "HEADERS": "Further headers for the target server; never printed or stored.",
}
