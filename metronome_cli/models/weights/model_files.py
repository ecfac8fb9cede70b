"""Where a decoder is, and what its configuration says: a directory, a GGUF file, or a name in the local
cache.

Nothing is fetched and no code of a checkpoint is run. Llama, Mistral, Qwen2 and Qwen3 (and Qwen3's
mixture) are read tensor by tensor, straight to the device. Other architectures that `transformers` knows
are loaded by it, and so is a GGUF file, which it turns back into plain weights.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from pydantic import ValidationError
from torch import Tensor

from metronome_cli.config.cache_groups import Dtype
from metronome_cli.config.model_shape import ModelShape
from metronome_cli.core.errors import UsageError
from metronome_cli.core.files import check_regular
from metronome_cli.engine.decoder_weights import DecoderWeights
from metronome_cli.engine.import_weights import native_window, rotary_of
from metronome_cli.engine.projection import Projection
from metronome_cli.models.decoding import Vocabulary
from metronome_cli.models.weights.checkpoint import Checkpoint, on_meta, refuse_unexpected
from metronome_cli.models.weights.experts import ExpertShape
from metronome_cli.models.weights.input_errors import LIBRARY_ERRORS, first_line, input_errors, unreadable
from metronome_cli.models.weights.load_decoder import (
    BlockVariant,
    decoder_layouts,
    load_decoder,
    weight_source,
    working_dtype,
)
from metronome_cli.models.weights.versions import need_transformers

if TYPE_CHECKING:
    from metronome_cli.engine.inspect_decoder import AttentionFacts

_OWN = frozenset({"llama", "mistral", "qwen2", "qwen3", "qwen3_moe"})
_DTYPES: dict[str, Dtype] = {"float32": "float32", "float16": "float16", "bfloat16": "bfloat16"}
_BODIES = (("model.", "lm_head.weight"), ("", "lm_head.weight"))


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """A decoder on disk. `gguf`: the file's name in `folder`, where it is one."""

    folder: Path
    gguf: str | None = None

    @property
    def path(self) -> Path:
        return self.folder / self.gguf if self.gguf else self.folder

    @property
    def name(self) -> str:
        return Path(self.gguf).stem if self.gguf else self.folder.resolve().name


def find_model(model: str) -> ModelFiles:
    """A directory, a .gguf file, or an OWNER/NAME in the local cache. Raises UsageError for anything else."""
    path = Path(model).expanduser()
    if path.is_file() and path.suffix == ".gguf":
        return ModelFiles(path.parent, path.name)
    if path.is_dir():
        return ModelFiles(path)
    if path.exists():
        raise UsageError(f"--model {model}: not a model", hint="give a checkpoint directory or a .gguf file")
    return _cached(model)


def _cached(model: str) -> ModelFiles:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

    try:
        return ModelFiles(Path(snapshot_download(model, local_files_only=True)))
    except (LocalEntryNotFoundError, HFValidationError, OSError) as error:
        raise UsageError(
            f"--model {model}: no such directory or file, and not in the local model cache",
            hint="download it first; nothing is fetched here",
        ) from error


def read_config(found: ModelFiles) -> Any:
    """Its `transformers` configuration. Raises UsageError for one that cannot be read, or needs code of
    its own."""
    from transformers import AutoConfig, PreTrainedConfig

    check_regular(found.path if found.gguf else found.folder / "config.json")
    more = {"gguf_file": found.gguf} if found.gguf else {}
    try:
        with warnings.catch_warnings(action="ignore"):  # of old keys: the file is read all the same
            config = AutoConfig.from_pretrained(
                found.folder, trust_remote_code=False, local_files_only=True, **more
            )
    except ImportError as error:
        raise UsageError(
            f"{found.path}: reading GGUF needs a package that is not installed ({error})",
            hint="pip install 'metronome-cli[gguf]'",
        ) from error
    except LIBRARY_ERRORS as error:
        raise UsageError(
            f"{_config_file(found)}: no configuration that transformers reads: {_culprit(found)}{first_line(error)}",
            hint="a Llama, Mistral, Qwen2 or Qwen3 checkpoint has a config.json",
        ) from error
    try:
        decoder = config.get_text_config()
    except LIBRARY_ERRORS as error:
        raise unreadable(found.path / "config.json", error) from error
    if not isinstance(decoder, PreTrainedConfig):
        raise UsageError(
            f"{found.path / 'config.json'}: its text_config is no group of keys", hint="check the file"
        )
    return decoder


def _config_file(found: ModelFiles) -> Path:
    return found.path if found.gguf else found.folder / "config.json"


