"""Completion by the language server as a process, over its pipes; what the engine answers, a test decides."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from engine_host import ScriptedHost, listening, offer, scenario
from lsp_client import URI, LspClient, at, inline_params, is_withdrawn, plain, running
from midspan_server.launch import Launch


def encodings(*names: str) -> dict[str, Any]:
    return {"general": {"positionEncodings": names}, "textDocument": {"inlineCompletion": {}}}


async def begin(client: LspClient, host: ScriptedHost, text: str, *offered: str) -> None:
    await client.initialize()
    host.answer = offer(*offered)
    client.open(text)


async def held(client: LspClient, host: ScriptedHost) -> tuple[int, asyncio.Future[Any]]:
    """Starts a request that the engine does not answer yet; returns its id and its answer to come."""
    await client.initialize()
    client.open("x = ")
    started = client.start("textDocument/inlineCompletion", inline_params(0, 4))
    await host.until(lambda: len(host.fills) == 1)
    return started


@scenario
async def test_a_suggestion_comes_with_a_range_and_line_feeds(launch: Launch) -> None:
    async with listening(launch.socket) as host, running() as client:
        await begin(client, host, "def f():\r\n    \r\n", "x = 1\n    return x")
        (item,) = await client.inline(1, 4, kind=1)
        assert plain(item) == {"insertText": "x = 1\n    return x", "range": at(1, 4, 4)}
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
        _, older = await held(client, host)
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
        assert [plain(item) for item in (await first)["items"]] == [{"insertText": "o()", "range": at(0, 6, 6)}]


@scenario
async def test_a_cancelled_request_is_cancelled_in_the_engine(launch: Launch) -> None:
    async with listening(launch.socket) as host, running() as client:
        which, asked = await held(client, host)
        client.notify("$/cancelRequest", {"id": which})
        assert await is_withdrawn(asked)
        await host.until(lambda: len(host.cancelled) == 1)


@scenario
async def test_the_selected_completion_item_is_honoured(launch: Launch) -> None:
    async with listening(launch.socket) as host, running() as client:
        await begin(client, host, "import os\nos.pa", ".join(a)")
        params = inline_params(1, 5)
        params["context"]["selectedCompletionInfo"] = {"range": at(1, 3, 5), "text": "path"}
        answer = await client.ask("textDocument/inlineCompletion", params)
        assert [plain(item) for item in answer["items"]] == [{"insertText": "path.join(a)", "range": at(1, 3, 5)}]


@scenario
async def test_clients_without_inline_completion_get_menu_items(launch: Launch) -> None:
    async with listening(launch.socket) as host, running() as client:
        answer = await client.initialize({"textDocument": {"completion": {}}})
        assert answer["capabilities"]["completionProvider"]["triggerCharacters"]
        host.answer = offer("nt(\n    x\n)")
        client.open("pri")
        params = {"textDocument": {"uri": URI}, "position": {"line": 0, "character": 3}, "context": {"triggerKind": 1}}
        answer = await client.ask("textDocument/completion", params)
        assert answer["isIncomplete"] is True
        (item,) = answer["items"]
        assert item["label"] == "print( …"
        assert item["detail"] == "midspan"
        assert item["filterText"] == item["textEdit"]["newText"] == "print(\n    x\n)"
        assert item["textEdit"]["range"] == at(0, 0, 3)
        assert item["documentation"] == "print(\n    x\n)"
        assert item["sortText"] == "0"
        assert item["preselect"] is False


@pytest.mark.parametrize("popup", [False, True])
@scenario
async def test_clients_with_ghost_text_get_menu_items_only_when_they_want_them(launch: Launch, popup: bool) -> None:
    async with listening(launch.socket) as host, running() as client:
        answer = await client.initialize(options={"popup": popup})
        assert ("completionProvider" in answer["capabilities"]) is popup
        if popup:
            host.answer = offer("nt(x)")
            client.open("pri")
            params = {"textDocument": {"uri": URI}, "position": {"line": 0, "character": 3}}
            (item,) = (await client.ask("textDocument/completion", params))["items"]
            assert item["label"] == "print(x)"


@scenario
async def test_a_closed_document_is_forgotten_by_the_engine(launch: Launch) -> None:
    async with listening(launch.socket) as host, running() as client:
        await begin(client, host, "x = ", "1")
        await client.inline(0, 4)
        client.notify("textDocument/didClose", {"textDocument": {"uri": URI}})
        await host.until(lambda: host.forgotten == [URI])


@scenario
async def test_a_document_opened_again_in_another_language_is_asked_for_anew(launch: Launch) -> None:
    async with listening(launch.socket) as host, running() as client:
        await client.initialize()
        host.answer = offer("1")
        for language in ("python", "javascript"):
            client.open("x = ", language=language)
            assert len(await client.inline(0, 4)) == 1
            assert [fill.language for fill in host.fills if fill.priority == "typed"][-1] == language
