"""Edits and holes through the language server; what the engine answers, a test decides."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from edit_client import CODE, LINE, answering, begin, held_edit, params
from engine_host import listening, offer, scenario
from lsp_client import URI, LspError, at, is_withdrawn, served
from midspan_engine.protocol import Filled
from midspan_server.launch import Launch


@scenario
async def test_an_edit_is_the_smallest_versioned_changes(launch: Launch) -> None:
    async with listening(launch.socket) as host, served() as client:
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
    async with listening(launch.socket) as host, served() as client:
        await begin(client, "a = '😀'\r\nb = '😀', old\r\nc\r\n")
        host.answer = answering("b = '😀', new\nd = 4")
        answer = await client.ask("midspan/edit", params(span=at(1, 0, 15), preset="rewrite", strength=0.5))
        assert answer["edits"] == [{"range": at(1, 10, 13), "newText": "new\r\nd = 4"}]
        assert host.fills[0].parts == ("a = '😀'\n", "\nc\n")
        assert host.fills[0].strength == 0.5


@scenario
async def test_what_was_typed_elsewhere_moves_the_changes_once(launch: Launch) -> None:
    async with listening(launch.socket) as host, served() as client:
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
    async with listening(launch.socket) as host, served() as client:
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
async def test_what_would_not_fit_the_text_as_it_is_now_declines_the_edit(launch: Launch) -> None:
    async with listening(launch.socket) as host, served() as client:
        await begin(client, "x = dict( ___ )\n")
        _, asked = client.start("midspan/holes", {"textDocument": {"uri": URI, "version": 1}})
        await host.until(lambda: len(host.fills) == 1)
        client.change(2, {"range": at(0, 4, 8), "text": ""})
        assert await client.reason() is None
        await host.release(answering("k=1"))
        assert (await asked)["silence"] == "the text changed meanwhile; ask again"


@scenario
async def test_a_cancelled_edit_is_cancelled_in_the_engine(launch: Launch) -> None:
    async with listening(launch.socket) as host, served() as client:
        await begin(client)
        which, asked = client.start("midspan/edit", params(preset="refill"))
        await host.until(lambda: len(host.fills) == 1)
        client.notify("$/cancelRequest", {"id": which})
        assert await is_withdrawn(asked)
        await host.until(lambda: len(host.cancelled) == 1)


@scenario
async def test_the_cancel_button_of_the_progress_cancels_too(launch: Launch) -> None:
    async with listening(launch.socket) as host, served() as client:
        await begin(client)
        asked = await held_edit(client, host, workDoneToken="t")
        client.notify("window/workDoneProgress/cancel", {"token": "t"})
        assert await is_withdrawn(asked)
        await host.until(lambda: len(host.cancelled) == 1)


@scenario
async def test_a_newer_edit_supersedes_and_a_suggestion_does_not(launch: Launch) -> None:
    async with listening(launch.socket) as host, served() as client:
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
        (CODE, LINE, {"preset": "polish"}, "no preset polish; choose one of refill, touch_up, rewrite, body, tail"),
        (CODE, LINE, {"preset": "refill", "strength": 2}, "a strength of 2 is none"),
        (CODE, LINE, {"preset": "refill", "strength": 0}, "a strength of 0 is none"),
        ("x = 1\n" * 4000, {"start": {"line": 0, "character": 0}, "end": {"line": 3999, "character": 0}},
         {"preset": "refill"}, "too many for one edit"),
    ],
)  # fmt: skip
@scenario
async def test_what_cannot_be_done_is_a_silence_with_its_reason(
    launch: Launch, text: str, span: object, more: dict[str, object], reason: str
) -> None:
    async with listening(launch.socket) as host, served() as client:
        await begin(client, text)
        answer = await client.ask("midspan/edit", params(span=span, **more))
        assert answer["edits"] == []
        assert reason in answer["silence"]
        assert reason in str(await client.reason())
        assert not host.fills


@scenario
async def test_malformed_params_are_an_error_that_says_so(launch: Launch) -> None:
    async with served() as client:
        await begin(client)
        for method in ("midspan/edit", "midspan/holes", "midspan/watch"):
            with pytest.raises(LspError, match="malformed") as error:
                await client.ask(method, {"range": 3})
            assert error.value.code == -32602


@scenario
async def test_files_that_hold_secrets_are_neither_edited_nor_offered_to_be(launch: Launch) -> None:
    async with listening(launch.socket) as host, served() as client:
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
    async with listening(launch.socket) as host, served() as client:
        await begin(client)
        host.answer = answering("b = new((a, 2)")
        answer = await client.ask("midspan/edit", params(preset="rewrite"))
        assert [edit["newText"] for edit in answer["edits"]] == []
        assert "break the syntax" in answer["silence"]


@scenario
async def test_a_change_that_takes_a_function_away_is_not_offered_unless_words_asked_for_it(
    launch: Launch,
) -> None:
    async with listening(launch.socket) as host, served() as client:
        await begin(client, "def old(a):\n    return a\n")
        host.answer = answering("def new(a):")
        selected = at(0, 0, 11)
        answer = await client.ask("midspan/edit", params(span=selected, preset="rewrite"))
        assert answer["silence"] == "the change would take away the definition of old"
        answer = await client.ask("midspan/edit", params(span=selected, instruction="call it new"))
        assert [edit["newText"] for edit in answer["edits"]] == ["new"]


@scenario
async def test_a_fault_of_the_server_is_a_silence_that_the_status_knows_too(launch: Launch) -> None:
    async with listening(launch.socket) as host, served() as client:
        await begin(client)
        host.answer = answering("one gap", "and one that nobody asked for")
        silence = (await client.ask("midspan/edit", params(preset="refill")))["silence"]
        assert "internal error" in silence
        assert await client.reason() == silence


HOLES = "def f(___):\n    pass\n\n\nx = f()\n"


@scenario
async def test_holes_are_asked_for_at_once_and_each_is_one_change(launch: Launch) -> None:
    async with listening(launch.socket) as host, served() as client:
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
async def test_where_no_hole_is_filled_each_has_its_reason(launch: Launch) -> None:
    async with listening(launch.socket) as host, served() as client:
        await begin(client, HOLES + "y = g()\n")
        host.answer = answering("___", "f(", "", ")")
        answer = await client.ask("midspan/holes", {"textDocument": {"uri": URI, "version": 1}})
        assert not answer["edits"]
        assert answer["silence"] == (
            "filled 0 of 4 holes: lines 1, 5: the model would change nothing here; "
            "line 2: the suggestion opens a ( that nothing closes; "
            "line 6: the suggestion closes a ( that is closed after the cursor"
        )
        host.answer = lambda fill: Filled(id=fill.id, silence="the model is at a loss")
        answer = await client.ask("midspan/holes", {"textDocument": {"uri": URI, "version": 1}})
        assert answer["silence"] == "filled 0 of 4 holes: the model is at a loss"


@scenario
async def test_holes_are_those_of_a_range_a_marker_or_the_cursors(launch: Launch) -> None:
    async with listening(launch.socket) as host, served() as client:
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


@scenario
async def test_no_cursor_is_no_hole_and_one_that_is_too_long_is_left_alone(launch: Launch) -> None:
    async with listening(launch.socket) as host, served() as client:
        await begin(client, f"x = f({' ' * 16_500})\ny = g()\n")
        host.answer = answering("1")
        document = {"uri": URI, "version": 1}
        none = await client.ask("midspan/holes", {"textDocument": document, "positions": []})
        assert "no position was named" in none["silence"]
        long = await client.ask("midspan/holes", {"textDocument": document, "range": at(0, 0, 16_507)})
        assert "no hole of up to 16,000 characters" in long["silence"]
        assert not host.fills
        both = await client.ask("midspan/holes", {"textDocument": document})
        assert both["edits"] == [{"range": at(1, 6, 6), "newText": "1"}]
        assert both["message"] == "filled 1 of 1 hole"


@scenario
async def test_a_request_without_parameters_may_leave_them_out(launch: Launch) -> None:
    async with served() as client:
        await begin(client)
        client._waiting[99] = asyncio.get_running_loop().create_future()
        client.send({"id": 99, "method": "midspan/editPresets"})
        assert len((await client._waiting[99])["presets"]) == 5


@scenario
async def test_presets_are_told_without_an_engine(launch: Launch) -> None:
    async with served() as client:
        await begin(client)
        told = await client.ask("midspan/editPresets", {})
        assert [preset["id"] for preset in told["presets"]] == ["refill", "touch_up", "rewrite", "body", "tail"]
        assert all(preset["title"] and 0 < preset["strength"] <= 1 for preset in told["presets"])
        assert told["instructions"] is False
        assert not launch.socket.exists()


@scenario
async def test_the_running_engine_says_whether_its_checkpoint_follows_instructions(launch: Launch) -> None:
    async with listening(launch.socket) as host, served() as client:
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
    async with served() as client:
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
    async with listening(launch.socket) as host, served() as client:
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
    async with listening(launch.socket) as host, served() as client:
        await begin(client)
        host.answer = lambda fill: Filled(id=fill.id, silence="the model is at a loss")
        await client.ask(
            "workspace/executeCommand", {"command": "midspan.applyEdit", "arguments": [params(preset="refill")]}
        )
        told = await client.until_note("window/showMessage", "at a loss")
        assert told == {"type": 3, "message": "Midspan: the model is at a loss"}
        assert "workspace/applyEdit" not in client.asked
