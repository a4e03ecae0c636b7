"""Messages that no editor should send, to the language server as a process."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine_host import scenario
from lsp_client import LspError, running


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))


@pytest.mark.parametrize(
    "message",
    [
        {"method": "$/cancelRequest", "params": {"id": {}}},
        {"id": [], "result": 3},
        {"id": {}, "method": "midspan/status"},
        {"id": [1], "method": "midspan/status"},
        {"id": 1.5, "method": "midspan/status"},
        {"id": None, "method": "midspan/status"},
        {"id": 5, "method": []},
    ],
    ids=str,
)
@scenario
async def test_an_unusable_id_or_method_is_refused_in_plain_words(message: dict[str, object]) -> None:
    async with running() as client:
        await client.initialize()
        client.send(message)
        await client.until_error(-32600)
        assert "Traceback" not in client.errors[0]["message"]
        assert "data" not in client.errors[0]
        assert await client.leave() == 0


@scenario
async def test_a_malformed_initialize_may_be_followed_by_a_right_one() -> None:
    async with running() as client:
        with pytest.raises(LspError) as error:
            await client.ask("initialize", {"processId": None, "rootUri": None, "capabilities": 3})
        assert error.value.code == -32602
        assert (await client.initialize())["serverInfo"]["name"] == "midspan"
        assert await client.leave() == 0
