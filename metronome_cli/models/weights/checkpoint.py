"""Weights from safetensors files, by name, straight to a device in a dtype; nothing in them is executed.

A `Layout` says where a model's tensor is found in the file: the names to read, and how to make one tensor of
them. Several layouts are tried in turn for each tensor, so the authors' names and those of `transformers`
both load. What fits no layout is an error that names the first missing and the first unexpected tensor.

Only safetensors is read: it is a header of names, dtypes and offsets before plain numbers. Pickle files
(`.bin`, `.pt`) run code when they are opened and are refused.
"""

from __future__ import annotations

import fnmatch
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from metronome_cli.core.errors import UsageError
from metronome_cli.core.files import check_regular

INDEX = "model.safetensors.index.json"
_PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt")


def _only(tensors: Sequence[Tensor]) -> Tensor:
    return tensors[0]


@dataclass(frozen=True, slots=True)
class TensorRecipe:
    """The tensors to read from the file, and the function that makes the wanted one of them."""

    sources: tuple[str, ...]
    build: Callable[[Sequence[Tensor]], Tensor] = _only


CheckpointLayout = Callable[
    [str], TensorRecipe | None
]  # a module's tensor name -> where it is, None: this layout has no say


def prefixed(*prefixes: str) -> tuple[CheckpointLayout, ...]:
    """Layouts that put one of these prefixes before the module's own names."""

    def layout(prefix: str) -> CheckpointLayout:
        return lambda name: TensorRecipe((prefix + name,))

    return tuple(layout(prefix) for prefix in prefixes)


@dataclass(slots=True)
class Checkpoint:
    """The tensors of a directory of safetensors files (or of one file), read when asked for."""

    root: Path
    files: Mapping[str, Path]  # tensor name -> file
    used: set[str] = field(default_factory=set)
    _open: dict[tuple[Path, str], Any] = field(default_factory=dict)
    _held: Mapping[str, Tensor] = field(default_factory=dict)  # tensors that are in memory already

    @classmethod
    def holding(cls, path: Path, tensors: Mapping[str, Tensor]) -> Checkpoint:
        """Tensors that another reader took out of `path`."""
        return cls(path, dict.fromkeys(tensors, path), _held=tensors)

    @classmethod
    def open(cls, path: Path) -> Checkpoint:
        """Index the tensors at `path`. Raises UsageError where there is nothing readable, saying why."""
        if path.is_file():
            return cls(path.parent, dict.fromkeys(_names(path), path))
        if not path.is_dir():
            raise UsageError(f"{path}: no such checkpoint", hint="give a directory with .safetensors files")
        index = path / INDEX
        found = _from_index(index) if index.is_file() else _from_files(sorted(path.glob("*.safetensors")))
        if not found:
            raise _nothing_readable(path)
        return cls(path, found)

    def config(self) -> dict[str, Any]:
        """The checkpoint's config.json; {} where it has none. Raises UsageError for broken JSON."""
        path = self.root / "config.json"
        return _json_object(path) if path.is_file() else {}

    def has(self, recipe: TensorRecipe) -> bool:
        return all(name in self.files for name in recipe.sources)

    def shape(self, name: str) -> tuple[int, ...]:
        """A tensor's shape, from the header alone."""
        return tuple(self._handle(self.files[name], "cpu").get_slice(name).get_shape())

    def read(self, name: str, device: torch.device, dtype: torch.dtype | None = None) -> Tensor:
        """One tensor, placed on `device` as it is read; cast there when `dtype` is given."""
        self.used.add(name)
        if name in self._held:
            return self._held[name].to(device, dtype)
        tensor: Tensor = self._handle(self.files[name], str(device)).get_tensor(name)
        return tensor if dtype is None or not tensor.is_floating_point() else tensor.to(dtype)

    def unused(self, ignore: Iterable[str] = ()) -> Iterator[str]:
        """Names that were never read and match none of the `ignore` patterns, in the files' order."""
        patterns = tuple(ignore)
        for name in self.files:
            if name not in self.used and not any(fnmatch.fnmatchcase(name, p) for p in patterns):
                yield name

    def close(self) -> None:
        """Let go of the files."""
        self._open.clear()
        self._held = {}

    def _handle(self, path: Path, device: str) -> Any:
        from safetensors import SafetensorError, safe_open

        key = (path, device)
        if key not in self._open:
            check_regular(path)
            try:
                self._open[key] = safe_open(path, framework="pt", device=device)
            except (SafetensorError, OSError) as error:
                raise UsageError(f"{path}: not a safetensors file ({error})") from error
        return self._open[key]


def _names(path: Path) -> list[str]:
    from safetensors import SafetensorError, safe_open

    if path.suffix != ".safetensors":
        raise UsageError(f"{path}: only .safetensors files are read", hint="pickle files can run code")
    check_regular(path)
    try:
        with safe_open(path, framework="pt") as file:
            return list(file.keys())
    except (SafetensorError, OSError) as error:
        raise UsageError(f"{path}: not a safetensors file ({error})") from error


