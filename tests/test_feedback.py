"""What clients report of suggestions is counted on this machine."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import midspan_server.feedback
from completion_bench import URI, Bench, bench
from engine_host import listening, offer, scenario
from lsp_client import LspClient, running
from midspan_server.feedback import ACCEPTED, DID_ACCEPT_PART, DID_SHOW, Command, Item, PartReport, ShownReport
from midspan_server.launch import Launch
from midspan_server.suggestion import Suggestion, Suggestions
from midspan_server.text import Edit, Position


async def offered(b: Bench, marked: str = "x = ║", text: str = "print(1)") -> Suggestion:
    b.host.answer = offer(text)
    answer = await b.ask(b.open(marked))
    assert isinstance(answer, Suggestions)
    return answer.items[0]


def counts(b: Bench) -> dict[str, int]:
    return {name: n for name, n in b.completer.log.counts.items() if name not in ("suggested", "recalled")}


@scenario
async def test_each_stage_of_a_suggestion_counts_once(tmp_path: Path) -> None:
    async with bench(tmp_path) as b:
        item = await offered(b)
        report = Item(Command((item.id,)), item.text)
        for _ in range(2):
            b.completer.feedback.shown(ShownReport(report))
            b.completer.feedback.accepted_part(PartReport(report, 5))
        assert counts(b) == {"shown": 1, "partly accepted": 1}
        for _ in range(2):
            b.completer.feedback.accepted([item.id])
        assert counts(b) == {"shown": 1, "partly accepted": 1, "accepted": 1}


@scenario
async def test_the_rest_of_a_suggestion_is_the_same_suggestion(tmp_path: Path) -> None:
    async with bench(tmp_path) as b:
        item = await offered(b)
        b.type("pri", Position(0, 4))
        rest = await b.ask(Position(0, 7))
        assert isinstance(rest, Suggestions)
        assert rest.items[0].id == item.id


@scenario
async def test_a_suggestion_taken_to_its_end_bit_by_bit_is_accepted(tmp_path: Path) -> None:
    async with bench(tmp_path) as b:
        item = await offered(b, text="'😀'")
        b.completer.feedback.accepted_part(PartReport(Item(Command((item.id,)), item.text), 4))
        assert counts(b) == {"partly accepted": 1, "accepted": 1}


@pytest.mark.parametrize("which", [(), (999,)])
@scenario
async def test_a_report_of_something_unknown_counts_nothing(tmp_path: Path, which: tuple[int, ...]) -> None:
    async with bench(tmp_path) as b:
        await offered(b)
        b.completer.feedback.shown(ShownReport(Item(Command(which), "x")))
        b.completer.feedback.accepted(which)
        assert counts(b) == {}


@pytest.mark.parametrize("is_kept", [True, False])
@scenario
async def test_what_still_stands_later_is_kept(tmp_path: Path, is_kept: bool) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(midspan_server.feedback, "KEPT_AFTER_S", 0.0)
        async with bench(tmp_path) as b:
            item = await offered(b, "x = 1\r\n║\r\n", "y = 2\nz = 3")
            document = b.completer.documents[URI]
            if is_kept:
                document.change([Edit("y = 2\r\nz = 3", Position(1, 0), Position(1, 0))], 2)
            looked = asyncio.get_running_loop().create_future()
            b.completer.feedback.accepted([item.id])
            asyncio.get_running_loop().call_later(0.01, looked.set_result, None)
            await looked
            assert counts(b).get("kept", 0) == is_kept


async def begin(client: LspClient, text: str) -> dict[str, Any]:
    await client.initialize()
    client.open(text)
    (item,) = await client.inline(0, len(text))
    return item


@scenario
async def test_reports_of_a_client_are_counted_in_its_status(launch: Launch) -> None:
    async with listening(launch.socket) as host, running() as client:
        host.answer = offer("print(1)")
        item = await begin(client, "x = ")
        client.notify(DID_SHOW, {"item": item})
        client.notify(DID_ACCEPT_PART, {"item": item, "acceptedLength": 5})
        assert item["command"]["command"] == ACCEPTED
        command = {"command": ACCEPTED, "arguments": item["command"]["arguments"]}
        assert await client.ask("workspace/executeCommand", command) is None
        status = await client.ask("midspan/status")
        assert status["counts"] == {"suggested": 1, "shown": 1, "partly accepted": 1, "accepted": 1}
        assert status["confidences"] == [0.9]


@scenario
async def test_malformed_reports_are_left_aside(launch: Launch) -> None:
    async with listening(launch.socket) as host, running() as client:
        host.answer = offer("print(1)")
        await begin(client, "x = ")
        for params in ({"item": 3}, {}, [], {"item": {"insertText": "x", "command": {"arguments": ["secret"]}}}):
            client.notify(DID_SHOW, params)
            client.notify(DID_ACCEPT_PART, params)
        for arguments in ([{}], [[1]], [None], ["1"], [True], [1, {}]):
            command = {"command": ACCEPTED, "arguments": arguments}
            assert await client.ask("workspace/executeCommand", command) is None
        assert (await client.ask("midspan/status"))["counts"] == {"suggested": 1}
        assert await client.leave() == 0
