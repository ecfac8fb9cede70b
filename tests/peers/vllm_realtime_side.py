"""Run by the peer's own python: a small speech recogniser's shape, tokenizer and settings, for vLLM's own API server.

    python vllm_realtime_side.py DIR

No weights: the server is started with `--load-format dummy`, which makes random ones. The architecture is the one
that serves Qwen3-ASR at `/v1/realtime`: an audio tower, a decoder, an answer for every five seconds of speech. The
model's module imports names of a package for pictures, which has no build for this environment and is not used;
`DIR/names` holds a package of that name whose every attribute is empty.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast
from transformers.models.qwen3_asr import Qwen3ASRFeatureExtractor, Qwen3ASRProcessor

SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|audio_start|>", "<|audio_pad|>", "<|audio_end|>",
           "<asr_text>")  # fmt: skip
SENTENCES = ("user assistant system language english", "the quick brown fox jumps over the lazy dog",
             "she sells sea shells by the sea shore")  # fmt: skip
VOCABULARY = 512


def tokenizer() -> PreTrainedTokenizerFast:
    bare = Tokenizer(models.BPE())
    bare.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bare.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY - len(SPECIAL),
        initial_alphabet=alphabet,
        special_tokens=[],
        show_progress=False,
    )
    bare.train_from_iterator(SENTENCES * 20, trainer)
    bare.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL])
    return PreTrainedTokenizerFast(
        tokenizer_object=bare, eos_token="<|im_end|>", pad_token="<|endoftext|>", audio_token="<|audio_pad|>",
        audio_bos_token="<|audio_start|>", audio_eos_token="<|audio_end|>",
    )  # fmt: skip


def config(words: PreTrainedTokenizerFast) -> dict[str, Any]:
    token = words.convert_tokens_to_ids
    return {
        "architectures": ["Qwen3ASRRealtimeGeneration"],
        "model_type": "qwen3_asr",
        "thinker_config": {
            "model_type": "qwen3_asr_thinker",
            "audio_token_id": token("<|audio_pad|>"),
            "audio_start_token_id": token("<|audio_start|>"),
            "audio_end_token_id": token("<|audio_end|>"),
            "audio_config": {
                "model_type": "qwen3_asr_audio_encoder", "num_mel_bins": 128, "encoder_layers": 2,
                "encoder_attention_heads": 4, "encoder_ffn_dim": 128, "d_model": 64, "max_source_positions": 1500,
                "n_window": 50, "n_window_infer": 800, "conv_chunksize": 500, "downsample_hidden_size": 32,
                "output_dim": 64, "activation_function": "gelu",
            },
            "text_config": {
                "model_type": "qwen3_asr_text", "vocab_size": VOCABULARY, "hidden_size": 64, "intermediate_size": 128,
                "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32,
                "max_position_embeddings": 8192, "rope_theta": 10000.0, "tie_word_embeddings": True,
                "rope_scaling": {
                    "rope_type": "default", "mrope_section": [8, 4, 4], "mrope_interleaved": True,
                },
            },
        },
        "torch_dtype": "float32",
        "eos_token_id": token("<|im_end|>"),
    }  # fmt: skip


NAMES = """
import importlib.abc
import importlib.machinery
import sys
import types


class Kind(type):
    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Kind(name, (), {})


class Names(types.ModuleType):
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Kind(name, (), {})


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path=None, target=None):
        inside = name.startswith("torchvision.")
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if inside else None

    def create_module(self, spec):
        return Names(spec.name)

    def exec_module(self, module):
        module.__path__ = []


__version__ = "0.28.0"
sys.meta_path.append(Finder())
"""


def main() -> None:
    folder = Path(sys.argv[1])
    package = folder / "names" / "torchvision"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(NAMES)
    words = tokenizer()
    processor = Qwen3ASRProcessor(feature_extractor=Qwen3ASRFeatureExtractor(), tokenizer=words)
    processor.save_pretrained(folder)
    (folder / "config.json").write_text(json.dumps(config(words), indent=1))


if __name__ == "__main__":
    main()
