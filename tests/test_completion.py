"""The completer with a real engine client, over the real socket to a host whose answers a test decides."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from completion_bench import URI, bench, reason, texts
from engine_host import offer, scenario
from midspan_engine.protocol import Failed, Filled
from midspan_server.context import MAX_LINE, Selected
from midspan_server.settings import Loaded, Settings
from midspan_server.silence import N_KEPT, SUPERSEDED, Status
from midspan_server.suggestion import Suggestions
from midspan_server.text import MAX_CHARACTERS, Edit, Position


@scenario
async def test_a_suggestion_is_offered_at_the_cursor(tmp_path: Path) -> None:
    async with bench(tmp_path) as b:
        b.host.answer = offer("1 + 2")
        at = b.open("a = 0\r\nx = ║\r\ny = 3")
        answer = await b.ask(at)
        assert texts(answer) == ["1 + 2"]
        assert isinstance(answer, Suggestions)
        assert (answer.items[0].start, answer.items[0].end) == (11, 11)
        assert b.host.fills[0].parts == ("a = 0\nx = ", "\ny = 3")
        assert b.host.fills[0].document == URI
        assert b.shown == []  # it was ready before


@scenario
async def test_the_newest_request_wins_and_the_older_is_answered_at_once(tmp_path: Path) -> None:
    async with bench(tmp_path) as b:
        at = b.open("x = ║")
        older = await b.held(at)
        newer = asyncio.create_task(b.ask(at))
        assert await older is SUPERSEDED  # the engine still holds both
        await b.host.until(lambda: len(b.host.cancelled) == 1)
        assert b.host.cancelled == [b.host.fills[0].id]
        await b.host.release(offer("1"))
        assert texts(await newer) == ["1"]
        assert b.completer.log.counts == {"superseded": 1, "suggested": 1}


@scenario
async def test_requests_of_different_documents_leave_each_other_alone(tmp_path: Path) -> None:
    async with bench(tmp_path) as b:
        asked = [await b.held(b.open("x = ║", uri), uri) for uri in (URI, URI + "2")]
        await b.host.release(offer("1"))
        assert [texts(answer) for answer in await asyncio.gather(*asked)] == [["1"], ["1"]]


@scenario
async def test_a_request_withdrawn_by_the_client_is_withdrawn_from_the_engine(tmp_path: Path) -> None:
    async with bench(tmp_path) as b:
        asked = await b.held(b.open("x = ║"))
        asked.cancel()
        await b.host.until(lambda: len(b.host.cancelled) == 1)
        with pytest.raises(asyncio.CancelledError):
            await asked


@scenario
async def test_what_was_typed_meanwhile_is_taken_off_the_suggestion(tmp_path: Path) -> None:
    async with bench(tmp_path) as b:
        at = b.open("x = ║\ny = 2")
        asked = await b.held(at)
        b.type("pri", at)
        await b.host.release(offer("print(1)"))
        answer = await asked
        assert isinstance(answer, Suggestions)
        (item,) = answer.items
        assert (item.start, item.end, item.text) == (7, 7, "nt(1)")
        assert answer.snapshot.version == 2


@pytest.mark.parametrize(("typed", "where"), [("z", 4), ("print(1)", 4), ("p", 0)])
@scenario
async def test_a_document_that_changed_otherwise_gets_no_stale_suggestion(
    tmp_path: Path, typed: str, where: int
) -> None:
    async with bench(tmp_path) as b:
        asked = await b.held(b.open("x = ║\ny = 2"))
        b.type(typed, Position(0, where))
        await b.host.release(offer("print(1)"))
        assert "the document changed" in reason(await asked)


@scenario
async def test_a_change_without_a_new_version_number_is_a_change(tmp_path: Path) -> None:
    async with bench(tmp_path) as b:
        asked = await b.held(b.open("import os\nx = ║\ny = 2"))
        b.completer.documents[URI].change([Edit("", Position(0, 0), Position(1, 0))], version=1)
        await b.host.release(offer("print(1)"))
        assert "the document changed" in reason(await asked)


@scenario
async def test_a_closed_document_answers_and_is_forgotten_by_the_engine(tmp_path: Path) -> None:
    async with bench(tmp_path) as b:
        asked = await b.held(b.open("x = ║"))
        b.completer.close_document(URI)
        assert "closed" in reason(await asked)
        await b.host.until(lambda: b.host.forgotten == [URI])


@scenario
async def test_a_request_by_hand_gets_the_different_candidates(tmp_path: Path) -> None:
    async with bench(tmp_path) as b:
        b.host.answer = offer("1", "2", "1", "  ")
        answer = await b.completer.complete(URI, b.open("x = ║"), "invoked")
        assert texts(answer) == ["1", "2"]
        assert b.host.fills[0].n_candidates == 3
        assert b.completer.log.dropped == {"the suggestion is blank": 1}


@scenario
async def test_a_selected_completion_item_leads_the_suggestion(tmp_path: Path) -> None:
    async with bench(tmp_path) as b:
        b.host.answer = offer(".join(a)")
        at = b.open("import os\nos.pa║")
        selected = Selected(Position(1, 3), Position(1, 5), "path")
        answer = await b.completer.complete(URI, at, "automatic", selected)
        assert texts(answer) == ["path.join(a)"]
        assert isinstance(answer, Suggestions)
        assert (answer.items[0].start, answer.items[0].end) == (13, 15)
        assert b.host.fills[0].parts[0].endswith("os.path")


@pytest.mark.parametrize(
    ("loaded", "marked", "path", "expected", "state"),
    [
        (Loaded(Settings(enabled=False)), "x = ║", "/a.py", "switched off", "off"),
        (Loaded(Settings(disabled_languages=("python",))), "x = ║", "/a.py", "for python", "off"),
        (Loaded(blocked="a list is malformed"), "x = ║", "/a.py", "a list is malformed", "off"),
        (Loaded(), "x = ║", "/app/.env", "excluded by '.env*'", "off"),
        (Loaded(), "pri║nt", "/a.py", "inside a word", "silent"),
        (Loaded(), "x\0 = ║", "/a.py", "binary", "silent"),
        (Loaded(), "x" * (MAX_LINE + 1) + "║", "/a.py", "nothing is completed in lines above", "silent"),
        (Loaded(), "x\n" * (MAX_CHARACTERS // 2) + "y║", "/a.py", "nothing is completed above", "silent"),
    ],
    ids=["disabled", "language", "blocked", "excluded", "word", "binary", "long line", "large file"],
)
@scenario
async def test_the_engine_is_not_asked_where_nothing_is_to_be_completed(
    tmp_path: Path, loaded: Loaded, marked: str, path: str, expected: str, state: str
) -> None:
    async with bench(tmp_path) as b:
        b.completer.loaded = loaded
        assert expected in reason(await b.ask(b.open(marked, path=path)))
        assert b.completer.log.status.state == state
        assert b.host.fills == []


@scenario
async def test_bad_requests_get_a_reason(tmp_path: Path) -> None:
    async with bench(tmp_path) as b:
        assert "not open" in reason(await b.ask(Position(0, 0)))
        b.open("x = ║")
        assert "line 10 is outside the document" in reason(await b.ask(Position(9, 0)))
        b.completer.documents[URI].is_in_step = False
        assert "close and open it again" in reason(await b.ask(Position(0, 0)))


@scenario
async def test_an_error_of_the_engine_is_a_silence_that_tells_what_is_wrong(tmp_path: Path) -> None:
    async with bench(tmp_path) as b:
        b.host.answer = lambda fill: Failed(id=fill.id, message="out of memory; close something")
        at = b.open("x = ║")
        for _ in range(2):
            assert "out of memory" in reason(await b.ask(at))
        assert b.shown == [Status("failed", "out of memory; close something")]
        b.host.answer = offer("1")
        assert texts(await b.ask(at)) == ["1"]
        assert b.shown[-1] == Status("ready", None)


@scenario
async def test_the_reason_of_the_engine_reaches_the_user(tmp_path: Path) -> None:
    async with bench(tmp_path) as b:
        b.host.answer = lambda fill: Filled(id=fill.id, silence="not confident enough")
        assert reason(await b.ask(b.open("x = ║"))) == "not confident enough"
        assert b.shown == [Status("silent", "not confident enough")]


@scenario
async def test_only_the_last_silences_are_kept(tmp_path: Path) -> None:
    async with bench(tmp_path) as b:
        at = b.open("pri║nt")
        for _ in range(N_KEPT + 5):
            await b.ask(at)
        assert len(b.completer.log.last) == N_KEPT
        assert len(b.shown) == 1
