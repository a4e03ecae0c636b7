"""The canvas as the language server shows it: the progress of an edit, and every draft while somebody watches."""

from __future__ import annotations

import pytest

from edit_client import answering, begin, held_edit, params
from engine_host import ScriptedHost, listening, offer, scenario
from lsp_client import URI, LspClient, at, is_withdrawn, running, served
from midspan_engine.framing import pack
from midspan_engine.protocol import Draft, Slot
from midspan_server.launch import Launch

SHOWS = {"textDocument": {"inlineCompletion": {}}, "window": {"workDoneProgress": True}}
COMMAND = {"command": "midspan.applyEdit", "arguments": [params(preset="refill")]}
HOLES_COMMAND = {
    "command": "midspan.applyHoles",
    "arguments": [{"textDocument": {"uri": URI, "version": 1}, "positions": [{"line": 1, "character": 8}]}],
}


def drafting(share: float, step: int) -> Draft:
    slots = (
        Slot("a", True, True, 0.0),
        Slot("b", False, True, 0.1),
        Slot("c", False, False, 2.0),
        Slot("", False, True, 0.0),
    )
    return Draft(id=0, step=step, slots=slots, share=share)


def progress(client: LspClient) -> list[str]:
    return [note[1]["value"]["kind"] for note in client.notes if note[0] == "$/progress"]


async def send_drafts(host: ScriptedHost, *drafts: Draft) -> None:
    for fill, writer in host._held.values():
        for draft in drafts:
            writer.write(pack(Draft(id=fill.id, step=draft.step, slots=draft.slots, share=draft.share)))


@scenario
async def test_progress_is_told_step_by_step_under_the_clients_token(launch: Launch) -> None:
    async with listening(launch.socket) as host, served() as client:
        await begin(client)
        asked = await held_edit(client, host, workDoneToken="t")
        assert host.fills[0].watch
        await send_drafts(host, drafting(0.25, 1), drafting(0.75, 2))
        await host.release(answering("b = 2"))
        assert (await asked)["edits"]
        told = [note[1] for note in client.notes if note[0] == "$/progress"]
        assert {each["token"] for each in told} == {"t"}
        values = [each["value"] for each in told]
        assert [value["kind"] for value in values] == ["begin", "report", "report", "end"]
        assert [(value["percentage"], value["message"]) for value in values[1:3]] == [(25, "pass 1"), (75, "pass 2")]
        assert not [note for note in client.notes if note[0] == "midspan/draft"]


@scenario
async def test_the_canvas_is_watched_only_while_it_is_switched_on(launch: Launch) -> None:
    async with listening(launch.socket) as host, served() as client:
        await begin(client)
        assert await client.ask("midspan/watch", {"enabled": True}) == {"enabled": True}
        asked = await held_edit(client, host)
        assert host.fills[0].watch
        await send_drafts(host, drafting(0.5, 1))
        await host.release(answering("b = 2"))
        await asked
        first, last = (note[1] for note in client.notes if note[0] == "midspan/draft")
        assert (first["uri"], first["step"], first["isLast"]) == (URI, 1, False)
        assert [(slot["text"], slot["kind"]) for slot in first["slots"]] == [
            ("a", "pin"), ("b", "accepted"), ("c", "unsure"), ("", "blank"),
        ]  # fmt: skip
        assert first["slots"][2]["entropy"] == 2.0
        assert last == {**first, "isLast": True}
        host.answer = offer("9")
        await client.inline(0, 4, kind=1)
        assert host.fills[1].watch
        assert await client.ask("midspan/watch", {"enabled": False}) == {"enabled": False}
        client.change(2, {"range": at(0, 4, 5), "text": "2"})
        await client.inline(0, 4, kind=1)
        assert not host.fills[2].watch


@scenario
async def test_nothing_more_is_shown_of_what_runs_once_watching_was_switched_off(launch: Launch) -> None:
    async with listening(launch.socket) as host, served() as client:
        await begin(client)
        await client.ask("midspan/watch", {"enabled": True})
        asked = await held_edit(client, host)
        await send_drafts(host, drafting(0.5, 1))
        await client.until_note("midspan/draft")
        await client.ask("midspan/watch", {"enabled": False})
        shown = [note[1]["isLast"] for note in client.notes if note[0] == "midspan/draft"]
        assert shown == [False, True], "the end is told before the answer"
        await send_drafts(host, drafting(0.75, 2))
        await host.release(answering("b = 2"))
        assert (await asked)["edits"]
        assert [note[1]["isLast"] for note in client.notes if note[0] == "midspan/draft"] == shown


@scenario
async def test_a_command_shows_its_progress_where_the_client_gave_no_token(launch: Launch) -> None:
    async with listening(launch.socket) as host, served() as client:
        await begin(client, capabilities=SHOWS)
        _, done = client.start("workspace/executeCommand", COMMAND)
        begun = await client.until_note("$/progress", "begin")
        assert begun["token"].startswith("midspan/editing/")
        assert begun["value"] == {"kind": "begin", "title": "Midspan: editing", "cancellable": True, "percentage": 0}
        await host.until(lambda: len(host.fills) == 1)
        assert host.fills[0].watch
        await send_drafts(host, drafting(0.25, 1))
        await client.until_note("$/progress", "pass 1")
        await host.release(answering("b = new(a, 5)"))
        await done
        assert progress(client) == ["begin", "report", "end"]
        assert "workspace/applyEdit" in client.asked


