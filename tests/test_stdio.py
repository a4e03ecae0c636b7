"""The pipes of the language server: nobody at the other end, and headers that make no sense."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from engine_host import PATIENCE_S, scenario
from lsp_client import running


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))


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
            timeout=PATIENCE_S,
        )
    assert done.returncode == 2
    assert done.stderr.startswith("midspan: ")
    assert done.stderr.endswith("let an editor start it\n")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("length", [b"1" * 5000, b"99999999999"], ids=["5000 digits", "93 GiB"])
@scenario
async def test_a_length_that_cannot_be_true_ends_the_server_with_a_reason(length: bytes) -> None:
    async with running() as client:
        await client.initialize()
        assert client.process.stdin is not None
        client.process.stdin.write(b"Content-Length: " + length + b"\r\n\r\n")
        await client.until_error(-32700)
        assert "header announces" in client.errors[0]["message"]
        assert await client.process.wait() == 1
        assert client.process.stderr is not None
        assert b"Traceback" not in await client.process.stderr.read()
