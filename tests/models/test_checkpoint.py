"""Reading weights: names, shards, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from metronome_cli.core.errors import UsageError
from metronome_cli.models.weights.checkpoint import (
    Checkpoint,
    TensorRecipe,
    fill,
    on_meta,
    prefixed,
    randomise,
    refuse_unexpected,
)

CPU = torch.device("cpu")


def small() -> nn.Sequential:
    with on_meta():
        return nn.Sequential(nn.Linear(4, 3), nn.LayerNorm(3))


def tensors(prefix: str = "") -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    return {
        prefix + name: torch.randn(p.shape, generator=generator) for name, p in small().state_dict().items()
    }


def test_a_directory_of_shards_fills_a_module(tmp_path: Path) -> None:
    values = tensors("net.")
    names = list(values)
    save_file({n: values[n] for n in names[:2]}, tmp_path / "a.safetensors")
    save_file({n: values[n] for n in names[2:]}, tmp_path / "b.safetensors")
    index = {n: ("a" if n in names[:2] else "b") + ".safetensors" for n in names}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
    module = small()
    fill(module, Checkpoint.open(tmp_path), prefixed("model.", "net."), CPU, torch.float32)
    for name, value in module.state_dict().items():
        assert torch.equal(value, values["net." + name])


def test_shards_need_no_index(tmp_path: Path) -> None:
    values = tensors()
    for name, value in values.items():
        save_file({name: value}, tmp_path / f"{name}.safetensors")
    assert set(Checkpoint.open(tmp_path).files) == set(values)


def test_the_first_missing_and_unexpected_tensors_are_named(tmp_path: Path) -> None:
    values = tensors()
    del values["1.bias"]
    save_file({**values, "head.extra": torch.zeros(2)}, tmp_path / "model.safetensors")
    with pytest.raises(UsageError, match=r"missing tensor 1\.bias; first unexpected tensor head\.extra"):
        fill(small(), Checkpoint.open(tmp_path), prefixed(""), CPU, torch.float32)


def test_a_tensor_that_no_rule_reads_is_named_unless_ignored(tmp_path: Path) -> None:
    save_file({**tensors(), "visual.x": torch.zeros(2)}, tmp_path / "model.safetensors")
    checkpoint = Checkpoint.open(tmp_path)
    fill(small(), checkpoint, prefixed(""), CPU, torch.float32)
    refuse_unexpected(checkpoint, ignore=("visual.*",))
    with pytest.raises(UsageError, match=r"unexpected tensor visual\.x"):
        refuse_unexpected(checkpoint)


def test_another_size_names_both_shapes(tmp_path: Path) -> None:
    values = tensors()
    values["0.weight"] = torch.zeros(3, 5)
    save_file(values, tmp_path / "model.safetensors")
    with pytest.raises(UsageError, match=r"0\.weight gives \[3, 5\], the profile's shape needs \[3, 4\]"):
        fill(small(), Checkpoint.open(tmp_path), prefixed(""), CPU, torch.float32)


def test_a_recipe_builds_one_tensor_of_several(tmp_path: Path) -> None:
    save_file({"q": torch.ones(2, 4), "k": torch.zeros(1, 4)}, tmp_path / "model.safetensors")
    with on_meta():
        module = nn.Linear(4, 3, bias=False)
    stacked = TensorRecipe(("q", "k"), torch.cat)  # type: ignore[arg-type]
    fill(module, Checkpoint.open(tmp_path), [lambda name: stacked], CPU, torch.float32)
    assert module.weight.sum() == 8


def test_the_dtype_is_the_one_asked_for(tmp_path: Path) -> None:
    save_file(tensors(), tmp_path / "model.safetensors")
    module = small()
    fill(module, Checkpoint.open(tmp_path), prefixed(""), CPU, torch.bfloat16)
    assert {p.dtype for p in module.parameters()} == {torch.bfloat16}


@pytest.mark.parametrize("name", ["pytorch_model.bin", "weights.pt"])
def test_pickles_are_refused_unopened(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(b"cos\nsystem\n(S'false'\ntR.")
    with pytest.raises(UsageError, match="pickle"):
        Checkpoint.open(tmp_path)


@pytest.mark.parametrize(("file", "content", "message"), [
    ("model.safetensors", b"\x08\x00\x00\x00\x00\x00\x00\x00notjson!", "not a safetensors file"),
    ("model.safetensors.index.json", b"{", "not readable as JSON"),
    ("model.safetensors.index.json", b"9" * 5000, "a number too long"),
    ("model.safetensors.index.json", b"{}", "no weight_map"),
    ("model.safetensors.index.json", b'{"weight_map": {"w": "gone.safetensors"}}', "gone.safetensors"),
    ("README.md", b"", "no .safetensors file"),
])  # fmt: skip
def test_broken_directories_say_what_is_wrong(
    file: str, content: bytes, message: str, tmp_path: Path
) -> None:
    (tmp_path / file).write_bytes(content)
    with pytest.raises(UsageError, match=message):
        Checkpoint.open(tmp_path)


def test_an_index_cannot_lead_out_of_its_directory(tmp_path: Path) -> None:
    inside = tmp_path / "model"
    inside.mkdir()
    save_file({"w": torch.zeros(1)}, tmp_path / "outside.safetensors")
    index = {"weight_map": {"w": "../outside.safetensors"}}
    (inside / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(UsageError, match="not there"):
        Checkpoint.open(inside)


def test_random_values_are_the_same_for_the_same_seed_and_keep_a_signals_size() -> None:
    with on_meta():
        first, again = nn.Linear(256, 256), nn.Linear(256, 256)
    randomise(first, CPU, torch.float32, seed=5)
    randomise(again, CPU, torch.float32, seed=5)
    assert torch.equal(first.weight, again.weight)
    out = first(torch.randn(64, 256, generator=torch.Generator().manual_seed(2)))
    assert 0.8 < out.std().item() < 1.2
