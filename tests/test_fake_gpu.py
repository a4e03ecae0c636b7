"""What serves and measures on a GPU keeps its tensors there, and captured passes hold nothing that a graph cannot."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from torch.utils import cpp_extension

GUARD = """
#include <c10/core/impl/DeviceGuardImplInterface.h>
static c10::impl::DeviceGuardImplRegistrar registrar(
    c10::DeviceType::CUDA, new c10::impl::NoOpDeviceGuardImpl<c10::DeviceType::CUDA>());
"""
"""Lets a torch without a driver change to a GPU: it does nothing."""


@pytest.fixture
def guard(tmp_path: Path) -> Path:
    if shutil.which("g++") is None:
        pytest.skip("needs g++")
    source, library = tmp_path / "guard.cpp", tmp_path / "guard.so"
    source.write_text(GUARD)
    command = ["g++", "-std=c++20", "-shared", "-fPIC", str(source), "-o", str(library), "-lc10"]
    command += [f"-I{folder}" for folder in cpp_extension.include_paths()]
    command += [f"-L{folder}" for folder in cpp_extension.library_paths()]
    subprocess.run(command, check=True)
    return library


@pytest.mark.slow
def test_every_policy_an_edit_and_every_figure_of_the_check_run_on_a_gpu_that_is_not_there(guard: Path) -> None:
    pytest.importorskip("triton")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(Path(__file__).with_name("fake_gpu.py")), str(guard)],
        env={key: value for key, value in os.environ.items() if key != "MIDSPAN_KERNELS"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    figures = ["memory", "step over 256 slots", "step over 64 slots", "fill", "rows", "token by token", "peak"]
    assert done.stdout.split("\n")[:-1] == ["probe", "fixed", "echo", "blanks", *figures]
