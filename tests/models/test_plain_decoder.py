"""Any decoder as a session: what it says against `transformers` in one pass, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from metronome_cli.core.errors import UsageError
from metronome_cli.core.types import FrameInput
from metronome_cli.engine.build_decoder import build_decoder
from metronome_cli.engine.frame_engine import FrameEngine
from metronome_cli.models.audio.audio_tokens import audio_to_tokens
from metronome_cli.models.plain_decoder import load, profile_for

SIZES: dict[str, Any] = {
    "vocab_size": 200, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "initializer_range": 0.2, "max_position_embeddings": 512,
}  # fmt: skip
LLAMA3 = {
    "rope_type": "llama3", "rope_theta": 500_000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}  # fmt: skip
KINDS: dict[str, dict[str, Any]] = {
    "llama": {"rope_parameters": LLAMA3, "tie_word_embeddings": False},
    "llama tied": {"tie_word_embeddings": True},
    "mistral": {"sliding_window": 8},
    "qwen2": {"tie_word_embeddings": False},
    "qwen3": {"head_dim": 24},
    "qwen3_moe": {"num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 24, "norm_topk_prob": True,
                  "head_dim": 16},
    "olmo2": {},
}  # fmt: skip


def model(kind: str) -> Any:
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(31)
    config = AutoConfig.for_model(kind.split(maxsplit=1)[0], **SIZES, **KINDS[kind])
    return AutoModelForCausalLM.from_config(config).eval()


def save(kind: str, folder: Path) -> Any:
    made = model(kind)
    made.save_pretrained(folder)
    return made


def tone(frames: int, seed: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    pitch, loudness = rng.uniform(80, 4000, frames), 10.0 ** rng.uniform(-3, 0, frames)
    t = np.arange(1280) / 16_000
    return [(a * np.sin(2 * np.pi * f * t)).astype(np.float32) for f, a in zip(pitch, loudness, strict=True)]


def session(folder: Path, frames: Sequence[np.ndarray], out: int) -> tuple[list[list[int]], FrameEngine]:
    profile = profile_for(str(folder))
    loaded = load(profile, weights=folder, device="cpu", seed=0)
    stack = build_decoder(loaded.decoder, blocks=64, policy=profile.policy_spec)
    machine = FrameEngine(loaded.fresh(), stack, 2)
    slot = machine.open()
    return [list(machine.step([FrameInput(slot, f, out)]).outcomes[0].tokens) for f in frames], machine


@pytest.mark.parametrize("kind", list(KINDS))
@torch.no_grad()
def test_a_session_says_what_the_reference_says_in_one_pass(kind: str, tmp_path: Path) -> None:
    reference = save(kind, tmp_path)
    frames = tone(8, seed=1)
    said, machine = session(tmp_path, frames, out=2)
    ids, answers = [], []
    for samples, tokens in zip(frames, said, strict=True):
        ids += audio_to_tokens(samples, 1, SIZES["vocab_size"])
        answers.append(len(ids) - 1)
        ids += tokens
    logits = reference(torch.tensor([ids])).logits[0]
    for at, tokens in zip(answers, said, strict=True):
        assert logits[at : at + 2].argmax(-1).tolist() == tokens
    assert machine.stack.describe()["path"] == ("general" if kind == "olmo2" else "fast")


@torch.no_grad()
def test_a_gguf_file_works_where_transformers_reads_it(tmp_path: Path) -> None:
    gguf = pytest.importorskip("gguf")
    reference = model("qwen2")
    file = tmp_path / "tiny.gguf"
    write_gguf(gguf, reference, file)
    said, _ = session(file, tone(4, seed=2), out=2)
    (tmp_path / "hf").mkdir()
    reference.save_pretrained(tmp_path / "hf")
    assert said == session(tmp_path / "hf", tone(4, seed=2), out=2)[0]


def write_gguf(gguf: Any, reference: Any, file: Path) -> None:
    """A Qwen2 as llama.cpp's files have it, in float32."""
    config, writer = reference.config, gguf.GGUFWriter(file, "qwen2")
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_vocab_size(config.vocab_size)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.QWEN2, config.num_hidden_layers)
    for name, tensor in reference.state_dict().items():
        stem, _, kind = name.rpartition(".")
        writer.add_tensor(f"{names.get_name(stem)}.{kind}", tensor.numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def test_the_profile_is_the_checkpoints(tmp_path: Path) -> None:
    folder = tmp_path / "My Model!"
    save("mistral", folder)
    profile = profile_for(str(folder))
    assert (profile.name, profile.policy, profile.adapter) == ("my-model", "window(8, 0)", "decoder")
    assert (profile.shape.layers, profile.shape.kv_heads, profile.shape.context_length) == (2, 2, 512)
    assert profile.mean_tokens_per_frame == 2


def test_random_weights_need_no_file() -> None:
    from metronome_cli.config.profile import Profile

    shape = {"layers": 2, "heads": 4, "kv_heads": 2, "head_dim": 16, "hidden_size": 64,
             "intermediate_size": 96, "vocab_size": 200,
             "dtype": "float32", "context_length": 512}  # fmt: skip
    data = {
        "name": "any", "title": "Any", "adapter": "decoder", "adapter_options": {"family": "qwen3"},
        "frame": {"period": "80ms", "sample_rate": 16_000}, "shape": shape, "policy": "unbounded",
        "tokens": {"prefill": 2, "decode": {"listening": 0, "speaking": 3}}, "kv_pool": {"blocks": 64},
    }  # fmt: skip
    profile = Profile.model_validate(data)
    loaded = load(profile, weights=None, device="cpu", seed=1)
    machine = FrameEngine(
        loaded.fresh(), build_decoder(loaded.decoder, blocks=64, policy=profile.policy_spec), 2
    )
    slots = [machine.open(), machine.open()]
    for out in (3, 0, 3):
        announced = [machine.model.positions(slot, out) for slot in slots]
        before = [machine.stack.length(slot) for slot in slots]
        machine.step([FrameInput(slot, tone(1, seed=slot)[0], out) for slot in slots])
        assert [machine.stack.length(s) - b for s, b in zip(slots, before, strict=True)] == announced


@pytest.mark.parametrize(("name", "message"), [
    ("no/such-model", "no such directory or file, and not in the local model cache"),
    ("not a name at all", "no such directory or file"),
])  # fmt: skip
def test_a_name_that_is_not_here_says_so_offline(name: str, message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        profile_for(name)
    assert caught.value.hint == "download it first; nothing is fetched here"


def test_a_directory_without_a_configuration_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no configuration that transformers reads"):
        profile_for(str(tmp_path))


def test_code_in_a_checkpoint_is_not_run(tmp_path: Path) -> None:
    (tmp_path / "evil.py").write_text("raise SystemExit('ran')\n")
    config = {"model_type": "evil", "auto_map": {"AutoConfig": "evil.EvilConfig"}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(UsageError, match="no configuration that transformers reads"):
        profile_for(str(tmp_path))


def test_a_checkpoint_of_another_size_than_the_profiles_names_the_first_difference(tmp_path: Path) -> None:
    save("qwen2", tmp_path)
    profile = profile_for(str(tmp_path))
    other = profile.model_copy(update={"shape": profile.shape.model_copy(update={"kv_heads": 4})})
    with pytest.raises(UsageError, match=r"kv_heads is 2, profile .* has 4"):
        load(other, weights=tmp_path, device="cpu", seed=0)


@given(st.integers(1, 16), st.integers(2, 200_000), st.integers(0, 2**32 - 1))
def test_sound_tokens_are_as_many_as_asked_for_and_in_the_vocabulary(
    count: int, vocab: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    audio = (rng.standard_normal(1280) * 10.0 ** rng.uniform(-6, 1)).astype(np.float32)
    tokens = audio_to_tokens(audio, count, vocab)
    assert len(tokens) == count
    assert all(0 <= token < vocab for token in tokens)
    assert tokens == audio_to_tokens(audio, count, vocab)


def test_different_sounds_are_different_tokens() -> None:
    heard = {audio_to_tokens(frame, 1, 32_000)[0] for frame in tone(200, seed=3)}
    assert len(heard) > 60
