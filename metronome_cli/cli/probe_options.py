"""The flags that only `metronome probe` has, and those that mean something special in it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from metronome_cli.cli.completion import complete_words
from metronome_cli.cli.options import LOAD, SettingOption, command_option

GRID, READ = "Grid", "What is read and asked"

BatchSize = Annotated[
    list[int] | None,
    command_option(GRID, "N", "Frames in one step; repeatable.", min=1, show_default="1, 8, 32"),
]
Age = Annotated[
    list[str] | None, command_option(GRID, "TIME", "Session age; repeatable.", show_default="1m, 10m, 1h")
]
Policies = Annotated[
    list[str] | None,
    command_option(GRID, "POLICY", "Policy; repeatable.", show_default="the profile's, and unbounded"),
]
Steps = Annotated[int, command_option(GRID, "N", "Timed steps a point.", min=4)]

Model = Annotated[
    str | None,
    SettingOption(
        "model",
        LOAD,
        metavar="MODEL",
        help="A decoder: a directory, a .gguf file, a name in the local cache, or smollm2.",
    ),
]
Profile = Annotated[
    str | None,
    SettingOption("profile", LOAD, "-p", metavar="NAME", help="A speech model's profile, with --weights."),
]
Weights = Annotated[
    str | None,
    SettingOption("weights", LOAD, metavar="DIR", help="The checkpoint's directory; random is refused."),
]
Window = Annotated[
    list[int] | None, command_option(GRID, "W", "W in tokens; repeatable.", min=8, show_default="256, 1024")
]
Sinks = Annotated[
    list[int] | None,
    command_option(
        GRID,
        "S",
        "S in tokens; repeatable; 0 is always among them.",
        min=0,
        show_default="0, 1, 4, 16, 32, 64",
    ),
]
SinkPositions = Annotated[
    str | None,
    SettingOption(
        "sink_positions",
        GRID,
        metavar="WORD",
        help="rolling, absolute, or both.",
        show_default="both",
        autocompletion=complete_words("rolling", "absolute", "both"),
    ),
]
PerplexityMargin = Annotated[
    float, command_option(GRID, "SHARE", "Loss of perplexity that counts as none.", min=0.001, max=1.0)
]

Text = Annotated[
    Path | None,
    command_option(READ, "FILE", "A long text to read without a break.", show_default="one that ships"),
]
TextSessions = Annotated[
    int, command_option(READ, "N", "Sessions that read the text, each a part of its own.", min=1)
]
TextTokens = Annotated[int, command_option(READ, "N", "Tokens of each stream; 0 is all.", min=0)]
AgeBucket = Annotated[int, command_option(READ, "N", "Tokens of an age's stretch; 0 picks.", min=0)]
Questions = Annotated[
    Path | None, command_option(READ, "FILE", "JSON file of questions.", show_default="those that ship")
]
QuestionsPerSession = Annotated[int, command_option(READ, "N", "Questions a session; 0 asks none.", min=0)]
Sessions = Annotated[int, command_option(READ, "N", "Sessions side by side.", min=1)]
Quick = Annotated[
    bool, command_option(READ, "", "One window, two sink counts, less text: a few minutes.", "--quick")
]
FreeRunTokens = Annotated[int, command_option(READ, "N", "Tokens of free decoding; 0 leaves it out.", min=0)]
Audio = Annotated[
    list[Path] | None,
    SettingOption(
        "audio",
        READ,
        metavar="PATH",
        help="Spoken questions: files or directories; repeatable.",
        show_default="those that ship",
    ),
]
Transcripts = Annotated[
    Path | None,
    command_option(
        READ,
        "FILE",
        "JSON file: what each recording asks and its answer.",
        show_default="that of the sample audio",
    ),
]
