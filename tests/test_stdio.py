"""What the language server says when nobody is at the other end."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize("device", [subprocess.DEVNULL, None], ids=["device", "file"])
def test_a_server_without_an_editor_says_so(tmp_path: Path, device: int | None) -> None:
    path = tmp_path / "in"
    path.write_bytes(b"")
    with path.open("rb") as file:
        done = subprocess.run(
            [sys.executable, "-P", "-m", "midspan_server", "lsp"],
            stdin=file if device is None else device,
            capture_output=True,
            text=True,
            timeout=30,
        )
    assert done.returncode == 2
    assert done.stderr.startswith("midspan: ")
    assert done.stderr.endswith("let an editor start it\n")
    assert done.stderr.count("\n") == 1
