"""Edits of open documents with a real engine client, over the real socket to a host whose answers a test decides."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Literal

import pytest

from completion_bench import URI, Bench, bench
from engine_host import offer, scenario
from midspan_engine.framing import pack
from midspan_engine.protocol import Draft, Slot
from midspan_server.edit_messages import EditParams, EditResult, TextEdit, VersionedDocument
from midspan_server.editing import Editor
from midspan_server.silence import SUPERSEDED
from midspan_server.text import Edit, Position, Span

LINE = Span(Position(45, 0), Position(45, 13))


def refill(b: Bench, editor: Editor) -> asyncio.Task[EditResult]:
    """Starts an edit of a line in a document of 47."""
    b.open("x = 1\n" * 45 + "b = old(a, 2)\n║")
    params = EditParams(text_document=VersionedDocument(URI, 1), range=LINE, preset="refill")
    return asyncio.create_task(editor.edit(params))


async def draft(b: Bench, n_fills: int) -> None:
    """Sends a draft of the newest fill, once there are so many, and waits until it was shown."""
    await b.host.until(lambda: len(b.host.fills) == n_fills)
    fill, writer = b.host._held[b.host.fills[-1].id]
    n_shown = len(b.drafts)
    writer.write(pack(Draft(id=fill.id, step=1, slots=(Slot("1", False, False, 1.0),))))
    while len(b.drafts) == n_shown:
        await asyncio.sleep(0)


@scenario
async def test_an_edit_is_moved_along_however_many_lines_above_it_are_gone(tmp_path: Path) -> None:
    async with bench(tmp_path) as b:
        asked = refill(b, Editor(b.completer))
        await b.host.until(lambda: len(b.host.fills) == 1)
        b.completer.documents[URI].change([Edit("", Position(0, 0), Position(40, 0))], 2)
        await b.host.release(offer("b = new(a, 2)"))
        answer = await asked
        assert answer.edits == [TextEdit(Span(Position(5, 4), Position(5, 7)), "new")]
        assert answer.text_document.version == 2


@scenario
async def test_edits_are_counted_apart_from_suggestions_and_superseded_ones_leave_no_trace(tmp_path: Path) -> None:
    async with bench(tmp_path) as b:
        editor = Editor(b.completer)
        older = refill(b, editor)
        await b.host.until(lambda: len(b.host.fills) == 1)
        b.host.answer = offer("b = new(a, 2)")
        newer = await refill(b, editor)
        assert newer.edits
        assert (await older).silence == SUPERSEDED.reason
        assert b.completer.log.counts == {"superseded": 1, "edited": 1}
        assert not b.completer.log.last


@pytest.mark.parametrize("end", ["answered", "superseded", "cancelled"])
@scenario
async def test_a_watched_canvas_ends_however_its_request_does(
    tmp_path: Path, end: Literal["answered", "superseded", "cancelled"]
) -> None:
    async with bench(tmp_path) as b:
        b.watch.is_on = True
        at = b.open("x = ║")
        asked = asyncio.create_task(b.ask(at))
        await draft(b, 1)
        if end == "answered":
            await b.host.release(offer("1"))
        elif end == "cancelled":
            asked.cancel()
        else:
            newer = asyncio.create_task(b.ask(at))
            await b.host.until(lambda: len(b.host.fills) == 2)
            newer.cancel()
        await asyncio.wait([asked])
        assert [shown.is_last for shown in b.drafts] == [False, True]
        assert b.drafts[0].slots == b.drafts[1].slots