def _from_index(index: Path) -> dict[str, Path]:
    weight_map = _json_object(index).get("weight_map")
    if not isinstance(weight_map, dict):
        raise UsageError(f"{index}: no weight_map in it")
    files = {name: index.parent / Path(str(file)).name for name, file in weight_map.items()}
    for file in dict.fromkeys(files.values()):
        if not file.is_file():
            raise UsageError(
                f"{index}: names {file.name}, which is not there", hint="download the whole checkpoint"
            )
    return files


def _from_files(paths: Sequence[Path]) -> dict[str, Path]:
    return {name: path for path in paths for name in _names(path)}


def _json_object(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_text("utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError, OSError) as error:
        raise UsageError(f"{path}: not readable as JSON ({error})") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path}: a number too long, or nested too deep") from error
    if not isinstance(data, dict):
        raise UsageError(f"{path}: a JSON object is expected")
    return data


def _nothing_readable(path: Path) -> UsageError:
    pickled = [file.name for pattern in _PICKLES for file in sorted(path.glob(pattern))]
    if pickled:
        return UsageError(
            f"{path}: only pickle weights ({pickled[0]}), which can run code when opened",
            hint="convert them to safetensors first",
        )
    return UsageError(f"{path}: no .safetensors file in it", hint="give a directory with .safetensors files")


@contextmanager
def on_meta() -> Iterator[None]:
    """Modules made inside have shapes and no memory, until `fill` or `randomise` gives them some."""
    with torch.device("meta"):
        yield


def fill(
    module: nn.Module,
    checkpoint: Checkpoint,
    layouts: Sequence[CheckpointLayout],
    device: torch.device,
    dtype: torch.dtype,
    *,
    optional: Iterable[str] = (),
) -> None:
    """Give every parameter (and persistent buffer) of `module` its values from the checkpoint.

    Raises UsageError for the first tensor that no layout finds or whose shape differs. Names that match an
    `optional` pattern stay as they are when the file lacks them.
    """
    patterns = tuple(optional)
    for name, old in list(module.state_dict(keep_vars=True).items()):
        recipe = _find(name, checkpoint, layouts)
        if recipe is None:
            if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns):
                continue
            raise _misfit(checkpoint, name, layouts)
        value = recipe.build([checkpoint.read(source, device, dtype) for source in recipe.sources])
        if tuple(value.shape) != tuple(old.shape):
            raise UsageError(
                f"{checkpoint.root}: {recipe.sources[0]} gives {list(value.shape)}, "
                f"the profile's shape needs {list(old.shape)}",
                hint="use the profile of this checkpoint's size",
            )
        _put(module, name, value.contiguous())


def refuse_unexpected(checkpoint: Checkpoint, ignore: Iterable[str] = ()) -> None:
    """Raises UsageError naming the first tensor that nothing asked for."""
    first = next(checkpoint.unused(ignore), None)
    if first is not None:
        raise UsageError(
            f"{checkpoint.root}: unexpected tensor {first}", hint="this checkpoint is of another architecture"
        )


def _find(name: str, checkpoint: Checkpoint, layouts: Sequence[CheckpointLayout]) -> TensorRecipe | None:
    for layout in layouts:
        recipe = layout(name)
        if recipe is not None and checkpoint.has(recipe):
            return recipe
    return None


def _misfit(checkpoint: Checkpoint, name: str, layouts: Sequence[CheckpointLayout]) -> UsageError:
    asked = [source for layout in layouts if (recipe := layout(name)) for source in recipe.sources]
    wanted = next((source for source in asked if source not in checkpoint.files), name)
    unread = next(checkpoint.unused(), None)
    message = f"{checkpoint.root}: missing tensor {wanted}"
    if unread is not None:
        message += f"; first unexpected tensor {unread}"
    return UsageError(message, hint="this checkpoint is of another architecture or size")


def _put(module: nn.Module, name: str, value: Tensor) -> None:
    *path, leaf = name.split(".")
    owner = module.get_submodule(".".join(path))
    if leaf in owner._parameters:
        owner._parameters[leaf] = nn.Parameter(value, requires_grad=False)
    else:
        owner._buffers[leaf] = value


@torch.no_grad()
def randomise(module: nn.Module, device: torch.device, dtype: torch.dtype, seed: int) -> None:
    """Random values made on the device: N(0, 1/fan_in) matrices, norms of one, biases of zero.

    With that scale a signal keeps its size from layer to layer, so no shape overflows in 16 bits.
    """
    generator = torch.Generator(device).manual_seed(seed)
    for name, old in list(module.state_dict(keep_vars=True).items()):
        value = torch.empty(old.shape, device=device, dtype=dtype)
        if old.ndim >= 2:
            fan_in = old.shape[-1] if old.ndim == 3 and "conv" not in name else old[0].numel()
            value.normal_(0.0, max(1, fan_in) ** -0.5, generator=generator)
        else:
            value.fill_(0.0 if name.endswith("bias") else 1.0)
        _put(module, name, value)


def parameter_count(*modules: nn.Module) -> int:
    """Parameters of the modules together."""
    return sum(parameter.numel() for module in modules for parameter in module.parameters())