def _culprit(found: ModelFiles) -> str:
    """ "key dtype: ": the key without which transformers makes a configuration of the rest; "" if none is alone."""
    from transformers import AutoConfig

    try:
        raw = json.loads(_config_file(found).read_text("utf-8"))
        kind = raw.pop("model_type")
    except (OSError, ValueError, AttributeError, KeyError, RecursionError):
        return ""
    for key in list(raw)[:200]:
        rest = {name: value for name, value in raw.items() if name != key}
        try:
            with warnings.catch_warnings(action="ignore"), _quiet():
                AutoConfig.for_model(kind, **rest)
        except LIBRARY_ERRORS:
            continue
        return f"key {key}: " if _fails(kind, raw) else ""
    return ""


def _fails(kind: str, raw: dict[str, Any]) -> bool:
    from transformers import AutoConfig

    try:
        with warnings.catch_warnings(action="ignore"), _quiet():
            AutoConfig.for_model(kind, **raw)
    except LIBRARY_ERRORS:
        return True
    return False


def shape_of(config: Any, found: ModelFiles | None = None) -> ModelShape:
    """The decoder's shape. Raises UsageError for a configuration whose decoder the engine does not run, by name,
    before any weight is read.
    """
    where = f"{_config_file(found)}: " if found else ""
    heads, kv_heads, head_dim = _heads(config, where)
    needed = ("num_hidden_layers", "hidden_size", "vocab_size", "max_position_embeddings")
    missing = [key for key in needed if not getattr(config, key, None)]
    if missing:
        raise UsageError(f"{where}{config.model_type}: no decoder: {missing[0]} is not given")
    rope = getattr(config, "rope_parameters", None) or {}
    try:
        return ModelShape(
            layers=int(config.num_hidden_layers),
            heads=heads,
            kv_heads=kv_heads,
            head_dim=head_dim,
            hidden_size=int(config.hidden_size),
            intermediate_size=int(getattr(config, "intermediate_size", None) or 4 * config.hidden_size),
            vocab_size=int(config.vocab_size),
            dtype=_DTYPES.get(str(config.dtype).removeprefix("torch."), "bfloat16"),
            context_length=int(config.max_position_embeddings),
            rope_theta=float(rope.get("rope_theta", 10_000.0)),
        )
    except (ValidationError, TypeError, ValueError, OverflowError) as error:
        raise unreadable(_config_file(found) if found else config.model_type, error) from None


def _heads(config: Any, where: str) -> tuple[int, int, int]:
    """Query heads, KV heads and head size. Families that are not read here are asked on the meta device."""
    if not _is_plain(config):
        facts = _inspected(config, where)
        return facts.heads, facts.kv_heads, facts.head_dim
    heads = int(config.num_attention_heads)
    head_dim = int(getattr(config, "head_dim", None) or config.hidden_size // heads)
    return heads, int(getattr(config, "num_key_value_heads", None) or heads), head_dim


def _inspected(config: Any, where: str) -> AttentionFacts:
    """What a forward pass without numbers shows. Raises UsageError if the engine cannot run such a decoder."""
    from transformers import AutoModelForCausalLM

    from metronome_cli.engine.inspect_decoder import inspect_decoder

    kind = config.model_type
    try:
        with on_meta(), _quiet():
            model: Any = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)  # type: ignore[no-untyped-call]
            return inspect_decoder(model.get_decoder())
    except LookupError as error:
        reason = str(error.args[0] if error.args else error)
    except LIBRARY_ERRORS as error:
        reason = first_line(error)
    raise UsageError(
        f"{where}{kind} cannot run on the engine's cache: {reason}",
        hint="for planning: metronome predict --model DIR",
    )


@contextmanager
def _quiet() -> Iterator[None]:
    """transformers' warnings about what is inspected are not for the user: the answer is an error or none."""
    from logging import ERROR

    from transformers.utils import logging

    before = logging.get_verbosity()
    logging.set_verbosity(ERROR)
    try:
        yield
    finally:
        logging.set_verbosity(before)


def read_decoder(found: ModelFiles, device: torch.device) -> tuple[DecoderWeights | Any, Vocabulary]:
    """The decoder for a stack, and its vocabulary. Raises UsageError naming what is missing."""
    need_transformers()
    config = read_config(found)
    shape = shape_of(config, found)
    dtype = working_dtype(shape, device)
    if _is_plain(config):
        with input_errors(found.path):
            return _own(found, config, shape, device, dtype)
    return _by_transformers(found, device, dtype)


def _is_plain(config: Any) -> bool:
    """Of a family that is read here, without the rarer biases."""
    rare = getattr(config, "mlp_bias", False) or getattr(config, "attention_bias", False)
    return config.model_type in _OWN and config.hidden_act == "silu" and not rare