@scenario
async def test_cancelling_a_command_where_its_progress_is_shown_changes_nothing(launch: Launch) -> None:
    async with listening(launch.socket) as host, served() as client:
        await begin(client, capabilities=SHOWS)
        _, done = client.start("workspace/executeCommand", COMMAND)
        begun = await client.until_note("$/progress", "begin")
        await host.until(lambda: len(host.fills) == 1)
        client.notify("window/workDoneProgress/cancel", {"token": begun["token"]})
        assert await done is None, "editors show an error of a command as a failure"
        await client.until_note("window/showMessage", "the edit was cancelled")
        await host.until(lambda: len(host.cancelled) == 1)
        assert "workspace/applyEdit" not in client.asked


@pytest.mark.parametrize("command", [COMMAND, HOLES_COMMAND], ids=["edit", "holes"])
@scenario
async def test_a_command_that_the_client_takes_back_changes_nothing(launch: Launch, command: object) -> None:
    async with listening(launch.socket) as host, served() as client:
        await begin(client, capabilities=SHOWS)
        which, done = client.start("workspace/executeCommand", command)
        await client.until_note("$/progress", "begin")
        await host.until(lambda: len(host.fills) == 1)
        client.notify("$/cancelRequest", {"id": which})
        assert await is_withdrawn(done)
        await host.until(lambda: len(host.cancelled) == 1)
        await client.until_note("$/progress", "end")
        assert await client.reason() is None, "whoever takes a request back needs no reason"
        assert "workspace/applyEdit" not in client.asked
        assert not [note for note in client.notes if note[0] == "window/showMessage"]


@scenario
async def test_a_command_under_the_clients_own_token_is_answered_when_it_is_cancelled(launch: Launch) -> None:
    async with listening(launch.socket) as host, served() as client:
        await begin(client)
        own = {**COMMAND, "arguments": [params(preset="refill", workDoneToken="t")]}
        _, done = client.start("workspace/executeCommand", own)
        await host.until(lambda: len(host.fills) == 1)
        client.notify("window/workDoneProgress/cancel", {"token": "t"})
        assert await is_withdrawn(done)
        assert progress(client) == ["begin", "end"]


@pytest.mark.parametrize("is_answered", [False, True])
@scenario
async def test_a_server_that_is_shut_down_during_a_command_ends_in_order(launch: Launch, is_answered: bool) -> None:
    async with listening(launch.socket) as host, running() as client:
        await begin(client, capabilities=SHOWS)
        client.later["workspace/applyEdit"] = []
        _, done = client.start("workspace/executeCommand", COMMAND)
        await client.until_note("$/progress", "begin")
        await host.until(lambda: len(host.fills) == 1)
        if is_answered:
            await host.release(answering("b = new(a, 5)"))
            await client.until_asked("workspace/applyEdit")
        assert await client.ask("shutdown") is None
        assert await is_withdrawn(done)
        for which in client.later["workspace/applyEdit"]:
            client.send({"id": which, "result": {"applied": True}})
        client.notify("exit")
        assert await client.process.wait() == 0
        assert client.process.stderr is not None
        assert await client.process.stderr.read() == b""


@scenario
async def test_a_token_that_is_in_use_cancels_the_edit_that_had_it_first(launch: Launch) -> None:
    async with listening(launch.socket) as host, served() as client:
        await begin(client)
        client.open("x = 1\n", uri="file:///b.py")
        first = await held_edit(client, host, workDoneToken="t")
        other = params(span=at(0, 0, 5), textDocument={"uri": "file:///b.py", "version": 1})
        _, second = client.start("midspan/edit", {**other, "preset": "refill", "workDoneToken": "t"})
        await host.until(lambda: len(host.fills) == 2)
        client.notify("window/workDoneProgress/cancel", {"token": "t"})
        assert await is_withdrawn(first)
        await host.release(answering("x = 2"))
        assert (await second)["edits"]
        assert progress(client) == ["begin", "end"]


@scenario
async def test_an_edit_that_is_over_before_the_client_knows_its_token_is_not_shown(launch: Launch) -> None:
    async with listening(launch.socket) as host, served() as client:
        await begin(client, capabilities=SHOWS)
        client.later["window/workDoneProgress/create"] = []
        host.answer = answering("b = new(a, 5)")
        await client.ask("workspace/executeCommand", COMMAND)
        (which,) = client.later["window/workDoneProgress/create"]
        client.send({"id": which, "result": None})
        assert await client.reason() is None  # the answer has been read
        assert progress(client) == []


@scenario
async def test_a_client_that_shows_no_progress_is_asked_for_none(launch: Launch) -> None:
    async with listening(launch.socket) as host, served() as client:
        await begin(client)
        host.answer = answering("b = new(a, 5)")
        await client.ask("workspace/executeCommand", COMMAND)
        assert not host.fills[0].watch
        assert "window/workDoneProgress/create" not in client.asked
