"""The kernels give what their references give, in Triton's interpreter."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
@pytest.mark.parametrize("file", ["interpreted_kernels.py", "interpreted_experts.py"])
def test_the_kernels_give_what_their_references_give(file: str) -> None:
    """In a process of its own: Triton interprets only what was imported for that."""
    pytest.importorskip("triton")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "poisoned_memory", file],
        cwd=Path(__file__).parent,
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout
