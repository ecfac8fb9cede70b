"""Runs the engine's real code on CUDA tensors that are not there, and counts what a GPU would be asked to do.

`FakeTensorMode` gives tensors of `device='cuda'` shapes without memory on any build of PyTorch; an operation on
two devices raises there. A dispatch mode sees every operation and adds up kernels, bytes read and written, copies
from and to the host, and everything that makes the host wait for the device. CUDA graphs, streams and events are
replaced by ones that count: a graph's operations count when it is replayed. Values do not exist: a token that is
read back is 1, a flag is true.

Bytes: an operation reads its inputs and writes its outputs once; a lookup reads what it returns; a matrix product
with a mixture's experts reads the experts that its rows hit on average; the paged kernel reads the resident keys
and values of the forward's table, and its partial sums. Left out: caches of the device (rereads within one
operation are free), allocator traffic. Kernels: one per operation, except those in `LAUNCHES`.
"""

from __future__ import annotations

import collections
import contextlib
import ctypes
import math
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from metronome_cli.engine.kernel_tiling import tiling

VIEWS = frozenset(
    [
        "view",
        "_unsafe_view",
        "expand",
        "transpose",
        "permute",
        "t",
        "slice",
        "select",
        "unsqueeze",
        "squeeze",
        "unbind",
        "split",
        "split_with_sizes",
        "as_strided",
        "alias",
        "detach",
        "reshape",
        "_reshape_alias",
        "unfold",
        "chunk",
        "lift_fresh",
        "narrow",
        "view_as_real",
        "empty",
        "new_empty",
        "empty_like",
        "empty_strided",
        "new_empty_strided",
        "_assert_async",
        "is_pinned",
        "diagonal",
    ]
)
LAUNCHES = {"topk": 3, "sort": 4, "argsort": 4, "cumsum": 2, "index_put_": 2, "index_put": 2, "convolution": 2,
            "_fft_r2c": 2, "_grouped_mm": 2, "paged_attention": 2}  # fmt: skip
LOOKUPS = frozenset({"index_select", "gather", "index", "embedding"})
SCATTERS = frozenset(
    {"index_copy_", "index_put_", "index_put", "scatter_", "index_add_", "scatter", "index_copy"}
)
FILLS = frozenset({"fill_", "zero_", "zeros", "ones", "full", "arange", "new_zeros", "new_ones", "new_full",
                   "zeros_like", "ones_like", "full_like", "scalar_tensor", "exponential_", "normal_"})  # fmt: skip
PRODUCTS = frozenset(
    {"mm", "addmm", "bmm", "baddbmm", "linear", "convolution", "_grouped_mm", "grouped_product"}
)
WAITS = frozenset({"nonzero", "unique", "_unique2", "masked_select", "equal", "bincount", "is_nonzero"})


@dataclass
class Work:
    """What one stage asked of the device. Bytes and floating-point operations; `weight_bytes` are part of `read`."""

    launched: int = 0  # kernels, one by one
    replayed: int = 0  # kernels inside graphs
    read: int = 0
    written: int = 0
    weight_bytes: int = 0
    cache_bytes: int = 0  # keys and values: resident ones read, new ones written
    flops: float = 0.0
    flops_float32: float = 0.0

    def add(self, other: Work) -> None:
        for name, value in asdict(other).items():
            setattr(self, name, getattr(self, name) + value)

    @property
    def moved(self) -> int:
        return self.read + self.written

    @property
    def least(self) -> int:
        """Bytes that cannot be spared: weights once, resident cache once, new cache."""
        return self.weight_bytes + self.cache_bytes


@dataclass
class Count:
    """Everything counted since the last `reset`."""

    stages: dict[str, Work] = field(default_factory=lambda: collections.defaultdict(Work))
    to_device: collections.Counter[str] = field(default_factory=collections.Counter)
    pageable: collections.Counter[str] = field(default_factory=collections.Counter)
    waits: collections.Counter[str] = field(default_factory=collections.Counter)
    problems: collections.Counter[str] = field(default_factory=collections.Counter)
    replays: int = 0
    captures: int = 0

    @property
    def total(self) -> Work:
        total = Work()
        for work in self.stages.values():
            total.add(work)
        return total


def _tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, list | tuple):
        return [tensor for one in value for tensor in _tensors(one)]
    return []


def _bytes(tensor: torch.Tensor) -> int:
    """Of the distinct elements: an expanded dimension is read once."""
    numbers = math.prod(
        1 if stride == 0 else size for size, stride in zip(tensor.shape, tensor.stride(), strict=True)
    )
    return numbers * tensor.element_size()


