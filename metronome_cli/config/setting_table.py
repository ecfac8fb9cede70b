"""The one table of settings: key, how a value is read, what it means, default, the profile's word for it.

The keys of a settings file, the variables (METRONOME_ and the key in capitals) and the flags (-- and the key
with dashes) are made from it, and docs/environment.md lists it.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from metronome_cli.config import values

PREFIX = "METRONOME_"


@dataclass(frozen=True, slots=True)
class Setting:
    """One row. `read` checks what was given; `profile_key` is where the profile says the same, dotted.

    `on_command_line` False: only a file or a variable gives it.
    """

    key: str
    read: values.Reader
    help: str
    default: Any = None
    profile_key: str | None = None
    on_command_line: bool = True

    @property
    def flag(self) -> str:
        return "--" + self.key.replace("_", "-")

    @property
    def variable(self) -> str:
        return PREFIX + self.key.upper()


SETTINGS: dict[str, Setting] = {
    row.key: row
    for row in (
        Setting("profile", values.text, "profile by name, or a YAML file", "default"),
        Setting("model", values.text, "any decoder: a directory, a .gguf file, a name in the local cache"),
        Setting("audio", values.several(values.path, os.pathsep), "recordings or directories of them", ()),
        Setting("weights", values.text, "random, or a checkpoint directory", "random"),
        Setting("device", values.text, "auto, cpu, cuda or cuda:N", "auto"),
        Setting("seed", values.whole(), "seed of load and weights", 0),
        Setting(
            "clock",
            values.choice("real", "virtual"),
            "real waits; virtual jumps over idle time",
            "real",
            "clock",
        ),
        Setting("batching", values.choice("continuous", "tick"), "when a step starts", "continuous"),
        Setting("session_length", values.duration, "how long each session must hold", None, "session_length"),
        Setting(
            "speaking_share", values.fraction, "share of time the model speaks", None, "turns.speaking_share"
        ),
        Setting("policy", values.policy, "which cache blocks stay", None, "policy"),
        Setting(
            "sink_positions",
            values.choice("rolling", "absolute"),
            "how sinks are placed",
            None,
            "sink_positions",
        ),
        Setting(
            "exhaustion",
            values.choice("stall", "preempt", "refuse"),
            "what happens when no block is free",
            None,
            "exhaustion",
        ),
        Setting("pool", values.size, "KV pool budget", None, "pool.bytes"),
        Setting("max_batch", values.whole(1), "most frames in one step", None, "max_batch", False),
        Setting("memory", values.size, "memory of the device, for planning"),
        Setting(
            "slo", values.several(values.objective, ","), "objectives, such as p99<80ms", None, "objectives"
        ),
        Setting("sessions", values.whole(1), "judge this many sessions and nothing else"),
        Setting("max_sessions", values.whole(1), "never try more sessions than this", 4096),
        Setting("method", values.choice("ramp", "bisect"), "how capacity is searched", "ramp"),
        Setting("budget", values.duration, "how long the search may go on narrowing its answer"),
        Setting("soak", values.flag, "live through the whole session length", False),
        Setting("compare_policies", values.flag, "the same controller on several cache policies", False),
        Setting("guard", values.choice("memory"), "admit by forecast occupancy"),
        Setting("offered", values.whole(1), "callers offered to each arm"),
        Setting("arrival_rate", values.rate, "how fast callers come"),
        Setting("trials", values.whole(1), "repeat a run under different seeds"),
        Setting("target", values.text, "a running server to drive over websockets: ws://HOST:PORT"),
        Setting(
            "protocol",
            values.choice("auto", "moshi", "moshi-server", "realtime", "unmute", "vllm-realtime"),
            "what the target speaks",
            "auto",
        ),
        Setting("scrape", values.text, "the target's Prometheus metrics: http://HOST:PORT/metrics"),
        Setting("output", values.path, "directory for the report and its events"),
        Setting("html", values.path, "file for the HTML report"),
        Setting("junit", values.path, "file for JUnit XML"),
        Setting("prometheus", values.address, "serve the run's series for Prometheus: :9464 or HOST:PORT"),
        Setting("dry_run", values.flag, "print the plan, its duration and memory, and run nothing", False),
        Setting("json", values.flag, "the report, and nothing else, on stdout", False),
        Setting("ui", values.choice("auto", "live", "plain", "none"), "progress view", "auto"),
    )
}
OTHER_VARIABLES = {
    PREFIX + "CONFIG": "settings file, as with --config",
    PREFIX + "DEBUG": "1: show the traceback of an internal error",
    PREFIX + "API_KEY": "key for the target server; never printed or stored",
    PREFIX + "HEADERS": "further headers for the target server; never printed or stored",
}
