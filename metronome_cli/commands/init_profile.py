"""`init`: a commented profile of the user's model, from its config.json.

The file gives the decoder's shape, its dtype, its context and a sliding window, where there is one; the weights'
size comes from the safetensors files beside it. It does not say what a conversation does to the cache: the beat and
the tokens a frame are assumptions, marked `# CHECK`, and the profile carries them as unverified until they are
set right. The adapter that is named runs the decoder alone.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from metronome_cli.commands.predict.checkpoint_size import read_model_config
from metronome_cli.commands.predict.from_checkpoint import SteadyLoad, read_checkpoint
from metronome_cli.config.profile import Profile
from metronome_cli.config.validation import validate
from metronome_cli.config.yaml_file import parse_yaml
from metronome_cli.core.errors import UsageError, write_hint
from metronome_cli.core.quantities import format_duration, format_size
from metronome_cli.forecast.hf_config import DecoderConfig, read_config

FRAME_S, TOKENS_IN, SPOKEN = 0.08, 1, 1  # assumed: Moshi's beat, and a token in and out a frame
_PLAIN = ("llama", "qwen2", "qwen3", "mistral")  # run by the adapter `decoder`


@dataclass(frozen=True, slots=True)
class ProfileDraft:
    """A profile as text and as what it says, with what the file left open."""

    text: str
    profile: Profile
    notes: tuple[str, ...]

    @property
    def open_lines(self) -> int:
        """How many lines state an assumption."""
        return sum("# CHECK: " in line for line in self.text.splitlines())


def draft_profile(path: Path, name: str | None = None) -> ProfileDraft:
    """The profile of a config.json, or of a directory with one. Raises UsageError naming the file and the key."""
    config, file = read_model_config(path)
    layout = read_config(config, str(file))
    load = SteadyLoad(FRAME_S, TOKENS_IN, SPOKEN, SPOKEN)
    checkpoint = read_checkpoint(path, load)
    shape = checkpoint.profile.shape
    called = name or _name(path, config)
    text = _TEMPLATE.format(
        file=file.name,
        name=_quoted(called),
        title=_quoted(f"{_model_type(config)} decoder, from {file.name}"),
        adapter=_adapter(config, layout),
        rate=f"{(TOKENS_IN + SPOKEN) / FRAME_S:g}",
        full=format_duration(shape.context * FRAME_S / (TOKENS_IN + SPOKEN)),
        layers=shape.layers,
        heads=shape.heads,
        kv_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        hidden=shape.hidden,
        mlp=shape.mlp,
        vocab=shape.vocab,
        dtype=shape.dtype,
        context=shape.context,
        theta=f"{shape.rope_theta:.10g}",
        parameters=shape.parameters,
        active=shape.active_parameters,
        weights=checkpoint.weights.size,
        weights_said=f"{format_size(checkpoint.weights.size)}, {_one_line(checkpoint.weights.how)}",
        each=format_size(shape.kv_bytes_per_token),
        policy=f"window({layout.window})" if layout.window else "unbounded",
        source=_quoted(f"{file.name} of {called}"),
        notes="".join(f"  - {_quoted(note)}\n" for note in checkpoint.notes),
    )
    profile = validate(Profile, parse_yaml(text, "the drafted profile"), "the drafted profile")
    return ProfileDraft(text, profile, checkpoint.notes)


def write_draft(draft: ProfileDraft, file: Path, *, force: bool = False) -> None:
    """Keep it. Raises UsageError for a file that is there, unless forced, and for one that cannot be written."""
    try:
        with file.open("w" if force else "x", encoding="utf-8") as stream:
            stream.write(draft.text)
    except FileExistsError:
        raise UsageError(
            f"{file} is there already", hint="--force writes over it; --output names another file"
        ) from None
    except OSError as error:
        raise UsageError(f"cannot write {file}: {error.strerror}", hint=write_hint(error)) from None


def _name(path: Path, config: dict[str, Any]) -> str:
    directory = path if path.is_dir() else path.parent
    for text in (str(config.get("_name_or_path") or "").rpartition("/")[2], directory.resolve().name):
        if name := _slug(text):
            return name
    return _slug(_model_type(config)) or "model"


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9._-]+", "-", text.lower()).strip("-._")[:64].rstrip("-._")


def _model_type(config: dict[str, Any]) -> str:
    return _one_line(str(config.get("model_type") or "unknown"))[:60]


def _adapter(config: dict[str, Any], layout: DecoderConfig) -> str:
    """The line that names what runs it; a comment where nothing does."""
    plain = layout.kv_values_per_token == 2 * layout.layers * layout.kv_heads * layout.head_dim
    if config.get("model_type") in _PLAIN and plain:
        return "adapter: decoder  # runs the decoder; it was not trained to hear\n"
    return "# adapter: decoder  # left out: no adapter is known to run this model; `predict` needs none\n"


def _one_line(text: str) -> str:
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())


def _quoted(text: str) -> str:
    """A YAML double-quoted scalar on one line."""
    escaped = _one_line(text).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


_TEMPLATE = """# Made by `metronome init` from {file}. What is marked CHECK is an assumption: the file cannot say it.
#
#   metronome profiles check THIS_FILE
#   metronome predict --profile THIS_FILE --memory 80GiB --sessions 32
name: {name}
title: {title}
{adapter}
frame:
  period: 80ms         # CHECK: how often the model takes in audio. Moshi 80ms, MiniCPM-o 1s, Qwen-Omni 2s
  sample_rate: 16000   # CHECK: Hz of the audio that goes in
  # deadline: 80ms     # when an answer is late; the period unless given

# Cache positions a frame. As assumed here {rate} a second, which reaches the context's end after {full}.
tokens:
  into: 1              # CHECK: positions that a frame's audio takes in the cache, markers included
  out:
    listening: 1       # CHECK: tokens decoded a frame while the model listens; 0 when it says nothing
    speaking: 1        # CHECK: tokens decoded a frame while it speaks
  # fused: true        # input and output streams are summed, as in Moshi: the tokens out add none

turns:
  speaking_share: 50%  # CHECK: share of time that the model speaks
  turn: 8s             # CHECK: mean length of one of its turns

# From {file}. A position costs {each}.
shape:
  layers: {layers}
  heads: {heads}
  kv_heads: {kv_heads}
  head_dim: {head_dim}
  hidden: {hidden}
  mlp: {mlp}
  vocab: {vocab}
  dtype: {dtype}
  context: {context}
  rope_theta: {theta}
  parameters: {parameters}
  active_parameters: {active}
  weight_bytes: {weights}B  # {weights_said}

# pool: {{bytes: 2GiB}}  # a budget for the cache; without it, give --pool or --memory
policy: {policy}
# policy: window(1024, 16)  # keep 16 first and 1024 last positions: a session then costs the same for ever
session_length: 10m    # CHECK: how long a session must hold

# Memory beside the decoder's cache (a talker, an encoder's state) goes into `stages`: see docs/profiles.md.
objectives: [p99<80ms, misses<1%, empty<1%]

verified: false        # remove this and `unverified` when every CHECK is settled
unverified: [frame, tokens, turns, session_length]
sources:
  - {{what: shape, where: {source}, grade: A}}
notes:
{notes}"""
