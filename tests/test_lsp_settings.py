"""What the language server takes from its settings, and what it leaves alone because of them."""

from __future__ import annotations

import json
from pathlib import Path

from engine_host import listening, offer, scenario
from lsp_client import URI, served
from midspan_server.launch import Launch


def write_settings(launch: Launch, **settings: object) -> Path:
    path = launch.checkpoint.parent / "midspan" / "settings.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(settings))
    return path


@scenario
async def test_wrong_settings_are_told_and_never_end_the_server(launch: Launch) -> None:
    write_settings(launch, max_tokens="many", enabled=True)
    async with listening(launch.socket) as host, served() as client:
        await client.initialize(options=[1])
        await client.until_note("window/showMessage", "midspan.max_tokens")
        await client.until_note("window/showMessage", "initializationOptions")
        client.open("x = ")
        assert await client.inline(0, 4) == []
        assert "initializationOptions" in str(await client.reason())  # it may have held an exclusion list
        assert host.fills == []


@scenario
async def test_a_malformed_exclusion_list_stops_completion(launch: Launch) -> None:
    write_settings(launch, excluded_globs="*.secret")
    async with listening(launch.socket) as host, served() as client:
        await client.initialize()
        host.answer = offer("1")
        client.open("x = ")
        await client.until_note("window/showMessage", "nothing is completed until it is right")
        assert await client.inline(0, 4) == []
        assert "nothing is completed" in (await client.ask("midspan/status"))["left_alone"][URI]
        assert host.fills == []


@scenario
async def test_the_configuration_of_the_workspace_wins_and_is_read_again(launch: Launch) -> None:
    write_settings(launch, max_tokens=5, deadline_ms=500)
    capabilities = {
        "workspace": {"configuration": True, "didChangeConfiguration": {"dynamicRegistration": True}},
        "textDocument": {"inlineCompletion": {}},
    }
    async with listening(launch.socket) as host, served() as client:
        client.configuration = {"max_tokens": 9}
        await client.initialize(capabilities, {"max_tokens": 7})
        host.answer = offer("1")
        client.open("x = ")
        while "client/registerCapability" not in client.asked:
            await client.reason()
        await client.inline(0, 4)
        assert (host.fills[0].max_tokens, host.fills[0].deadline_ms) == (9, 500)
        client.configuration = {"enabled": False}
        client.notify("workspace/didChangeConfiguration", {"settings": None})
        while client.asked.count("workspace/configuration") < 2:
            await client.reason()
        while await client.inline(0, 4):
            pass
        assert "midspan.enabled" in str(await client.reason())


@scenario
async def test_a_link_to_a_secret_is_as_private_as_the_secret(launch: Launch, tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("KEY=1")
    (tmp_path / "notes.py").symlink_to(tmp_path / ".env")
    async with listening(launch.socket) as host, served() as client:
        await client.initialize()
        for name in (".env", "notes.py"):
            client.open("KEY=", uri=(tmp_path / name).as_uri())
            assert await client.inline(0, 4, uri=(tmp_path / name).as_uri()) == []
            assert "excluded by '.env*'" in str(await client.reason())
        assert host.fills == []
