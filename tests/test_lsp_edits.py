"""Edits, holes and the watched canvas through the language server; what the engine answers, a test decides."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from engine_host import ScriptedHost, listening, offer, scenario
from lsp_client import URI, LspClient, LspError, at, running
from midspan_engine.framing import pack
from midspan_engine.protocol import Candidate, Draft, Fill, Filled, Slot
from midspan_server.launch import Launch

CODE = "a = 1\nb = old(a, 2)\nc = 3\n"
LINE = at(1, 0, 13)


def params(version: int = 1, span: object = LINE, **more: object) -> dict[str, Any]:
    return {"textDocument": {"uri": URI, "version": version}, "range": span, **more}


def answering(*gaps: str, confidence: float = 0.8) -> Callable[[Fill], Filled]:
    candidate = Candidate(gaps=gaps, confidence=confidence, confidences=(confidence,) * len(gaps))
    return lambda fill: Filled(id=fill.id, candidates=(candidate,))


async def begin(client: LspClient, text: str = CODE, capabilities: object = None, options: object = None) -> None:
    await client.initialize(capabilities, options)
    client.open(text)


async def held_edit(client: LspClient, host: ScriptedHost, **more: object) -> Any:
    """Starts an edit that the engine does not answer yet; returns its answer to come."""
    _, asked = client.start("midspan/edit", params(preset="refill", **more))
    await host.until(lambda: len(host.fills) == 1)
    return asked


@scenario
async def test_an_edit_is_the_smallest_versioned_changes(launch: Launch) -> None:
    async with listening(launch.socket) as host, running() as client:
        await begin(client)
        host.answer = answering("b = new(a, 5)")
        answer = await client.ask("midspan/edit", params(preset="touch_up"))
        assert answer == {
            "textDocument": {"uri": URI, "version": 1},
            "edits": [{"range": at(1, 4, 7), "newText": "new"}, {"range": at(1, 11, 12), "newText": "5"}],
            "confidence": 0.8,
        }
        (fill,) = host.fills
        assert fill.parts == ("a = 1\n", "\nc = 3\n")
        assert [held.text for held in fill.held] == ["b = old(a, 2)"]
        assert fill.strength == 0.15
        assert fill.priority == "several"
        assert not fill.watch, "nobody looks, so nobody is told"


@scenario
async def test_line_ends_and_wide_characters_stay_as_they_are(launch: Launch) -> None:
    async with listening(launch.socket) as host, running() as client:
        await begin(client, "a = '😀'\r\nb = '😀', old\r\nc\r\n")
        host.answer = answering("b = '😀', new\nd = 4")
        answer = await client.ask("midspan/edit", params(span=at(1, 0, 15), preset="rewrite", strength=0.5))
        assert answer["edits"] == [{"range": at(1, 10, 13), "newText": "new\r\nd = 4"}]
        assert host.fills[0].parts == ("a = '😀'\n", "\nc\n")
        assert host.fills[0].strength == 0.5


@scenario
async def test_what_was_typed_elsewhere_moves_the_changes_once(launch: Launch) -> None:
    async with listening(launch.socket) as host, running() as client:
        await begin(client)
        asked = await held_edit(client, host)
        client.change(2, {"range": at(0, 0, 0), "text": "import x\n"})
        client.change(3, {"range": at(3, 5, 5), "text": "0"})
        client.change(4, {"range": at(3, 5, 6), "text": ""})
        assert await client.reason() is None  # the changes have been read
        await host.release(answering("b = new(a, 2)"))
        answer = await asked
        assert answer["textDocument"] == {"uri": URI, "version": 4}
        assert answer["edits"] == [{"range": at(2, 4, 7), "newText": "new"}]


@scenario
async def test_what_was_typed_in_the_place_declines_the_edit(launch: Launch) -> None:
    async with listening(launch.socket) as host, running() as client:
        await begin(client)
        asked = await held_edit(client, host)
        client.change(2, {"range": at(1, 4, 7), "text": "mine"})
        assert await client.reason() is None
        await host.release(answering("b = new(a, 2)"))
        answer = await asked
        assert answer["edits"] == []
        assert answer["silence"] == "the text changed meanwhile; ask again"
        stale = await client.ask("midspan/edit", params(version=1, preset="refill"))
        assert stale["silence"] == "the text changed meanwhile; ask again"


@scenario
async def test_a_cancelled_edit_is_cancelled_in_the_engine(launch: Launch) -> None:
    async with listening(launch.socket) as host, running() as client:
        await begin(client)
        which, asked = client.start("midspan/edit", params(preset="refill"))
        await host.until(lambda: len(host.fills) == 1)
        client.notify("$/cancelRequest", {"id": which})
        with pytest.raises(LspError) as error:
            await asked
        assert error.value.code == -32800
        await host.until(lambda: len(host.cancelled) == 1)


@scenario
async def test_the_cancel_button_of_the_progress_cancels_too(launch: Launch) -> None:
    async with listening(launch.socket) as host, running() as client:
        await begin(client)
        asked = await held_edit(client, host, workDoneToken="t")
        client.notify("window/workDoneProgress/cancel", {"token": "t"})
        with pytest.raises(LspError) as error:
            await asked
        assert error.value.code == -32800
        await host.until(lambda: len(host.cancelled) == 1)


@scenario
async def test_a_newer_edit_supersedes_and_a_suggestion_does_not(launch: Launch) -> None:
    async with listening(launch.socket) as host, running() as client:
        await begin(client)
        older = await held_edit(client, host)
        host.answer = offer("9")
        assert await client.inline(0, 4, kind=1)
        assert not older.done()
        host.answer = answering("b = 2")
        assert (await client.ask("midspan/edit", params(preset="refill")))["edits"]
        assert "superseded" in (await older)["silence"]


@pytest.mark.parametrize(
    ("text", "span", "more", "reason"),
    [
        (CODE, LINE, {}, "give a preset or an instruction"),
        (CODE, at(1, 3, 3), {"preset": "refill"}, "nothing is selected"),
        (CODE, at(9, 0, 1), {"preset": "refill"}, "line 10 is outside the document"),
        (CODE, LINE, {"preset": "body"}, "no block is open here"),
        ("x = 1\n" * 4000, {"start": {"line": 0, "character": 0}, "end": {"line": 3999, "character": 0}},
         {"preset": "refill"}, "too many for one edit"),
    ],
)  # fmt: skip
@scenario
async def test_what_cannot_be_done_is_a_silence_with_its_reason(
    launch: Launch, text: str, span: object, more: dict[str, object], reason: str
) -> None:
    async with listening(launch.socket) as host, running() as client:
        await begin(client, text)
        answer = await client.ask("midspan/edit", params(span=span, **more))
        assert answer["edits"] == []
        assert reason in answer["silence"]
        assert reason in str(await client.reason())
        assert not host.fills


@scenario
async def test_malformed_params_are_an_error_that_says_so(launch: Launch) -> None:
    async with running() as client:
        await begin(client)
        for method in ("midspan/edit", "midspan/holes", "midspan/watch"):
            with pytest.raises(LspError, match="malformed") as error:
                await client.ask(method, {"range": 3})
            assert error.value.code == -32602


@scenario
async def test_files_that_hold_secrets_are_neither_edited_nor_offered_to_be(launch: Launch) -> None:
    async with listening(launch.socket) as host, running() as client:
        await client.initialize()
        secret = "file:///home/me/.env"
        client.open("KEY = ___\n", uri=secret)
        document = {"uri": secret, "version": 1}
        for method, more in (("midspan/edit", {"preset": "refill", "range": at(0, 0, 3)}), ("midspan/holes", {})):
            assert ".env*" in (await client.ask(method, {"textDocument": document, **more}))["silence"]
        actions = {"textDocument": {"uri": secret}, "range": at(0, 0, 9), "context": {"diagnostics": []}}
        assert await client.ask("textDocument/codeAction", actions) == []
        assert not host.fills


@scenario
async def test_a_change_that_would_break_the_syntax_is_not_offered(launch: Launch) -> None:
    async with listening(launch.socket) as host, running() as client:
        await begin(client)
        host.answer = answering("b = new((a, 2)")
        answer = await client.ask("midspan/edit", params(preset="rewrite"))
        assert [edit["newText"] for edit in answer["edits"]] == []
        assert "break the syntax" in answer["silence"]


@scenario
async def test_a_fault_of_the_server_is_a_silence_that_the_status_knows_too(launch: Launch) -> None:
    async with listening(launch.socket) as host, running() as client:
        await begin(client)
        host.answer = answering("one gap", "and one that nobody asked for")
        silence = (await client.ask("midspan/edit", params(preset="refill")))["silence"]
        assert "internal error" in silence
        assert await client.reason() == silence


HOLES = "def f(___):\n    pass\n\n\nx = f()\n"


@scenario
async def test_holes_are_asked_for_at_once_and_each_is_one_change(launch: Launch) -> None:
    async with listening(launch.socket) as host, running() as client:
        await begin(client, HOLES)
        host.answer = answering("a, b", "return a + b", "")
        answer = await client.ask("midspan/holes", {"textDocument": {"uri": URI, "version": 1}})
        assert answer["edits"] == [
            {"range": at(0, 6, 9), "newText": "a, b"},
            {"range": at(1, 4, 8), "newText": "return a + b"},
        ]
        assert answer["message"] == "filled 2 of 3 holes"
        (fill,) = host.fills
        assert fill.parts == ("def f(", "):\n    ", "\n\n\nx = f(", ")\n")
        assert [(held.text, held.single_line) for held in fill.held] == [("___", True), ("pass", False), ("", True)]
        assert fill.strength == 1


@scenario
async def test_holes_are_those_of_a_range_a_marker_or_the_cursors(launch: Launch) -> None:
    async with listening(launch.socket) as host, running() as client:
        await begin(client, HOLES + "y = TODO\n", options={"hole_marker": "TODO"})
        host.answer = lambda fill: answering(*["v"] * len(fill.held))(fill)
        document = {"uri": URI, "version": 1}
        asked = (
            ({"range": at(4, 0, 7)}, [at(4, 6, 6)]),
            ({"positions": [{"line": 4, "character": 5}, {"line": 0, "character": 6}]}, [at(0, 6, 6), at(4, 5, 5)]),
            ({"range": at(5, 0, 8)}, [at(5, 4, 8)]),
            ({"range": at(0, 0, 11), "marker": "___"}, [at(0, 6, 9)]),
        )
        for where, ranges in asked:
            answer = await client.ask("midspan/holes", {"textDocument": document, **where})
            assert [edit["range"] for edit in answer["edits"]] == ranges, where
        none = await client.ask("midspan/holes", {"textDocument": document, "range": at(2, 0, 0)})
        assert "no TODO" in none["silence"]


def drafting(share: float, step: int) -> Draft:
    slots = (
        Slot("a", True, True, 0.0),
        Slot("b", False, True, 0.1),
        Slot("c", False, False, 2.0),
        Slot("", False, True, 0.0),
    )
    return Draft(id=0, step=step, slots=slots, share=share)


async def send_drafts(host: ScriptedHost, *drafts: Draft) -> None:
    for fill, writer in host._held.values():
        for draft in drafts:
            writer.write(pack(Draft(id=fill.id, step=draft.step, slots=draft.slots, share=draft.share)))


@scenario
async def test_progress_is_told_step_by_step_under_the_clients_token(launch: Launch) -> None:
    async with listening(launch.socket) as host, running() as client:
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
    async with listening(launch.socket) as host, running() as client:
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
async def test_presets_are_told_without_an_engine(launch: Launch) -> None:
    async with running() as client:
        await begin(client)
        told = await client.ask("midspan/editPresets", {})
        assert [preset["id"] for preset in told["presets"]] == ["refill", "touch_up", "rewrite", "body", "tail"]
        assert all(preset["title"] and 0 < preset["strength"] <= 1 for preset in told["presets"])
        assert told["instructions"] is False
        assert not launch.socket.exists()


@scenario
async def test_the_running_engine_says_whether_its_checkpoint_follows_instructions(launch: Launch) -> None:
    async with listening(launch.socket) as host, running() as client:
        host.follows_instructions = True
        await begin(client)
        assert (await client.ask("midspan/editPresets", {}))["instructions"] is True
        assert not host.fills


# Any client

VERSIONED = {"workspace": {"workspaceEdit": {"documentChanges": True}}, "textDocument": {"inlineCompletion": {}}}


def action_params(span: object, **context: object) -> dict[str, Any]:
    return {"textDocument": {"uri": URI}, "range": span, "context": {"diagnostics": [], **context}}


@scenario
async def test_code_actions_offer_what_can_be_done_at_the_range(launch: Launch) -> None:
    async with running() as client:
        await client.initialize()
        client.open(HOLES)
        selected = await client.ask("textDocument/codeAction", action_params(at(0, 0, 11)))
        assert [action["command"]["command"] for action in selected] == ["midspan.applyEdit"] * 5 + [
            "midspan.applyHoles"
        ]
        assert {action["kind"] for action in selected} == {"refactor.rewrite.midspan"}
        empty = await client.ask("textDocument/codeAction", action_params(at(4, 1, 1)))
        assert [action["command"]["arguments"][0]["preset"] for action in empty] == ["tail"]
        assert await client.ask("textDocument/codeAction", action_params(at(0, 0, 11), only=["quickfix"])) == []
        assert await client.ask("textDocument/codeAction", action_params(at(0, 0, 11), only=["refactor"])) == selected


@pytest.mark.parametrize("capabilities", [VERSIONED, None])
@scenario
async def test_a_command_is_one_change_of_the_version_it_was_made_for(launch: Launch, capabilities: object) -> None:
    async with listening(launch.socket) as host, running() as client:
        await begin(client, capabilities=capabilities)
        host.answer = answering("b = new(a, 5)")
        for action in await client.ask("textDocument/codeAction", action_params(LINE)):
            if action["command"]["arguments"][0].get("preset") == "refill":
                await client.ask("workspace/executeCommand", action["command"])
        (sent,) = (each for method, each in client.asked_with if method == "workspace/applyEdit")
        edits = [{"range": at(1, 4, 7), "newText": "new"}, {"range": at(1, 11, 12), "newText": "5"}]
        if capabilities is VERSIONED:
            (change,) = sent["edit"]["documentChanges"]
            assert change == {"textDocument": {"uri": URI, "version": 1}, "edits": edits}
        else:
            assert sent["edit"]["changes"] == {URI: edits}


@scenario
async def test_a_command_without_a_change_says_why(launch: Launch) -> None:
    async with listening(launch.socket) as host, running() as client:
        await begin(client)
        host.answer = lambda fill: Filled(id=fill.id, silence="the model is at a loss")
        await client.ask(
            "workspace/executeCommand", {"command": "midspan.applyEdit", "arguments": [params(preset="refill")]}
        )
        told = await client.until_note("window/showMessage", "at a loss")
        assert told == {"type": 3, "message": "Midspan: the model is at a loss"}
        assert "workspace/applyEdit" not in client.asked