def _on_gpu(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    return [tensor for tensor in tensors if tensor.device.type == "cuda"]


def _site() -> str:
    frame = sys._getframe(2)
    while frame is not None:
        name = frame.f_code.co_filename
        if "metronome_cli" in name:
            return f"{name.split('metronome_cli' + os.sep)[-1]}:{frame.f_lineno}"
        frame = frame.f_back  # type: ignore[assignment]
    return "?"


class Meter(TorchDispatchMode):
    """Counts into `count`, under the stage that is current."""

    def __init__(self) -> None:
        super().__init__()
        self.count = Count()
        self.stage = "between"
        self.quiet = 0  # > 0: nothing is counted
        self.graph: FakeGraph | None = None  # under capture
        self.weights: set[int] = set()  # storages made while `loading`
        self.loading = False
        self.held: list[Any] = []  # keeps storages of weights, so that their numbers stay theirs
        self.resident = 0  # positions that the forward's queries may read, of all sessions together
        self.new = 0  # positions that it adds

    def reset(self) -> None:
        self.count = Count()

    def work(self) -> Work:
        return self.graph.work if self.graph is not None else self.count.stages[self.stage]

    def wait(self, what: str) -> None:
        if not self.quiet:
            self.count.waits[f"{_site()} {what}"] += 1
        if self.graph is not None:
            self.count.problems[f"{_site()} waits inside a graph: {what}"] += 1

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func.namespace == "prim":  # asks a tensor for its device
            return func(*args, **(kwargs or {}))
        name = func._schema.name.split("::")[1]
        inputs = _tensors([*args, *kwargs.values()])
        if name == "_local_scalar_dense":
            return self._scalar(args[0])
        if name in WAITS and _on_gpu(inputs):
            self.wait(name)
        composite = torch._C.DispatchKey.CompositeImplicitAutograd
        whole = name in ("_grouped_mm", "scaled_dot_product_attention")
        if (
            func.namespace == "aten"
            and not whole
            and name not in VIEWS
            and func.has_kernel_for_dispatch_key(composite)
        ):
            with self:
                parts = func.decompose(*args, **kwargs)
                if parts is not NotImplemented:
                    return parts
        out = func(*args, **kwargs)
        outputs = _tensors(out)
        if self.loading:
            for tensor in _on_gpu(outputs):
                self.held.append(tensor.untyped_storage())
                self.weights.add(tensor.untyped_storage()._cdata)
        if (not self.quiet or self.graph is not None) and (_on_gpu(inputs) or _on_gpu(outputs)):
            self._note(func, name, args, inputs, outputs)
        return out

    def _scalar(self, tensor: torch.Tensor) -> bool | float | int:
        if tensor.device.type == "cuda":
            self.wait("item")
        if tensor.dtype == torch.bool:
            return True
        return 1.0 if tensor.is_floating_point() else 1

    def _note(self, func: Any, name: str, args: Any, inputs: Any, outputs: Any) -> None:
        if name in ("_to_copy", "copy_"):
            source, target = (args[1], args[0]) if name == "copy_" else (args[0], outputs[0])
            if source.device.type != target.device.type:
                self._copy(source, target)
                return
        cpu = [tensor for tensor in inputs if tensor.device.type == "cpu" and tensor.dim() > 0]
        if cpu and name.startswith("index"):
            self.count.pageable[_site()] += 1
        elif cpu:
            self.count.problems[f"{_site()} a CPU tensor in {name}"] += 1
        if name not in VIEWS and not self._is_view(func):
            self._account(name, args, inputs, outputs)

    def _is_view(self, func: Any) -> bool:
        schema = func._schema
        writes = any(a.alias_info is not None and a.alias_info.is_write for a in schema.arguments)
        return not writes and any(r.alias_info is not None for r in schema.returns)

    def _copy(self, source: torch.Tensor, target: torch.Tensor) -> None:
        site = _site()
        if self.graph is not None:
            self.count.problems[f"{site} copies to or from the host inside a graph"] += 1
        if target.device.type != "cuda":
            self.wait("copy to the host")
        elif source.untyped_storage()._cdata in PINNED:
            self.count.to_device[site] += 1
        else:
            self.count.pageable[site] += 1

    def _account(self, name: str, args: Any, inputs: Any, outputs: Any) -> None:
        read, written, flops, weights = _cost(self, name, args, _on_gpu(inputs), _on_gpu(outputs))
        work = self.work()
        launches = LAUNCHES.get(name, 1)
        work.launched += launches
        work.read += read
        work.written += written
        work.weight_bytes += weights
        work.flops += flops
        if outputs and outputs[0].dtype == torch.float32:
            work.flops_float32 += flops


def _cost(meter: Meter, name: str, args: Any, inputs: Any, outputs: Any) -> tuple[int, int, float, int]:
    """(read, written, operations, bytes of weights among the read) of one operation."""
    read, written = sum(map(_bytes, inputs)), sum(map(_bytes, outputs))
    if name == "paged_attention":
        return _attention_cost(meter, args, outputs)
    if name in ("_grouped_mm", "grouped_product"):
        return _experts_cost(meter, args, outputs)
    if name in LOOKUPS:
        return written + sum(_bytes(t) for t in inputs[1:]), written, 0.0, 0
    if "embedding_bag" in name:  # a sum of rows of a table
        return _bytes(args[1]) + args[1].numel() * args[0].shape[1] * args[0].element_size(), written, 0.0, 0
    if name in SCATTERS:
        moved = inputs[-1].numel() * inputs[0].element_size()
        return sum(map(_bytes, inputs[1:])), moved, 0.0, 0
    if name in FILLS:
        return 0, written, 0.0, 0
    if name == "copy_":
        return _bytes(args[1]), _bytes(args[0]), 0.0, 0
    if name == "index_fill_":
        share = args[2].numel() / args[0].shape[args[1]]
        return 8 * args[2].numel(), int(_bytes(args[0]) * share), 0.0, 0
    weights = 0
    if name in PRODUCTS:
        weights = sum(_bytes(t) for t in inputs if t.untyped_storage()._cdata in meter.weights)
    return read, written, _flops(name, args, outputs), weights


def _flops(name: str, args: Any, outputs: Any) -> float:
    if name in ("mm", "bmm"):
        return 2.0 * outputs[0].numel() * args[0].shape[-1]
    if name in ("addmm", "baddbmm"):
        return 2.0 * outputs[0].numel() * args[1].shape[-1]
    if name == "linear":
        return 2.0 * outputs[0].numel() * args[0].shape[-1]
    if name == "convolution":
        return 2.0 * outputs[0].numel() * math.prod(args[1].shape[1:])
    return 0.0


@dataclass(frozen=True)
class Attended:
    """One call of the paged kernel, whose cost grows with the positions of the forward. Bytes of one position."""

    position_bytes: int
    tiles: int  # of query rows, each of which reads the keys
    flops: float

    def add_to(self, work: Work, resident: int, new: int) -> None:
        work.read += self.position_bytes * resident * self.tiles
        work.flops += self.flops * resident
        work.cache_bytes += self.position_bytes * (resident + new)


def _attention_cost(meter: Meter, args: Any, outputs: Any) -> tuple[int, int, float, int]:
    queries, keys, tokens = args[0], args[1], args[6]
    (kv_heads, _, _, dim), heads = keys.shape, queries.shape[1]
    cut = tiling(len(queries) // tokens, kv_heads, heads // kv_heads, tokens, keys.element_size())
    partial = 0 if cut.parts == 1 else queries.numel() * cut.parts * 4
    call = Attended(2 * kv_heads * dim * keys.element_size(), cut.tiles, 4.0 * heads * dim * tokens)
    if meter.graph is not None:
        meter.graph.attended.append(call)
    else:
        call.add_to(meter.work(), meter.resident, meter.new)
    return _bytes(queries) + partial, _bytes(outputs[0]) + partial, 0.0, 0


def _experts_cost(meter: Meter, args: Any, outputs: Any) -> tuple[int, int, float, int]:
    rows, matrices = args[0], args[1]
    count = matrices.shape[0]
    hit = count * (1 - (1 - 1 / count) ** len(rows))  # expected, if rows fall on experts evenly
    weights = int(_bytes(matrices) * hit / count)
    flops = 2.0 * outputs[0].numel() * rows.shape[1]
    return _bytes(rows) + weights, _bytes(outputs[0]), flops, weights


PINNED: set[int] = set()
_PINNED_STORAGES: list[Any] = []


class FakeGraph:
    def __init__(self) -> None:
        self.work = Work()
        self.attended: list[Attended] = []

    def replay(self) -> None:
        meter = METER
        work = Work(**asdict(self.work))
        for call in self.attended:
            call.add_to(work, meter.resident, meter.new)
        work.replayed, work.launched = work.launched, 0
        meter.count.replays += 1
        meter.count.stages[meter.stage].add(work)


class FakeStream:
    def __init__(self, *_: Any, **__: Any) -> None: ...

    def wait_stream(self, _: Any) -> None: ...


class FakeEvent:
    def __init__(self, *_: Any, **__: Any) -> None: ...

    def record(self, *_: Any) -> None: ...

    def synchronize(self) -> None:
        METER.wait("event")

    def elapsed_time(self, _: Any) -> float:
        return 0.0


@contextlib.contextmanager
def _captured(graph: FakeGraph, **_: Any) -> Iterator[None]:
    METER.graph = graph
    try:
        yield
    finally:
        METER.graph = None
        METER.count.captures += 1


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Nothing inside is counted."""
    METER.quiet += 1
    try:
        yield
    finally:
        METER.quiet -= 1


@contextlib.contextmanager
def _side_stream(_: Any) -> Iterator[None]:
    with quiet():
        yield


def _attention(q: Any, k: Any, v: Any, attn_mask: Any = None, *_: Any, **__: Any) -> torch.Tensor:
    """Fused attention of PyTorch: queries, keys, values and mask read once."""
    if q.device != k.device or (attn_mask is not None and attn_mask.device != q.device):
        raise RuntimeError("scaled_dot_product_attention on two devices")
    with quiet():
        graph, METER.graph = METER.graph, None
        out = torch.empty(*q.shape[:-1], v.shape[-1], dtype=q.dtype, device=q.device)
        METER.graph = graph
    if q.device.type == "cuda" and (not METER.quiet or graph is not None):
        work = METER.work()
        work.launched += 1
        work.read += sum(_bytes(t) for t in (q, k, v, attn_mask) if t is not None)
        work.written += _bytes(out)
        work.flops += 4.0 * q.numel() * k.shape[-2]
    return out


def _to_list(self: torch.Tensor) -> Any:
    if self.device.type == "cuda":
        METER.wait("tolist")
    one: Any = True if self.dtype == torch.bool else (1.0 if self.is_floating_point() else 1)

    def filled(shape: tuple[int, ...]) -> Any:
        return one if not shape else [filled(shape[1:]) for _ in range(shape[0])]

    return filled(tuple(self.shape))


def _to_numpy(self: torch.Tensor, *_: Any, **__: Any) -> np.ndarray[Any, Any]:
    if self.device.type != "cpu":
        raise TypeError("can't convert a CUDA tensor to numpy")
    kinds = {
        torch.float32: np.float32,
        torch.float64: np.float64,
        torch.int64: np.int64,
        torch.bool: np.bool_,
    }
    return np.zeros(tuple(self.shape), kinds[self.dtype])


def _pinned(self: torch.Tensor, *_: Any) -> torch.Tensor:
    PINNED.add(self.untyped_storage()._cdata)
    _PINNED_STORAGES.append(self.untyped_storage())
    return self


def _drawn(name: str) -> Callable[..., torch.Tensor]:
    def method(self: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
        if self.device.type == "cuda" and (not METER.quiet or METER.graph is not None):
            work = METER.work()
            work.launched += 1
            work.written += _bytes(self)
        return self

    method.__name__ = name
    return method


class _Generator(torch.Generator):
    """A generator of a GPU, which a CPU build cannot make."""

    def __new__(cls, device: Any = "cpu") -> _Generator:
        return super().__new__(cls, "cpu")

    def __init__(self, device: Any = "cpu") -> None: ...


def _lend_device_guard() -> None:
    """A CPU build has no device guard for CUDA, which indexing asks for: lend it that of the meta device."""
    library = ctypes.CDLL(os.path.join(os.path.dirname(torch.__file__), "lib", "libc10.so"))
    slots = (ctypes.c_void_p * 32).in_dll(library, "_ZN3c104impl26device_guard_impl_registryE")
    cuda, meta = 1, 14  # c10::DeviceType
    if not slots[cuda]:
        slots[cuda] = slots[meta]


METER = Meter()


@contextlib.contextmanager
def fake_cuda() -> Iterator[Meter]:
    """Inside, `device="cuda"` works and nothing is computed. Everything replaced is put back."""
    global METER  # noqa: PLW0603 - graphs and events count into the meter of the run
    METER = Meter()
    _lend_device_guard()
    replaced: list[tuple[Any, str, Any]] = []

    def put(owner: Any, name: str, value: Any) -> None:
        replaced.append((owner, name, owner.__dict__.get(name, replaced)))
        setattr(owner, name, value)

    cuda: Any = torch.cuda
    for name, value in {
        "Stream": FakeStream, "Event": FakeEvent, "CUDAGraph": FakeGraph, "graph": _captured,
        "stream": _side_stream, "current_stream": lambda *_: FakeStream(), "graph_pool_handle": lambda: 0,
        "synchronize": lambda *_: METER.wait("synchronize"), "device": lambda _: contextlib.nullcontext(),
        "get_device_capability": lambda *_: (9, 0),
    }.items():  # fmt: skip
        put(cuda, name, value)
    put(torch, "Generator", _Generator)
    put(torch.nn.functional, "scaled_dot_product_attention", _attention)
    for name, method in {
        "tolist": _to_list, "numpy": _to_numpy, "pin_memory": _pinned,
        "__array__": _to_numpy, "exponential_": _drawn("exponential_"), "normal_": _drawn("normal_"),
    }.items():  # fmt: skip
        put(FakeTensor, name, method)
    try:
        with FakeTensorMode(allow_non_fake_inputs=True), METER:
            yield METER
    finally:
        for owner, name, value in reversed(replaced):
            if value is replaced:
                delattr(owner, name)
            else:
                setattr(owner, name, value)
        PINNED.clear()
        _PINNED_STORAGES.clear()
