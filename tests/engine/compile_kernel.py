"""Compiles the paged kernel for GPUs that are not here; prints what ptxas says of it as JSON lines.

A program of its own: in the process of the tests the kernel is interpreted.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from metronome_cli.engine import kernel_tiling, paged_kernel
from metronome_cli.engine.step_table import ROW_FIELDS

SHAPES = {  # batch, kv_heads, group, dim, tokens, block, rolling sinks, element
    "moshi": (32, 32, 1, 128, 1, 16, False, "bf16"),
    "qwen2.5-omni prefill": (8, 4, 7, 128, 52, 16, True, "bf16"),
}
INTEGERS = {"window", "sinks", "tokens", "heads", "parts", "padded"}


def signature(names: list[str], known: dict[str, Any], element: str) -> dict[str, str]:
    kinds = {"scale": "fp32", "head_stride": "i64", "rows": "*i32", "blocks": "*i32"}
    kinds |= dict.fromkeys(INTEGERS, "i32") | dict.fromkeys(("turn", "sums", "norms"), "*fp32")
    return {name: "constexpr" if name in known else kinds.get(name, f"*{element}") for name in names}


def compiled(kernel: Any, known: dict[str, Any], element: str, capability: int, warps: int) -> Any:
    kinds = signature(kernel.arg_names, known, element)
    aligned = [i for i, kind in enumerate(kinds.values()) if kind.startswith("*") or kind == "i64"]
    source = ASTSource(
        fn=kernel,
        signature=kinds,
        constexprs={(kernel.arg_names.index(name),): value for name, value in known.items()},
        attrs={(i,): [["tt.divisibility", 16]] for i in aligned},
    )
    target = GPUTarget("cuda", capability, 32)
    return triton.compile(source, target=target, options={"num_warps": warps, "num_stages": 2})


def assembled(ptx: str, capability: int) -> dict[str, int]:
    """Registers and spilled bytes, by ptxas."""
    from triton.backends.nvidia.compiler import get_ptxas

    target = re.search(r"\.target (\w+)", ptx)
    assert target is not None
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.ptx"
        path.write_text(ptx)
        told = subprocess.run(
            [get_ptxas(capability).path, "-v", f"--gpu-name={target[1]}", str(path), "-o", f"{path}.cubin"],
            capture_output=True, text=True, check=True,
        ).stderr  # fmt: skip
    found = re.search(r"Used (\d+) registers", told), re.search(r"(\d+) bytes spill stores", told)
    assert all(found), told
    return {"registers": int(found[0][1]), "spilled": int(found[1][1])}  # type: ignore[index]


def main() -> None:
    for capability in map(int, sys.argv[1:]):
        for name, (batch, kv_heads, group, dim, tokens, block, turned, element) in SHAPES.items():
            cut = kernel_tiling.tiling(batch, kv_heads, group, tokens, 4 if element == "fp32" else 2)
            known = paged_kernel.constants(group, dim, block, cut, fields=ROW_FIELDS, turned=turned)
            kernel = compiled(paged_kernel._attend_part, known, element, capability, cut.warps)
            row = {"capability": capability, "shape": name, "shared": kernel.metadata.shared}
            print(json.dumps(row | assembled(kernel.asm["ptx"], capability)), flush=True)
        known = {"GROUP": group, "DIM": dim, "WIDTH": dim, "PARTS": kernel_tiling.MOST_PARTS}
        kernel = compiled(paged_kernel._merge_parts, known, "bf16", capability, 4)
        row = {"capability": capability, "shape": "merge", "shared": kernel.metadata.shared}
        print(json.dumps(row | assembled(kernel.asm["ptx"], capability)), flush=True)


if __name__ == "__main__":
    main()
