"""Edits and holes from an editor to the shipped model and back: real server, real engine."""

from __future__ import annotations

import asyncio

import pytest

from lsp_client import URI, at, running
from midspan_server.engine_client import EngineClient
from midspan_server.launch import Launch
from served_checkpoint import CHECKPOINT

PATIENCE_S = 120.0
"""Ends a session that hangs; loading a model beside other work takes most of what is needed."""

STOCK = """class Stock:
    def __init__(self, ___):
        self.value = ___
        self.counts = {}

    def remove(self, name, count):
        if name not in self.counts:
            raise KeyError(name)
        self.counts[nmae] = self.counts.get(name, 0) - count
"""


@pytest.fixture
def served(launch: Launch, monkeypatch: pytest.MonkeyPatch) -> Launch:
    """The launch of the checkpoint to test."""
    monkeypatch.setenv("MIDSPAN_CHECKPOINT", str(CHECKPOINT))
    return Launch.resolve()


def test_a_selection_is_mended_and_holes_are_filled_while_the_canvas_is_watched(served: Launch) -> None:
    asyncio.run(asyncio.wait_for(edit_and_watch(served), PATIENCE_S))


async def edit_and_watch(served: Launch) -> None:
    async with EngineClient(served) as engine, running() as client:
        await client.initialize()
        client.open(STOCK)
        document = {"uri": URI, "version": 1}
        await client.ask("midspan/watch", {"enabled": True})
        params = {"textDocument": document, "range": at(8, 0, 61), "preset": "touch_up"}
        answer = await client.ask("midspan/edit", params)
        assert answer["edits"] == [{"range": at(8, 20, 24), "newText": "name"}]
        assert answer["textDocument"] == document

        asked = {"textDocument": document, "range": at(1, 0, 27), "workDoneToken": 1}
        answer = await client.ask("midspan/holes", asked)
        assert all("___" not in edit["newText"] for edit in answer["edits"])
        assert bool(answer["edits"]) != ("silence" in answer)

        values = [note["value"] for method, note in client.notes if method == "$/progress"]
        percentages = [value["percentage"] for value in values if "percentage" in value]
        assert percentages == sorted(percentages)
        assert percentages[0] == 0
        drafts = [note for method, note in client.notes if method == "midspan/draft"]
        assert len(drafts) == len(percentages), "one for each pass, and the last again"
        assert drafts[-1]["isLast"]
        assert {slot["kind"] for slot in drafts[0]["slots"]} >= {"pin"}

        answer = await client.ask("midspan/edit", {**params, "preset": None, "instruction": "use a Counter"})
        assert "follows no instructions" in answer["silence"]
        await engine.shutdown_host()
