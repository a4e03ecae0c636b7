"""Runs the command line the way a shell does, in an environment of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
SOURCE_ROOTS = ("server", "engine", "kernels")
SHOP = "def total(price, quantity):\n    return price * quantity\n"

Environment = dict[str, str]


def environment_in(folder: Path) -> Environment:
    """Return an environment with settings, sockets and logs of its own."""
    names = {"XDG_CONFIG_HOME": "config", "XDG_STATE_HOME": "state", "MIDSPAN_RUNTIME_DIR": "run"}
    folders = {variable: str(folder / name) for variable, name in names.items()}
    roots = os.pathsep.join(str(ROOT / root) for root in SOURCE_ROOTS)
    theirs = ("MIDSPAN_CHECKPOINT",)  # may name another checkpoint to test
    inherited = {k: v for k, v in os.environ.items() if k in theirs or not k.startswith("MIDSPAN_")}
    return {**inherited, **folders, "PYTHONPATH": roots, "OMP_NUM_THREADS": "1"}


def midspan(environment: Environment, *arguments: str | Path, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "midspan_server", *map(str, arguments)],
        env=environment,
        input=stdin,
        capture_output=True,
        timeout=120,
    )


def refused(done: subprocess.CompletedProcess[bytes], status: int = 2) -> str:
    """Return the one line that a refused command says."""
    told = done.stderr.decode()
    assert done.returncode == status, told
    assert told.startswith("midspan: ")
    assert told.count("\n") == 1, told
    assert "Traceback" not in told
    return told


def write(tmp_path: Path, data: bytes, name: str = "shop.py") -> Path:
    path = tmp_path / name
    path.write_bytes(data)
    return path
