"""How the language server begins, meets faults and ends."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine_host import listening, offer, scenario
from lsp_client import URI, LspError, at, inline_params, running
from midspan_engine.protocol import Failed, Filled, Stats
from midspan_server.engine_client import EngineClient
from midspan_server.launch import Launch


@scenario
async def test_initialize_is_answered_without_an_engine(launch: Launch) -> None:
    async with running() as client:
        answer = await client.initialize()
        assert answer["serverInfo"]["name"] == "midspan"
        assert answer["capabilities"]["inlineCompletionProvider"] == {}
        assert answer["capabilities"]["textDocumentSync"]["change"] == 2
        assert answer["capabilities"]["textDocumentSync"]["openClose"] is True
        assert "completionProvider" not in answer["capabilities"]
        assert not launch.socket.exists()
        assert await client.leave() == 0


@scenario
async def test_bad_input_gets_an_answer_and_the_server_lives_on(launch: Launch) -> None:
    async with listening(launch.socket) as host, running() as client:
        with pytest.raises(LspError, match="must wait for initialize"):
            await client.inline(0, 0)
        await client.initialize()
        host.answer = offer("1")
        client.open("x = ")

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
        assert "5,000,000 characters" in str(await client.reason())

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
        cost = Stats(ms=12.34, steps=5, encoder_steps=3, decoder_ms=9.87)
        host.answer = lambda fill: Filled(id=fill.id, silence="not confident enough", stats=cost)
        client.open("x = ")
        assert await client.inline(0, 4) == []
        status = await client.ask("midspan/status")
        assert status["stats"] == {"ms": 12.3, "steps": 5, "encoder_steps": 3, "carried_steps": 0, "decoder_ms": 9.9}
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
async def test_the_log_holds_no_source_code(launch: Launch) -> None:
    async with listening(launch.socket) as host, running("--log-level", "INFO") as client:
        await client.initialize()
        host.answer = offer("secret_name()")
        client.open("secret_name = ")  # pygls logs what it sends
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


@scenario
async def test_halves_of_characters_in_names_do_no_harm(launch: Launch) -> None:
    async with listening(launch.socket) as host, running() as client:
        name = {"processId": None, "rootUri": None, "capabilities": {}, "clientInfo": {"name": "\ud83d an editor"}}
        await client.ask("initialize", name)
        host.answer = offer("1")
        client.open("x = ", uri="file:///\ud83d.py", language="\ud83d")
        params = {"textDocument": {"uri": "file:///\ud83d.py"}, "position": {"line": 0, "character": 4}}
        assert (await client.ask("textDocument/completion", params))["items"]
        assert (host.fills[0].document, host.fills[0].language) == ("file:///\ufffd.py", "\ufffd")
