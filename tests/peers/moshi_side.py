"""Run by the peer's own python: PyPI `moshi` makes small random weights, saves them, and serves some frames.

    python moshi_side.py OUT_DIR

Three sessions of different ages, as its server batches them: a batch of three with an execution mask, sessions
reset when they begin. Greedy, so that both sides can be compared token by token. Writes the weights under
the authors' names, and what went in and came out as `frames.safetensors`.
"""

from __future__ import annotations

import copy
import json
import sys
from pathlib import Path
from typing import Any

import torch
from moshi.models import loaders
from moshi.models.lm import LMGen, LMModel
from safetensors.torch import save_file

FRAMES, SESSIONS = 30, 3
BEGINS = (0, 4, 9)
TEXT, CODES, BOOKS = 60, 48, 4
DIM, HEADS, LAYERS, CONTEXT = 64, 4, 3, 12
DEPTH_DIM, DEPTH_LAYERS = 32, 2
DELAYS = [0, 0, *[1] * (BOOKS - 1), 0, *[1] * (BOOKS - 1)]


def language_model() -> LMModel:
    return LMModel(
        delays=DELAYS, n_q=2 * BOOKS, dep_q=BOOKS, card=CODES, text_card=TEXT, dim=DIM, num_heads=HEADS,
        num_layers=LAYERS, hidden_scale=4.125, norm="rms_norm_f32", causal=True, context=CONTEXT,
        max_period=10_000, gating="silu", layer_scale=None, positional_embedding="rope",
        depformer_dim=DEPTH_DIM, depformer_dim_feedforward=int(4.125 * DEPTH_DIM), depformer_num_heads=2,
        depformer_num_layers=DEPTH_LAYERS, depformer_layer_scale=None, depformer_multi_linear=True,
        depformer_context=BOOKS, depformer_max_period=10_000, depformer_gating="silu",
        depformer_pos_emb="none", depformer_weights_per_step=True, dtype=torch.float32, device="cpu",
    )  # fmt: skip


def codec_config() -> dict[str, Any]:
    config: dict[str, Any] = copy.deepcopy(loaders._mimi_config)
    config["seanet"].update(n_filters=4, dimension=32)
    config["transformer"].update(
        d_model=32, num_heads=4, num_layers=2, dim_feedforward=48, input_dimension=32, output_dimensions=[32],
        context=250,
    )  # fmt: skip
    config["quantizer"].update(dimension=12, bins=CODES, n_q=6, input_dimension=32, output_dimension=32)
    return config


def codec() -> Any:
    return loaders.get_mimi(None, codec_config(), num_codebooks=BOOKS)


@torch.no_grad()
def settle(module: torch.nn.Module) -> None:
    """Values under which no layer is idle and nothing explodes."""
    generator = torch.Generator().manual_seed(5)
    for name, value in module.state_dict().items():
        if not value.is_floating_point() or "_initialized" in name:
            continue
        if "cluster_usage" in name:
            value.uniform_(0.5, 2.0, generator=generator)
        elif "embedding_sum" in name or "emb." in name:
            value.normal_(0.0, 1.0, generator=generator)
        elif value.ndim == 1 or "alpha" in name:
            low, high = (-0.1, 0.1) if "bias" in name else (0.4, 1.2)
            value.uniform_(low, high, generator=generator)
        else:
            fan_in = value.shape[0] * 2 if "convtr" in name else value[0].numel()
            value.normal_(0.0, 1.2 * fan_in**-0.5, generator=generator)


@torch.no_grad()
def serve(mimi: Any, model: LMModel, audio: torch.Tensor) -> dict[str, torch.Tensor]:
    """audio: [sessions, frames, samples]. Tokens are -2 and audio 0 where nothing came out."""
    generator = LMGen(model, use_sampling=False, support_out_of_sync=True)
    heard = torch.full((SESSIONS, FRAMES, BOOKS), -2)
    said = torch.full((SESSIONS, FRAMES, 1 + BOOKS), -2)
    sound = torch.zeros_like(audio)
    with mimi.streaming(SESSIONS), generator.streaming(SESSIONS):
        for frame in range(FRAMES):
            starting = torch.tensor([begin == frame for begin in BEGINS])
            running = torch.tensor([begin <= frame for begin in BEGINS])
            for part in (mimi, generator):
                part.set_exec_mask(running)
                if starting.any():
                    part.reset_streaming(starting)
                    part.set_exec_mask(running)
            at = [max(0, frame - begin) for begin in BEGINS]
            now = torch.stack([audio[s, at[s]] for s in range(SESSIONS)])
            codes = mimi.encode(now[:, None])
            out = generator.step(codes)
            speaking = out[:, 0, 0] >= 0
            mimi.set_exec_mask(speaking)
            samples = mimi.decode(out[:, 1:].clamp(min=0))[:, 0]
            for session in range(SESSIONS):
                if running[session]:
                    heard[session, at[session]] = codes[session, :, 0]
                if speaking[session]:
                    said[session, at[session]] = out[session, :, 0]
                    sound[session, at[session]] = samples[session]
    return {"audio": audio, "heard": heard, "said": said, "sound": sound}


def main() -> None:
    out = Path(sys.argv[1])
    torch.set_num_threads(1)
    mimi, model = codec().eval(), language_model().eval()
    settle(mimi)
    settle(model)
    save_file({k: v.contiguous() for k, v in model.state_dict().items()}, out / "model.safetensors")
    save_file({k: v.contiguous() for k, v in mimi.state_dict().items()}, out / "tokenizer.safetensors")
    generator = torch.Generator().manual_seed(6)
    audio = torch.randn(SESSIONS, FRAMES, 1920, generator=generator)
    audio *= torch.tensor([0.3, 1.0, 2.0])[:, None, None]
    frames = serve(mimi, model, audio)
    with torch.no_grad():
        codes = frames["heard"][0].T[None]
        frames["whole_codes"] = mimi.encode(audio[:1].flatten(1)[:, None])[0]
        frames["whole_audio"] = mimi.decode(codes)[0, 0]
    (out / "frames").mkdir()
    save_file({k: v.contiguous() for k, v in frames.items()}, out / "frames" / "frames.safetensors")
    inner = 2 * int(4.125 * DIM) // 3, 2 * int(4.125 * DEPTH_DIM) // 3
    (out / "frames" / "sizes.json").write_text(json.dumps({"mlp": inner[0], "depth_mlp": inner[1]}))


if __name__ == "__main__":
    main()
