"""Run by the peer's own python: PyPI `moshi`'s server on a CPU, with small random weights made on the spot.

    python moshi_server_side.py DIR PORT

The server is the package's own `moshi.server`, unchanged but for `torch.cuda.synchronize`, which its warm-up calls
on a CPU too.
"""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path
from typing import Any

import sentencepiece
import torch
from moshi_side import (
    BOOKS,
    CODES,
    CONTEXT,
    DELAYS,
    DEPTH_DIM,
    DEPTH_LAYERS,
    DIM,
    HEADS,
    LAYERS,
    TEXT,
    codec,
    codec_config,
    language_model,
    settle,
)
from safetensors.torch import save_file

SENTENCES = ("the quick brown fox jumps over the lazy dog", "she sells sea shells by the sea shore",
             "a stitch in time saves nine", "all that glitters is not gold")  # fmt: skip


def config(folder: Path) -> dict[str, Any]:
    return {
        "dim": DIM, "text_card": TEXT, "existing_text_padding_id": 3, "n_q": 2 * BOOKS, "dep_q": BOOKS, "card": CODES,
        "num_heads": HEADS, "num_layers": LAYERS, "hidden_scale": 4.125, "causal": True, "layer_scale": None,
        "context": CONTEXT, "max_period": 10_000, "gating": "silu", "norm": "rms_norm_f32",
        "positional_embedding": "rope", "depformer_dim": DEPTH_DIM,
        "depformer_dim_feedforward": int(4.125 * DEPTH_DIM), "depformer_num_heads": 2,
        "depformer_num_layers": DEPTH_LAYERS, "depformer_layer_scale": None, "depformer_multi_linear": True,
        "depformer_context": BOOKS, "depformer_max_period": 10_000, "depformer_gating": "silu",
        "depformer_pos_emb": "none", "depformer_weights_per_step": True, "delays": DELAYS,
        "mimi_config_name": f"file://{folder / 'mimi.json'}",
    }  # fmt: skip


def make(folder: Path) -> list[str]:
    """Weights, configuration and a tokenizer; the server's arguments for them."""
    mimi, model = codec().eval(), language_model().eval()
    settle(mimi)
    settle(model)
    moshi_file, mimi_file = folder / "model.safetensors", folder / "tokenizer.safetensors"
    save_file({k: v.contiguous() for k, v in model.state_dict().items()}, moshi_file)
    save_file({k: v.contiguous() for k, v in mimi.state_dict().items()}, mimi_file)
    (folder / "mimi.json").write_text(json.dumps(codec_config()))
    (folder / "config.json").write_text(json.dumps(config(folder)))
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(SENTENCES * 50), model_prefix=str(folder / "words"), vocab_size=TEXT, pad_id=3,
        hard_vocab_limit=False, model_type="bpe", minloglevel=2,
    )  # fmt: skip
    return [
        "--config-path", str(folder / "config.json"), "--moshi-weight", str(moshi_file),
        "--mimi-weight", str(mimi_file), "--tokenizer", str(folder / "words.model"),
    ]  # fmt: skip


def main() -> None:
    folder, port = Path(sys.argv[1]), sys.argv[2]
    torch.set_num_threads(1)
    made = make(folder)
    torch.cuda.synchronize = lambda device=None: None
    sys.argv = [
        "moshi.server",
        "--host",
        "127.0.0.1",
        "--port",
        port,
        "--device",
        "cpu",
        "--static",
        "none",
        *made,
    ]
    runpy.run_module("moshi.server", run_name="__main__")


if __name__ == "__main__":
    main()
