"""The options that commands share, each once. Text, flag and choices come from the table of settings.

A command says `clock: options.Clock = None`; None and False mean that the flag was not given.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
from typer.models import OptionInfo

from metronome_cli.cli.completion import completer
from metronome_cli.config import readers
from metronome_cli.config.settings_table import FORMATS, OTHER_VARIABLES, PREFIX, SETTINGS, Setting

Command = TypeVar("Command", bound=Callable[..., Any])
LOAD, CACHE, MEMORY, SEARCH, SERVER, OUTPUT = "Load", "Cache", "Memory", "Search", "Server", "Output"
_UNITS: dict[readers.ValueReader, str] = {
    readers.duration: "TIME",
    readers.size: "SIZE",
    readers.fraction: "SHARE",
    readers.rate: "RATE",
    readers.address: "ADDRESS",
    readers.policy: "POLICY",
}


def command_option(panel: str, value: str, help: str, *names: str, **more: Any) -> Any:
    """A flag of one command alone; `value` is what is to be given, such as TIME, empty for a switch."""
    return typer.Option(*names, help=help, metavar=value, rich_help_panel=panel, **more)


def a_path(given: str) -> Path:
    """A path; an empty one, as an unset variable leaves it, would be the directory that one happens to be in."""
    if not given.strip():
        raise typer.BadParameter(f"{given!r} is not a path")
    return Path(given)


def _names_files(row: Setting) -> bool:
    return row.read is readers.path or row.key == "audio"


class SettingOption(OptionInfo):
    """The flag of a setting, which a file or a variable may give as well.

    `more` is Typer's, such as `min`; `help` there is for a command in which the setting means something special, and
    then has a default of its own, if any.
    """

    def __init__(self, key: str, panel: str | None, *short: str, **more: Any) -> None:
        row = SETTINGS[key]
        is_switch = row.read is readers.flag
        given: dict[str, Any] = {
            "help": row.help,
            "show_default": (not is_switch and "help" not in more and row.default_text) or False,
            "metavar": "" if is_switch else "WORD" if row.choices else _UNITS.get(row.read),
            "autocompletion": completer(row),
            "parser": a_path if _names_files(row) else None,
        }
        super().__init__(default=..., param_decls=(row.flag, *short), rich_help_panel=panel, **(given | more))
        self.row: Setting = row


Profile = Annotated[str | None, SettingOption("profile", LOAD, "-p", metavar="NAME")]
Model = Annotated[str | None, SettingOption("model", LOAD, metavar="MODEL")]
Audio = Annotated[list[Path] | None, SettingOption("audio", LOAD, metavar="PATH")]
Backend = Annotated[str | None, SettingOption("backend", LOAD)]
VllmArg = Annotated[list[str] | None, SettingOption("vllm_arg", LOAD, metavar="KEY=VALUE")]
SessionLength = Annotated[str | None, SettingOption("session_length", LOAD)]
SpeakingShare = Annotated[str | None, SettingOption("speaking_share", LOAD)]
Clock = Annotated[str | None, SettingOption("clock", LOAD)]
Batching = Annotated[str | None, SettingOption("batching", LOAD)]
Seed = Annotated[int | None, SettingOption("seed", LOAD, metavar="N")]
Record = Annotated[Path | None, SettingOption("record", LOAD, metavar="FILE")]
Replay = Annotated[Path | None, SettingOption("replay", LOAD, metavar="FILE")]
Device = Annotated[str | None, SettingOption("device", LOAD, metavar="DEVICE")]
Weights = Annotated[str | None, SettingOption("weights", LOAD, metavar="DIR")]

Policy = Annotated[str | None, SettingOption("policy", CACHE)]
SinkPositions = Annotated[str | None, SettingOption("sink_positions", CACHE)]
OnPoolFull = Annotated[str | None, SettingOption("on_pool_full", CACHE)]
KvPool = Annotated[str | None, SettingOption("kv_pool", CACHE)]
DeviceMemory = Annotated[str | None, SettingOption("device_memory", MEMORY)]

Slo = Annotated[list[str] | None, SettingOption("slo", SEARCH, metavar="OBJECTIVE")]
PlaybackDelay = Annotated[str | None, SettingOption("playback_delay", SEARCH, metavar="TIME")]
Churn = Annotated[str | None, SettingOption("churn", LOAD, metavar="LENGTHS")]
Script = Annotated[Path | None, SettingOption("script", SERVER, metavar="FILE")]
Misbehaving = Annotated[str | None, SettingOption("misbehaving", SERVER, metavar="SHARES")]
Canary = Annotated[bool, SettingOption("canary", SERVER)]
Cycles = Annotated[int | None, SettingOption("cycles", SERVER, min=2, metavar="N")]
CycleWait = Annotated[str | None, SettingOption("cycle_wait", SERVER)]
Sessions = Annotated[int | None, SettingOption("sessions", SEARCH, min=1, metavar="N")]
SearchMethod = Annotated[str | None, SettingOption("search_method", SEARCH)]
Soak = Annotated[bool, SettingOption("soak", SEARCH)]
MaxSessions = Annotated[int | None, SettingOption("max_sessions", SEARCH, min=1, metavar="N")]
SearchTime = Annotated[str | None, SettingOption("search_time", SEARCH)]
ComparePolicies = Annotated[bool, SettingOption("compare_policies", SEARCH)]
AdmissionControl = Annotated[str | None, SettingOption("admission_control", SEARCH)]
OfferedSessions = Annotated[int | None, SettingOption("offered_sessions", SEARCH, min=1, metavar="N")]
ArrivalRate = Annotated[str | None, SettingOption("arrival_rate", SEARCH)]
Repeat = Annotated[int | None, SettingOption("repeat", SEARCH, min=1, metavar="N")]

Url = Annotated[str | None, SettingOption("url", SERVER, metavar="URL")]
Protocol = Annotated[str | None, SettingOption("protocol", SERVER)]
TurnEnd = Annotated[str | None, SettingOption("turn_end", SERVER)]
Workers = Annotated[int | None, SettingOption("workers", SERVER, min=1, metavar="N")]
RayAddress = Annotated[str | None, SettingOption("ray_address", SERVER, metavar="ADDRESS")]
MetricsUrl = Annotated[str | None, SettingOption("metrics_url", SERVER, metavar="URL")]
OccupancyMetric = Annotated[str | None, SettingOption("occupancy_metric", SERVER, metavar="NAME")]
ServedModelName = Annotated[str | None, SettingOption("served_model_name", SERVER, metavar="NAME")]
CaFile = Annotated[Path | None, SettingOption("ca_file", SERVER, metavar="FILE")]
ConnectTimeout = Annotated[str | None, SettingOption("connect_timeout", SERVER)]
ReadyTimeout = Annotated[str | None, SettingOption("ready_timeout", SERVER)]
IdleTimeout = Annotated[str | None, SettingOption("idle_timeout", SERVER)]
Reconnect = Annotated[str | None, SettingOption("reconnect", SERVER)]

Output = Annotated[Path | None, SettingOption("output", OUTPUT, metavar="DIR")]
Json = Annotated[bool, SettingOption("json", OUTPUT)]
PrometheusListen = Annotated[str | None, SettingOption("prometheus_listen", OUTPUT)]
DryRun = Annotated[bool, SettingOption("dry_run", OUTPUT)]
Ui = Annotated[str | None, SettingOption("ui", OUTPUT)]
Config = Annotated[
    Path | None,
    typer.Option(
        help=OTHER_VARIABLES[PREFIX + "CONFIG"], metavar="FILE", rich_help_panel=OUTPUT, parser=a_path
    ),
]


def _unbound(key: str) -> OptionInfo:
    """The same flag where it is no setting: in commands that only read what is there."""
    row = SETTINGS[key]
    found: OptionInfo = typer.Option(
        row.flag,
        help=row.help,
        metavar="FILE" if _names_files(row) else None,
        parser=a_path if _names_files(row) else None,
    )
    return found


ReportJson = Annotated[bool, _unbound("json")]
PlainJson = Annotated[bool, typer.Option("--json", help="JSON, and nothing else, on stdout.")]


def report_files(*, are_settings: bool = True) -> Callable[[Command], Command]:
    """Give a command one option per report format. The command gets their values in `**files`."""

    def decorate(command: Command) -> Command:
        signature = inspect.signature(command, eval_str=True)
        own = [each for each in signature.parameters.values() if each.kind is not each.VAR_KEYWORD]
        added = [
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=None,
                annotation=Annotated[
                    Path | None,
                    SettingOption(name, OUTPUT, metavar="FILE") if are_settings else _unbound(name),
                ],
            )
            for name in FORMATS
        ]
        command.__signature__ = signature.replace(parameters=[*own, *added])  # type: ignore[attr-defined]
        command.__annotations__ = {each.name: each.annotation for each in (*own, *added)}
        return command

    return decorate
