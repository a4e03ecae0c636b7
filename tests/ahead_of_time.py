"""Compiles Triton kernels for GPUs that are not there, just as they would be launched."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch

SHARED_KIB = {80: 163, 89: 99, 90: 227, 100: 227, 120: 99}
"""What a program may have at most by compute capability. Source: technical specifications, CUDA programming guide."""
_OPTIONS = ("num_warps", "num_stages")


class Launch(NamedTuple):
    """A kernel, the types of its arguments and what is fixed when it is compiled; equal ones compile to the same."""

    kernel: Any
    signature: tuple[tuple[str, str], ...]
    constants: tuple[tuple[str, Any], ...]
    aligned: tuple[int, ...]
    """Which arguments 16 divides: otherwise the compiler expects odd addresses and spills where in use nothing does."""
    options: tuple[tuple[str, int], ...]


class Fit(NamedTuple):
    """What a program of a kernel takes."""

    spilled_bytes: int
    shared_bytes: int


def launches(run: Callable[[], Any]) -> set[Launch]:
    """Returns what `run`, on tensors without memory, would launch."""
    import triton

    found: set[Launch] = set()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(triton.JITFunction, "run", lambda kernel, *args, **about: found.add(_launch(kernel, args, about)))
        run()
    return found


def _launch(kernel: Any, args: tuple[Any, ...], about: dict[str, Any]) -> Launch:
    options = tuple((name, about[name]) for name in _OPTIONS if name in about)
    given = dict(zip(kernel.arg_names, args, strict=False))
    given |= {name: value for name, value in about.items() if name in kernel.arg_names}
    fixed = {param.name for param in kernel.params if param.is_constexpr}
    fixed |= {name for name, value in given.items() if type(value) is int and value == 1}
    return Launch(
        kernel,
        tuple((name, "constexpr" if name in fixed else _type(given[name])) for name in kernel.arg_names),
        tuple((name, given[name]) for name in kernel.arg_names if name in fixed),
        tuple(at for at, name in enumerate(kernel.arg_names) if name not in fixed and _is_aligned(given[name])),
        options,
    )


def _type(value: Any) -> str:
    if not isinstance(value, torch.Tensor):
        return "fp32" if isinstance(value, float) else "i32"
    from triton.runtime.jit import mangle_type

    name: str = mangle_type(value)
    return name


def _is_aligned(value: Any) -> bool:
    return isinstance(value, torch.Tensor) or (isinstance(value, int) and value % 16 == 0)


def fit(launch: Launch, capability: int) -> Fit:
    """Compiles a launch for a compute capability and returns what a program takes."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.backends.nvidia.compiler import get_ptxas

    attributes = {(at,): [["tt.divisibility", 16]] for at in launch.aligned}
    source = triton.compiler.ASTSource(launch.kernel, dict(launch.signature), dict(launch.constants), attributes)
    compiled = triton.compile(source, target=GPUTarget("cuda", capability, 32), options=dict(launch.options))
    chip = f"sm_{capability}{'a' if capability >= 90 else ''}"
    told = subprocess.run(
        [get_ptxas(capability).path, "-v", f"--gpu-name={chip}", "-o", "/dev/null", "-"],
        input=compiled.asm["ptx"],
        capture_output=True,
        text=True,
        check=True,
    ).stderr
    spilled = re.findall(r"(\d+) bytes spill", told)
    assert spilled, told
    return Fit(sum(int(n) for n in spilled), compiled.metadata.shared)
