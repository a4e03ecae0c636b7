"""The canvas as the language server shows it: the progress of an edit, and every draft while somebody watches."""

from __future__ import annotations

from edit_client import answering, begin, held_edit
from engine_host import ScriptedHost, listening, offer, scenario
from lsp_client import URI, at, running
from midspan_engine.framing import pack
from midspan_engine.protocol import Draft, Slot
from midspan_server.launch import Launch


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
async def test_nothing_more_is_shown_of_what_runs_once_watching_was_switched_off(launch: Launch) -> None:
    async with listening(launch.socket) as host, running() as client:
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