def _own(
    found: ModelFiles, config: Any, shape: ModelShape, device: torch.device, dtype: torch.dtype
) -> tuple[DecoderWeights, Vocabulary]:
    checkpoint = Checkpoint.open(found.folder) if found.gguf is None else _gguf(found, config)
    form = _form(config)
    tied = bool(getattr(config, "tie_word_embeddings", False))
    layouts = [layout for body, head in _BODIES for layout in decoder_layouts(body, head, form, tied=tied)]
    decoder, vocabulary = load_decoder(weight_source(checkpoint, layouts, device, dtype, 0), shape, form)
    refuse_unexpected(checkpoint, ("*.inv_freq", "lm_head.weight"))
    checkpoint.close()
    skeleton = _skeleton(config)
    decoder.rotary = rotary_of(skeleton)
    decoder.native_window = _window(config, found)
    return decoder, vocabulary


def _gguf(found: ModelFiles, config: Any) -> Checkpoint:
    """A GGUF file's tensors, turned back into plain numbers under `transformers`' names."""
    from transformers import AutoModelForCausalLM
    from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

    load: Any = load_gguf_checkpoint
    with on_meta():
        model: Any = AutoModelForCausalLM.from_config(config)  # type: ignore[no-untyped-call]
    try:
        read = load(str(found.path), return_tensors=True, model_to_load=model)
    except LIBRARY_ERRORS as error:
        raise UsageError(f"{found.path}: transformers cannot read it: {first_line(error)}") from error
    return Checkpoint.holding(found.path, read["tensors"])


def _window(config: Any, found: ModelFiles) -> int | None:
    try:
        return native_window(config)
    except LookupError as error:
        raise UsageError(f"{found.path}: {error}", hint="layers must all attend alike") from error


def _skeleton(config: Any) -> Any:
    """One layer of the architecture without weights, for its rotary table."""
    from copy import deepcopy

    from transformers import AutoModel

    small = deepcopy(config)
    small.num_hidden_layers = 1
    if getattr(small, "layer_types", None):
        small.layer_types = small.layer_types[:1]
    small.vocab_size, small.intermediate_size = 8, 8
    try:
        with on_meta():
            model: Any = AutoModel.from_config(small)  # type: ignore[no-untyped-call]
        model.rotary_emb = type(model.rotary_emb)(config)
    except LIBRARY_ERRORS as error:
        raise unreadable(f"configuration of {config.model_type}", error) from error
    return model


def _form(config: Any) -> BlockVariant:
    kind = config.model_type
    experts = None
    if kind == "qwen3_moe":
        experts = ExpertShape(
            config.num_experts,
            config.num_experts_per_tok,
            config.moe_intermediate_size,
            normalise=config.norm_topk_prob,
        )
    return BlockVariant(
        qkv_bias=kind == "qwen2",
        head_norms=kind.startswith("qwen3"),
        experts=experts,
        eps=float(config.rms_norm_eps),
    )


def _by_transformers(found: ModelFiles, device: torch.device, dtype: torch.dtype) -> tuple[Any, Vocabulary]:
    from transformers import AutoModelForCausalLM

    more: dict[str, Any] = {"gguf_file": found.gguf} if found.gguf else {"use_safetensors": True}
    try:
        model: Any = AutoModelForCausalLM.from_pretrained(
            found.folder, dtype=dtype, trust_remote_code=False, local_files_only=True, **more
        )
    except LIBRARY_ERRORS as error:
        raise UsageError(f"{found.path}: transformers cannot load it: {first_line(error)}") from error
    model.to(device).eval()
    return model.get_decoder(), Vocabulary(_embedding(model), _head(model))


def _embedding(model: Any) -> Tensor:
    """Rows of the input embedding, with the factor that some families (Gemma) keep in its module."""
    module = model.get_input_embeddings()
    weight: Tensor = module.weight.detach()
    if getattr(module, "embed_scale", None) is None and getattr(module, "scalar_embed_scale", None) is None:
        return weight
    with torch.no_grad():
        rows: Tensor = module(torch.arange(len(weight), device=weight.device))
    return rows


def _head(model: Any) -> Projection:
    """The output matrix, with the factor that Cohere multiplies logits by and Granite divides them by."""
    head, config = model.get_output_embeddings(), model.config
    factor = float(getattr(config, "logit_scale", None) or 1.0) / float(
        getattr(config, "logits_scaling", None) or 1.0
    )
    return Projection(head.weight * factor, None if head.bias is None else head.bias * factor)
