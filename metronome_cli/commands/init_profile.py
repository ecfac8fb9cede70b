"""`init`: a commented profile of the user's model, from its config.json.

The file gives the decoder's shape, its dtype, its context and a sliding window, where there is one; the weights'
size comes from the safetensors files beside it. It does not contain the growth of the cache in a conversation: the
period and the tokens per frame are assumptions, marked `# CHECK`, and listed in the profile as unverified until they
are corrected. The adapter that is named runs the decoder alone.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from metronome_cli.commands.predict.from_checkpoint import (
    CheckpointProfile,
    SteadyLoad,
    read_checkpoint,
    shape_data,
)
from metronome_cli.config.cache_groups import describe_groups
from metronome_cli.config.profile import Profile
from metronome_cli.config.validation import validate
from metronome_cli.config.yaml_file import parse_yaml
from metronome_cli.core.errors import UsageError, write_hint
from metronome_cli.core.quantities import format_duration, format_size
from metronome_cli.forecast.checkpoint_config.read_config import DecoderConfig

FRAME_S, TOKENS_IN, SPOKEN = 0.08, 1, 1  # assumed: Moshi's frame period, and 1 token in and out per frame
_PLAIN = ("llama", "qwen2", "qwen3", "mistral")  # run by the adapter `decoder`


@dataclass(frozen=True, slots=True)
class ProfileDraft:
    """A profile as text and as an object, with what the file does not contain."""

    text: str
    profile: Profile
    notes: tuple[str, ...]

    @property
    def open_lines(self) -> int:
        """How many lines state an assumption."""
        return sum("# CHECK: " in line for line in self.text.splitlines())


def draft_profile(path: Path, name: str | None = None) -> ProfileDraft:
    """The profile of a config.json, or of a directory with one. Raises UsageError naming the file and the key."""
    load = SteadyLoad(FRAME_S, TOKENS_IN, SPOKEN, SPOKEN)
    checkpoint = read_checkpoint(path, load)
    decoder, file = checkpoint.decoder, checkpoint.file
    shape, weights = checkpoint.profile.shape, checkpoint.weights
    called = name or _name(path, decoder)
    text = _TEMPLATE.format(
        file=file.name,
        name=_quoted(called),
        title=_quoted(f"{decoder.model_type} decoder, from {file.name}"),
        adapter=_adapter(decoder, checkpoint.profile),
        rate=f"{(TOKENS_IN + SPOKEN) / FRAME_S:g}",
        full=_reached(shape.context_length),
        cache=describe_groups(decoder.groups),
        shape=_shape_lines(checkpoint),
        weights_said=f"{format_size(weights.size)}, {_one_line(weights.how)}" if weights else "unknown",
        policy=checkpoint.profile.policy,
        source=_quoted(f"{file.name} of {called}"),
        notes="".join(f"  - {_quoted(note)}\n" for note in checkpoint.notes),
    )
    profile = validate(Profile, parse_yaml(text, "the drafted profile"), "the drafted profile")
    return ProfileDraft(text, profile, checkpoint.notes)


def write_draft(draft: ProfileDraft, file: Path, *, force: bool = False) -> None:
    """Write the profile. Raises UsageError if the file exists and `force` is not set, or cannot be written."""
    try:
        with file.open("w" if force else "x", encoding="utf-8") as stream:
            stream.write(draft.text)
    except FileExistsError:
        raise UsageError(
            f"{file} exists already", hint="pass --force to overwrite it, or --output for another file"
        ) from None
    except OSError as error:
        raise UsageError(f"cannot write {file}: {error.strerror}", hint=write_hint(error)) from None


def _reached(context: int | None) -> str:
    if context is None:
        return "no known bound; the file states no context"
    return f"the context's end after {format_duration(context * FRAME_S / (TOKENS_IN + SPOKEN))}"


def _shape_lines(checkpoint: CheckpointProfile) -> str:
    """The keys of `shape`, a line each; groups of the cache that are not plain, a line each."""
    data = shape_data(checkpoint.decoder, checkpoint.weights)
    groups = data.pop("cache", [])
    lines = [f"  {key}: {_scalar(key, value)}" for key, value in data.items()]
    if groups:
        lines.append("  cache:")
    for group in groups:
        known = {key: value for key, value in group.items() if value not in (None, 0, False)}
        lines.append(
            "    - {" + ", ".join(f"{key}: {_scalar(key, value)}" for key, value in known.items()) + "}"
        )
    return "\n".join(lines)


def _scalar(key: str, value: object) -> str:
    if key in ("weight_bytes", "state_bytes"):
        return f"{value}B"
    if value is None:
        return "null  # not in the file"
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:.10g}" if isinstance(value, float) else _quoted(value) if key == "name" else str(value)


def _name(path: Path, decoder: DecoderConfig) -> str:
    directory = path if path.is_dir() else path.parent
    for text in (decoder.published_name.rpartition("/")[2], directory.resolve().name):
        if name := _slug(text):
            return name
    return _slug(decoder.model_type) or "model"


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9._-]+", "-", text.lower()).strip("-._")[:64].rstrip("-._")


def _adapter(decoder: DecoderConfig, profile: Profile) -> str:
    """The line that names what runs it; a comment where nothing does."""
    plain = not profile.shape.cache and None not in (decoder.mlp, decoder.vocab, decoder.context)
    if decoder.model_type in _PLAIN and plain:
        return "adapter: decoder  # runs the decoder, which was not trained on audio\n"
    return "# adapter: decoder  # left out: no adapter is known to run this model; `predict` needs none\n"


def _one_line(text: str) -> str:
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())


def _quoted(text: object) -> str:
    """A YAML double-quoted scalar on one line."""
    escaped = _one_line(str(text)).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


_TEMPLATE = """# Made by `metronome init` from {file}. Values marked CHECK are assumptions, not from that file.
#
#   metronome profiles check THIS_FILE
#   metronome predict --profile THIS_FILE --device-memory 80GiB --sessions 32
name: {name}
title: {title}
{adapter}
frame:
  period: 80ms         # CHECK: how often the model takes in audio. Moshi 80ms, MiniCPM-o 1s, Qwen-Omni 2s
  sample_rate: 16000   # CHECK: Hz of the audio that goes in
  # deadline: 80ms     # when an answer is late; the period unless given

# Cache positions per frame. As assumed here {rate} per second, which reaches {full}.
tokens:
  prefill: 1           # CHECK: positions that a frame's audio takes in the cache, markers included
  decode:
    listening: 1       # CHECK: tokens decoded per frame while the model listens; 0 if it sends nothing
    speaking: 1        # CHECK: tokens decoded per frame while it speaks
  # fused: true        # input and output streams are summed, as in Moshi: the tokens out add none

turn_taking:
  speaking_share: 50%  # CHECK: share of time that the model speaks
  mean_turn: 8s        # CHECK: mean length of one of its turns

# From {file}. A session's cache {cache}.
# Weights: {weights_said}.
shape:
{shape}

# kv_pool: {{bytes: 2GiB}}  # a budget for the cache; without it, give --kv-pool or --device-memory
policy: {policy}
# policy: window(1024, 16)  # keep the first 16 and last 1024 positions: the cache of a session is then bounded
session_length: 10m    # CHECK: required length of a session

# Memory beside the decoder's cache (a talker, an encoder's state) goes into `stages`: see docs/profiles.md.
objectives: [p99<80ms, misses<1%, empty<1%]

verified: false        # remove this and `unverified` when every CHECK is settled
unverified: [frame, tokens, turns, session_length]
sources:
  - {{what: shape, where: {source}, grade: A}}
notes:
{notes}"""
