"""The language server as a process, over its pipes, with a host behind it whose answers a test decides."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from engine_host import ScriptedHost, listening, offer, scenario
from lsp_client import URI, LspClient, LspError, at, inline_params, running
from midspan_engine.protocol import Failed, Filled, Stats
from midspan_server.engine_client import EngineClient
from midspan_server.launch import Launch


@pytest.fixture
def launch(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Launch:
    """Gives servers a home of their own, and returns the launch that they will use."""
    home = tmp_path_factory.mktemp("h")  # short: the path of a socket is
    monkeypatch.setenv("MIDSPAN_RUNTIME_DIR", str(home / "run"))
    monkeypatch.setenv("MIDSPAN_CHECKPOINT", str(home / "checkpoint"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home))
    monkeypatch.setenv("XDG_STATE_HOME", str(home))
    return Launch.resolve()


def write_settings(launch: Launch, **settings: object) -> Path:
    path = launch.checkpoint.parent / "midspan" / "settings.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(settings))
    return path


def encodings(*names: str) -> dict[str, Any]:
    return {"general": {"positionEncodings": names}, "textDocument": {"inlineCompletion": {}}}


async def begin(client: LspClient, host: ScriptedHost, text: str, *offered: str) -> None:
    await client.initialize()
    host.answer = offer(*offered)
    client.open(text)


@scenario
async def test_initialize_is_answered_long_before_an_engine_could_start(launch: Launch) -> None:
    began = time.perf_counter()
    async with running() as client:
        answer = await client.initialize()
        assert time.perf_counter() - began < 10  # a hang, not a slow machine; the usual is 0.6 s
        assert answer["serverInfo"]["name"] == "midspan"
        assert answer["capabilities"]["inlineCompletionProvider"] == {}
        assert answer["capabilities"]["textDocumentSync"]["change"] == 2
        assert answer["capabilities"]["textDocumentSync"]["openClose"] is True
        assert "completionProvider" not in answer["capabilities"]
        assert not launch.socket.exists()
        assert await client.leave() == 0


@scenario
async def test_a_suggestion_comes_with_a_range_and_line_feeds(launch: Launch) -> None:
    async with listening(launch.socket) as host, running() as client:
        await begin(client, host, "def f():\r\n    \r\n", "x = 1\n    return x")
        (item,) = await client.inline(1, 4, kind=1)
        assert item == {"insertText": "x = 1\n    return x", "range": at(1, 4, 4)}
        assert host.fills[0].parts == ("def f():\n    ", "\n")
        assert not host.fills[0].single_line


@pytest.mark.parametrize(
    ("offers", "agreed", "character"),
    [
        (("utf-8",), "utf-8", 10),
        (("utf-16", "utf-8"), "utf-16", 7),
        (("utf-7", "utf-32", "utf-16"), "utf-32", 6),
        ((), "utf-16", 7),
    ],
)
@scenario
async def test_positions_count_in_the_encoding_agreed(
    launch: Launch, offers: tuple[str, ...], agreed: str, character: int
) -> None:
    async with listening(launch.socket) as host, running() as client:
        answer = await client.initialize(encodings(*offers) if offers else None)
        assert answer["capabilities"]["positionEncoding"] == agreed
        host.answer = offer("b")
        client.open("a = '😀'\n'é😀'")
        client.change(2, {"range": at(1, 0, 0), "text": "s = "})  # the line is now: s = 'é😀'
        width = {"utf-8": 11, "utf-16": 8, "utf-32": 7}[agreed]
        client.change(3, {"range": at(1, width + 1, width + 1), "text": ", c = "})
        (item,) = await client.inline(1, character + 1)
        assert host.fills[0].parts == ("a = '😀'\ns = 'é😀", "', c = ")
        assert item["range"] == at(1, character + 1, character + 1)


@scenario
async def test_incremental_changes_reach_the_engine(launch: Launch) -> None:
    async with listening(launch.socket) as host, running() as client:
        await begin(client, host, "a\r\nb\r\nc", "1")
        client.change(2, {"range": at(1, 0, 1), "text": "x\r\ny = "}, {"range": at(0, 0, 1), "text": ""})
        client.change(
            3, {"range": {"start": {"line": 2, "character": 4}, "end": {"line": 3, "character": 1}}, "text": ""}
        )
        await client.inline(2, 4)
        assert host.fills[0].parts == ("\nx\ny = ", "")


@scenario
async def test_a_superseded_request_is_answered_while_the_engine_is_busy(launch: Launch) -> None:
    async with listening(launch.socket) as host, running() as client:
        await client.initialize()
        client.open("x = ")
        _, older = client.start("textDocument/inlineCompletion", inline_params(0, 4))
        await host.until(lambda: len(host.fills) == 1)
        _, newer = client.start("textDocument/inlineCompletion", inline_params(0, 4))
        assert await older == {"items": []}
        await host.until(lambda: len(host.fills) == 2 and len(host.cancelled) == 1)
        await host.release(offer("1"))
        assert (await newer)["items"][0]["insertText"] == "1"


@scenario
async def test_a_request_means_the_document_as_it_was_when_it_was_sent(launch: Launch) -> None:
    async with listening(launch.socket) as host, running() as client:
        await client.initialize()
        client.open("x = ")
        _, first = client.start("textDocument/inlineCompletion", inline_params(0, 4))
        client.change(2, {"range": at(0, 4, 4), "text": "fo"})
        await host.until(lambda: len(host.fills) == 1)
        assert host.fills[0].parts == ("x = ", "")
        assert await client.reason() is None  # answered after the change: it has been read
        await host.release(offer("foo()"))
        assert (await first)["items"] == [{"insertText": "o()", "range": at(0, 6, 6)}]


@scenario
async def test_a_cancelled_request_is_cancelled_in_the_engine(launch: Launch) -> None:
    async with listening(launch.socket) as host, running() as client:
        await client.initialize()
        client.open("x = ")
        which, asked = client.start("textDocument/inlineCompletion", inline_params(0, 4))
        await host.until(lambda: len(host.fills) == 1)
        client.notify("$/cancelRequest", {"id": which})
        with pytest.raises(LspError) as error:
            await asked
        assert error.value.code == -32800
        await host.until(lambda: len(host.cancelled) == 1)


@scenario
async def test_the_selected_completion_item_is_honoured(launch: Launch) -> None:
    async with listening(launch.socket) as host, running() as client:
        await begin(client, host, "import os\nos.pa", ".join(a)")
        params = inline_params(1, 5)
        params["context"]["selectedCompletionInfo"] = {"range": at(1, 3, 5), "text": "path"}
        answer = await client.ask("textDocument/inlineCompletion", params)
        assert answer["items"] == [{"insertText": "path.join(a)", "range": at(1, 3, 5)}]


@scenario
async def test_clients_without_inline_completion_get_menu_items(launch: Launch) -> None:
    async with listening(launch.socket) as host, running() as client:
        answer = await client.initialize({"textDocument": {"completion": {}}})
        assert answer["capabilities"]["completionProvider"]["triggerCharacters"]
        host.answer = offer("nt(x)\nprint(y)")
        client.open("pri")
        params = {"textDocument": {"uri": URI}, "position": {"line": 0, "character": 3}, "context": {"triggerKind": 1}}
        answer = await client.ask("textDocument/completion", params)
        assert answer["isIncomplete"] is True
        (item,) = answer["items"]
        assert item["label"] == "print(x) …"
        assert item["detail"] == "midspan"
        assert item["filterText"] == item["textEdit"]["newText"] == "print(x)\nprint(y)"
        assert item["textEdit"]["range"] == at(0, 0, 3)
        assert item["preselect"] is False


@scenario
async def test_bad_input_gets_an_answer_and_the_server_lives_on(launch: Launch) -> None:
    async with listening(launch.socket) as host, running() as client:
        with pytest.raises(LspError, match="must wait for initialize"):
            await client.inline(0, 0)
        await begin(client, host, "x = ", "1")

        assert await client.inline(99, 0) == []
        assert "line 100 is outside the document" in str(await client.reason())

        assert await client.inline(0, 0, uri="file:///unknown.py") == []
        assert "not open" in str(await client.reason())

        for position in ({"line": -1, "character": 0}, {"line": "a", "character": None}, None):
            with pytest.raises(LspError, match="malformed"):
                await client.ask("textDocument/inlineCompletion", {**inline_params(0, 0), "position": position})
        with pytest.raises(LspError) as unknown:
            await client.ask("textDocument/noSuchThing", {})
        assert unknown.value.code == -32601
        with pytest.raises(LspError, match="only once"):
            await client.ask("initialize", {"processId": None, "rootUri": None, "capabilities": {}})

        client.send_bytes(b"{")
        await client.until_error(-32700)
        client.send_bytes(b"[]")
        await client.until_error(-32600)
        client.notify("textDocument/didOpen", {"textDocument": 3})
        client.notify(
            "textDocument/didChange",
            {"textDocument": {"uri": "file:///unknown.py", "version": 1}, "contentChanges": []},
        )
        client.notify("$/noSuchThing", {})
        client.notify("$/cancelRequest", {"id": 12345})

        long = "file:///long.py"
        client.open("x" * 5_000_000, uri=long)
        client.change(2, {"range": at(0, 2_500_000, 2_500_000), "text": "é"}, uri=long)
        assert await client.inline(0, 2_500_000, uri=long, kind=1) == []
        assert "5,000,001 characters" in str(await client.reason())

        client.open("x = 1\0\ud83d", uri="file:///binary.py")
        assert await client.inline(0, 4, uri="file:///binary.py") == []
        assert "binary" in str(await client.reason())

        for strange in ("file://[a/b.py", "file:///a%00b.py", "no uri at all"):
            client.open("x = ", uri=strange)
            assert len(await client.inline(0, 4, uri=strange)) == 1

        client.open("", uri="file:///empty.py")
        assert len(await client.inline(0, 0, uri="file:///empty.py")) == 1

        client.change(
            2, {"range": {"start": {"line": 50, "character": 0}, "end": {"line": 60, "character": 0}}, "text": "y"}
        )
        assert await client.inline(0, 4) == []
        assert "open it again" in str(await client.reason())
        client.change(3, {"text": "y = "})
        assert len(await client.inline(0, 4)) == 1

        assert await client.leave() == 0


@scenario
async def test_an_engine_that_fails_is_told_once_and_shown_as_status(launch: Launch) -> None:
    async with listening(launch.socket) as host, running() as client:
        await client.initialize()
        host.answer = lambda fill: Failed(id=fill.id, message="the checkpoint is truncated", is_input=True)
        client.open("x = ")
        for _ in range(3):
            assert await client.inline(0, 4) == []
        status = await client.ask("midspan/status")
        assert status["state"] == "failed"
        assert status["reason"] == "the checkpoint is truncated"
        assert status["silences"] == ["the checkpoint is truncated"] * 3
        assert status["engine"]["state"] == "ready"
        assert status["stats"] is None
        assert client.notes == [
            ("window/showMessage", {"type": 2, "message": "Midspan: the checkpoint is truncated"}),
            ("midspan/status", {"state": "failed", "reason": "the checkpoint is truncated"}),
        ]


@scenario
async def test_the_status_tells_what_the_last_answer_of_the_engine_cost(launch: Launch) -> None:
    async with listening(launch.socket) as host, running() as client:
        await client.initialize()
        assert (await client.ask("midspan/status"))["stats"] is None
        cost = Stats(ms=12.34, steps=5, decoder_ms=9.87)
        host.answer = lambda fill: Filled(id=fill.id, silence="not confident enough", stats=cost)
        client.open("x = ")
        assert await client.inline(0, 4) == []
        status = await client.ask("midspan/status")
        assert status["stats"] == {"ms": 12.3, "steps": 5, "decoder_ms": 9.9}
        assert status["reason"] == "not confident enough"


@scenario
async def test_a_checkpoint_that_is_missing_is_said_in_plain_words(launch: Launch) -> None:
    async with running() as client:
        await client.initialize(options={"checkpoint": "/nowhere/checkpoint"})
        client.open("x = ")
        assert await client.inline(0, 4) == []
        assert "/nowhere/checkpoint" in str(await client.reason())
        await client.until_note("window/showMessage", "/nowhere/checkpoint")
    async with EngineClient(Launch.resolve(Path("/nowhere/checkpoint"))) as engine:
        await engine.shutdown_host()


@scenario
async def test_wrong_settings_are_told_and_never_end_the_server(launch: Launch) -> None:
    write_settings(launch, max_tokens="many", enabled=True)
    async with listening(launch.socket) as host, running() as client:
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
    async with listening(launch.socket) as host, running() as client:
        await begin(client, host, "x = ", "1")
        await client.until_note("window/showMessage", "nothing is completed until it is right")
        assert await client.inline(0, 4) == []
        assert await client.ask("midspan/status")
        assert host.fills == []


@scenario
async def test_the_configuration_of_the_workspace_wins_and_is_read_again(launch: Launch) -> None:
    write_settings(launch, max_tokens=5, deadline_ms=500)
    capabilities = {
        "workspace": {"configuration": True, "didChangeConfiguration": {"dynamicRegistration": True}},
        "textDocument": {"inlineCompletion": {}},
    }
    async with listening(launch.socket) as host, running() as client:
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
    async with listening(launch.socket) as host, running() as client:
        await client.initialize()
        for name in (".env", "notes.py"):
            client.open("KEY=", uri=(tmp_path / name).as_uri())
            assert await client.inline(0, 4, uri=(tmp_path / name).as_uri()) == []
            assert "excluded by '.env*'" in str(await client.reason())
        assert host.fills == []


@scenario
async def test_a_closed_document_is_forgotten_by_the_engine(launch: Launch) -> None:
    async with listening(launch.socket) as host, running() as client:
        await begin(client, host, "x = ", "1")
        await client.inline(0, 4)
        client.notify("textDocument/didClose", {"textDocument": {"uri": URI}})
        await host.until(lambda: host.forgotten == [URI])


@scenario
async def test_the_log_holds_no_source_code(launch: Launch) -> None:
    async with listening(launch.socket) as host, running("--log-level", "INFO") as client:
        await begin(client, host, "secret_name = ", "secret_name()")  # pygls logs what it sends
        assert len(await client.inline(0, 14)) == 1
        client.notify("textDocument/didOpen", {"textDocument": {"uri": URI, "text": "secret_name"}})
        client.change(2, {"range": at(70, 0, 0), "text": "secret_name"})
        for position in ("secret_name", {"line": "secret_name", "character": 0}):  # pygls logs what it cannot convert
            with pytest.raises(LspError):
                await client.ask("textDocument/inlineCompletion", {**inline_params(0, 0), "position": position})
        await client.leave()
        assert client.process.stderr is not None
        log = (await client.process.stderr.read()).decode()
        assert "malformed" in log
        assert "secret_name" not in log


@scenario
async def test_a_client_that_vanishes_takes_the_server_with_it(launch: Launch) -> None:
    async with listening(launch.socket) as host, running() as client:
        await client.initialize()
        client.open("x = ")
        client.start("textDocument/inlineCompletion", inline_params(0, 4))
        await host.until(lambda: len(host.fills) == 1)
        assert client.process.stdin is not None
        client.process.stdin.close()
        assert await client.process.wait() == 1
        await host.until(lambda: host.n_gone == 1)
        assert client.process.stderr is not None
        assert await client.process.stderr.read() == b""


@scenario
async def test_exit_does_not_wait_for_the_client_to_close_its_pipe(launch: Launch) -> None:
    async with running() as client:
        await client.initialize()
        await client.ask("shutdown")
        with pytest.raises(LspError, match="was shut down"):
            await client.inline(0, 0)
        client.notify("exit")
        assert await client.process.wait() == 0
