"""Bytes of the constant state of one layer: linear attention, Mamba, RG-LRU or a short convolution.

Sizes follow transformers' cache (convolutions keep the full kernel): per layer

    gated delta rule   v_heads x k_dim x v_dim, and (2 k_heads k_dim + v_heads v_dim) x kernel
    delta attention    heads x dim x dim, and 3 heads dim x kernel                      (linear_attn_config)
    Mamba 1            expand x hidden x (state + kernel)
    Mamba 2            heads x dim x state, and (heads dim + 2 groups state) x kernel
    RG-LRU             width, and width x (kernel - 1)
    short convolution  hidden x kernel
    lightning          heads x dim x dim

Recurrent states are float32 unless the file names their type; convolutions have the model's.
"""

from __future__ import annotations

from metronome_cli.config.cache_groups import DTYPE_BYTES
from metronome_cli.forecast.checkpoint_config.fields import Fields

_STATE_DTYPE = ("mamba_ssm_dtype", "mamba_ssm_cache_dtype", "ssm_dtype", "state_dtype")


def state_bytes(read: Fields, dtype: str) -> int | None:
    """Bytes of one layer's state; None if the file does not say its size. `dtype`: the model's."""
    for kind in (_gated_delta, _delta, _rg_lru, _mamba_2, _mamba_1, _short_convolution, _lightning):
        sizes = kind(read)
        if sizes is not None:
            recurrent, convolution = sizes
            return recurrent * _recurrent_size(read) + convolution * DTYPE_BYTES[dtype]
    return None


def _recurrent_size(read: Fields) -> int:
    stated = next((read.text(key) for key in _STATE_DTYPE if read.text(key)), "float32")
    return DTYPE_BYTES.get(stated.removeprefix("torch."), 4)


def _first(read: Fields, *keys: str) -> int | None:
    return next((value for key in keys if (value := read.count(key)) is not None), None)


def _gated_delta(read: Fields) -> tuple[int, int] | None:
    keys, values = read.count("linear_num_key_heads"), read.count("linear_num_value_heads")
    k_dim, v_dim = read.count("linear_key_head_dim"), read.count("linear_value_head_dim")
    kernel = read.count("linear_conv_kernel_dim")
    if keys is None or values is None or k_dim is None or v_dim is None or kernel is None:
        return None
    return values * k_dim * v_dim, (2 * keys * k_dim + values * v_dim) * kernel


def _delta(read: Fields) -> tuple[int, int] | None:
    inner = read.inner("linear_attn_config")
    if inner is not None:
        heads, dim, kernel = (inner.count(key) for key in ("num_heads", "head_dim", "short_conv_kernel_size"))
    else:
        heads, dim, kernel = (
            read.count(key) for key in ("linear_num_heads", "linear_head_dim", "linear_conv_kernel_dim")
        )
    if heads is None or dim is None or kernel is None:
        return None
    return heads * dim * dim, 3 * heads * dim * kernel


def _rg_lru(read: Fields) -> tuple[int, int] | None:
    width, kernel = read.count("lru_width"), read.count("conv1d_width")
    return None if width is None or kernel is None else (width, width * (kernel - 1))


def _mamba_2(read: Fields) -> tuple[int, int] | None:
    heads = _first(read, "mamba_num_heads", "mamba_n_heads", "n_mamba_heads")
    dim = _first(read, "mamba_head_dim", "mamba_d_head", "mamba_headdim")
    if heads is None and read.text("model_type") == "mamba2":
        heads, dim = read.count("num_heads"), read.count("head_dim")
    state, kernel = _state_and_kernel(read)
    groups = _first(read, "mamba_n_groups", "mamba_ngroups", "mamba_num_groups", "n_groups")
    if dim is None and heads is not None and (inner := _mamba_width(read)) is not None:
        dim = inner // heads
    if heads is None or dim is None or state is None or kernel is None or groups is None:
        return None
    return heads * dim * state, (heads * dim + 2 * groups * state) * kernel


def _mamba_1(read: Fields) -> tuple[int, int] | None:
    state, kernel = _state_and_kernel(read)
    width = _mamba_width(read)
    if state is None or kernel is None or width is None:
        return None
    return width * state, width * kernel


def _mamba_width(read: Fields) -> int | None:
    expand, hidden = _first(read, "mamba_expand", "expand"), read.count("hidden")
    return _first(read, "mamba_d_ssm") or (None if expand is None or hidden is None else expand * hidden)


def _state_and_kernel(read: Fields) -> tuple[int | None, int | None]:
    return (
        _first(read, "mamba_d_state", "ssm_state_size", "state_size"),
        _first(read, "mamba_d_conv", "conv_kernel"),
    )


def _short_convolution(read: Fields) -> tuple[int, int] | None:
    kernel, hidden = read.count("conv_L_cache"), read.count("hidden")
    return None if kernel is None or hidden is None else (0, hidden * kernel)


def _lightning(read: Fields) -> tuple[int, int] | None:
    if not read.text("model_type").startswith(("minimax", "bailing")):
        return None
    heads, dim, hidden = read.count("heads"), read.count("head_dim"), read.count("hidden")
    if dim is None and heads is not None and hidden is not None:
        dim = hidden // heads
    return None if heads is None or dim is None else (heads * dim * dim, 0)
