"""Where in a configuration the main decoder is described, which other caches stand beside it, and the name of a
decoder that lives in another checkpoint.

Every nested group of keys that has a number of layers and of heads (or of a recurrent state) is a candidate.
Groups under a key of an encoder or a codec are never the decoder; a talker or a depth transformer is, only if
there is no other. Of what is left the one that is called a thinker or a text model wins, then the outermost.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from metronome_cli.core.errors import UsageError
from metronome_cli.forecast.checkpoint_config.fields import ALIASES, Fields

_ENCODER = re.compile(
    r"audio(?!.*lm)|vision|visual|image|video|encoder(?!_decoder)|codec|code2wav|token2wav|vocoder|dit|whisper|vae"
    r"|resampler|projector|adapter|perceiver|qformer|tokenizer|bigvgan|speech_(?!lm)|pixel|acoustic|semantic_tok"
)
_SIDE = re.compile(
    r"talker|tts|dep(th|former)|code_predictor|mtp|draft|eagle|local_|assistant|generator|quantization"
)
_MAIN = re.compile(r"thinker|text|llm|language|^lm|_lm|decoder|backbone|lfm|transformer")
_STATE = ("state_size", "ssm_state_size", "mamba_d_state", "conv_kernel")
ENCODERS_ONLY = (
    "bert", "roberta", "xlm-roberta", "distilbert", "albert", "electra", "deberta", "deberta-v2", "camembert",
    "modernbert", "mpnet", "wav2vec2", "wav2vec2-bert", "hubert", "wavlm", "vit", "clip", "siglip", "mimi", "encodec",
    "dac", "data2vec-audio", "data2vec-text", "parakeet_ctc", "parakeet_encoder", "ernie", "roformer", "big_bird",
    "rembert", "megatron-bert", "xmod", "roc_bert", "xlm-roberta-xl", "roberta-prelayernorm", "bert-generation",
)  # fmt: skip
_DEEPEST, _MOST_GROUPS = 8, 2000


@dataclass(frozen=True, slots=True)
class Candidate:
    """A group of keys with its path from the root."""

    path: tuple[str, ...]
    part: Mapping[str, Any]

    @property
    def dotted(self) -> str:
        return ".".join(self.path)

    def side(self) -> bool:
        """A decoder that only accompanies the main one."""
        return any(_SIDE.search(key.lower()) for key in self.path)


def find_decoder(config: Mapping[str, Any], where: str) -> tuple[Candidate, list[Candidate]]:
    """The main decoder, and the other decoders of the file. Raises UsageError saying what the file is instead."""
    groups = list(_groups(config))
    decoders = [group for group in groups if _is_decoder(group.part) and not _encodes(group)]
    if not decoders:
        raise _none_found(config, groups, where)
    main = min(decoders, key=_rank)
    return main, [group for group in decoders if group.path != main.path]


def _rank(group: Candidate) -> tuple[bool, bool, int, int]:
    joined = ".".join(group.path).lower()
    named = not group.path or bool(_MAIN.search(joined))
    return group.side(), "thinker" not in joined, not named, len(group.path)


def _groups(config: Mapping[str, Any]) -> Iterator[Candidate]:
    level = [Candidate((), config)]
    seen = 0
    while level and len(level[0].path) <= _DEEPEST:
        following: list[Candidate] = []
        for group in level:
            seen += 1
            if seen > _MOST_GROUPS:
                return
            yield group
            following += [
                Candidate((*group.path, str(key)), value)
                for key, value in group.part.items()
                if isinstance(value, Mapping)
            ]
        level = following


def _is_decoder(part: Mapping[str, Any]) -> bool:
    def has(what: str) -> bool:
        return any(part.get(key) is not None for key in ALIASES[what])

    listed = any(part.get(key) for key in ("layers_block_type", "hybrid_override_pattern"))
    return (has("layers") or listed) and (has("heads") or any(part.get(key) is not None for key in _STATE))


def _encodes(group: Candidate) -> bool:
    kind = str(group.part.get("model_type", "")).lower()
    if kind in ENCODERS_ONLY and group.part.get("is_decoder") is not True:
        return True
    return any(_ENCODER.search(key.lower()) for key in group.path)


def _none_found(config: Mapping[str, Any], groups: list[Candidate], where: str) -> UsageError:
    """What the file is, and what helps."""
    if not config:
        return UsageError(f"{where}: it is empty, so no size of the model is in it", hint=ELSEWHERE)
    kind = str(config.get("model_type", ""))[:60]
    if kind.lower() in ENCODERS_ONLY:
        return UsageError(
            f"{where}: {kind} is an encoder, which keeps no cache from frame to frame",
            hint="give the config.json of a decoder",
        )
    named = _named(groups)
    if named is not None:
        return UsageError(
            f"{where}: the decoder is in another checkpoint: {named[0]} names {named[1]}",
            hint="give that checkpoint's config.json",
        )
    part = next((g for g in groups if g.path and not _encodes(g) and _sizes(g)), groups[0])
    lacking = [what for what in ("layers", "heads", "hidden") if Fields(part.part, where).key(what) is None]
    names = "; ".join(", ".join(ALIASES[what][:4]) for what in lacking)
    return UsageError(
        f"{where}{': ' + part.dotted if part.path else ''}: no decoder is described: none of {names}"
        f"{'; its keys are ' + ', '.join(str(key)[:40] for key in list(config)[:6])}",
        hint=ELSEWHERE,
    )


ELSEWHERE = (
    "give the config.json of the checkpoint whose sizes these are, or a profile (`metronome profiles list`)"
)


def _sizes(group: Candidate) -> bool:
    """Whether some, but not all, of a decoder's sizes stand in this group."""
    return any(Fields(group.part, "").key(what) is not None for what in ("layers", "heads"))


def _named(groups: list[Candidate]) -> tuple[str, str] | None:
    """The key and the value that name a decoder's checkpoint."""
    found: list[tuple[bool, str, str]] = []
    for group in groups:
        if _encodes(group):
            continue
        for key, value in group.part.items():
            name = str(key).lower()
            own = (
                name in ("_name_or_path", "name_or_path")
                and group.path
                and _MAIN.search(group.dotted.lower())
            )
            if isinstance(value, str) and 2 < len(value) < 200 and (own or _names_a_decoder(name, value)):
                found.append(("/" not in value, ".".join((*group.path, str(key))), value))
    return min(found)[1:] if found else None


def _names_a_decoder(key: str, value: str) -> bool:
    """`text_model_id: org/model`, `pretrained_llm: ...`: a key of a language model whose value is a name."""
    if not re.search(
        r"(^|_)(text|language|llm|lm|base|pretrained|backbone|decoder|pretrained_llm)(_|$)", key
    ):
        return False
    ends = re.search(r"(id|name|path|model|llm|lm|checkpoint|backbone|decoder)$", key)
    return bool(ends) and not _ENCODER.search(key) and bool(re.fullmatch(r"[\w.@:~-]*(/[\w.@:~-]+)*", value))
