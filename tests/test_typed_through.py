"""Typing along a suggestion, going back in it and accepting it ask nothing of the engine."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from completion_bench import URI, Bench, bench, reason, texts
from engine_host import offer, scenario
from midspan_engine.protocol import Candidate, Draft, Failed, Fill, Filled
from midspan_server.completion import Completer
from midspan_server.context import MAX_SUFFIX
from midspan_server.engine_client import EngineClient
from midspan_server.launch import Launch
from midspan_server.look_ahead import IDLE_S
from midspan_server.settings import Loaded, Settings
from midspan_server.suggestion import Suggestions
from midspan_server.text import Edit, Position, TextDocument


async def shown(b: Bench, marked: str, *offered: str) -> Position:
    """Opens a document, has a suggestion offered there, and returns the cursor; nothing is guessed ahead."""
    at = b.open(marked)
    b.host.answer = offer(*offered)
    await b.ask(at)
    b.host.answer = None
    assert len(b.host.fills) == 1
    return at


@scenario
async def test_what_is_typed_along_is_answered_without_the_engine(tmp_path: Path) -> None:
    async with bench(tmp_path) as b:
        at = await shown(b, "x = ║\r\ny = 2", "print(1)")
        rest = "print(1)"
        for version, letter in enumerate("print(", 2):
            at = b.type(letter, at, version)
            rest = rest[1:]
            answer = await b.ask(at)
            assert texts(answer) == [rest]
            assert isinstance(answer, Suggestions)
            assert answer.items[0].start == answer.items[0].end == answer.snapshot.offset_at(at)
        assert b.n_asked == 1
        assert b.completer.log.counts["recalled"] == 6


@scenario
async def test_going_back_keeps_the_suggestion(tmp_path: Path) -> None:
    async with bench(tmp_path) as b:
        at = await shown(b, "x = ║", "print(1)")
        b.type("pri", at)
        assert texts(await b.ask(Position(0, 7))) == ["nt(1)"]
        document = b.completer.documents[URI]
        document.change([Edit("", Position(0, 5), Position(0, 7))], 3)
        assert texts(await b.ask(Position(0, 5))) == ["rint(1)"]
        document.change([Edit("", Position(0, 4), Position(0, 5))], 4)
        assert texts(await b.ask(at)) == ["print(1)"]
        assert b.n_asked == 1


@pytest.mark.parametrize(("typed", "rest"), [("print(", "1"), ("print(1", None), ("pri", None)])
@scenario
async def test_a_bracket_that_the_editor_closes_does_not_end_the_suggestion(
    tmp_path: Path, typed: str, rest: str | None
) -> None:
    async with bench(tmp_path) as b:
        at = await shown(b, "x = ║", "print(1)" if rest else "print(1) + 2")
        cursor = b.type(typed, at)
        b.type(")", cursor, 3)
        asked = asyncio.create_task(b.ask(cursor))
        if rest is not None:
            assert texts(await asked) == [rest]
            return
        await b.host.until(lambda: b.n_asked == 2)
        asked.cancel()


@pytest.mark.parametrize("line", ["y = 2\n", "yy = 2\n"])
@scenario
async def test_nor_does_it_in_a_file_of_which_only_the_start_of_the_suffix_is_read(tmp_path: Path, line: str) -> None:
    async with bench(tmp_path) as b:
        assert len("\nyy = 2") + 584 * len("yy = 2\n") + 1 == MAX_SUFFIX  # one bracket more pushes a line out
        at = await shown(b, "x = ║\n" + line * MAX_SUFFIX, "print(1)")
        cursor = b.type("print(", at)
        b.type(")", cursor, 3)
        assert texts(await b.ask(cursor)) == ["1"]


@pytest.mark.parametrize("typed", ["q", "print(1)", "print(1)  "])
@scenario
async def test_what_is_typed_otherwise_or_to_the_end_is_asked_of_the_engine(tmp_path: Path, typed: str) -> None:
    async with bench(tmp_path) as b:
        at = b.type(typed, await shown(b, "x = ║", "print(1)"))
        (await b.held(at)).cancel()


@scenario
async def test_only_what_somebody_asked_for_by_hand_answers_a_request_by_hand(tmp_path: Path) -> None:
    async with bench(tmp_path) as b:
        at = await shown(b, "x = ║", "1")
        b.host.answer = offer("1", "2")
        assert texts(await b.ask(at, trigger="invoked")) == ["1", "2"]
        assert b.n_asked == 2
        assert texts(await b.ask(at, trigger="invoked")) == ["1", "2"]
        assert b.n_asked == 2


@scenario
async def test_a_change_elsewhere_or_of_the_settings_forgets_it(tmp_path: Path) -> None:
    async with bench(tmp_path) as b:
        at = await shown(b, "x = ║\ny = 2", "1")
        b.completer.documents[URI].change([Edit("z", Position(1, 0), Position(1, 1))], 2)
        asked = await b.held(at)
        await b.host.release(offer("3"))
        assert texts(await asked) == ["3"]
        b.completer.loaded = Loaded(Settings(max_tokens=7))
        (await b.held(at)).cancel()


@scenario
async def test_what_comes_after_the_suggestion_is_there_once_it_is_accepted(tmp_path: Path) -> None:
    async with bench(tmp_path) as b:
        at = b.open("x = f(║)")
        b.host.answer = lambda fill: offer("a + ")(fill) if fill.priority == "typed" else offer("b")(fill)
        assert texts(await b.ask(at)) == ["a + "]
        await b.host.until(lambda: len(b.host.fills) == 2)
        guess = b.host.fills[1]
        assert (guess.priority, guess.parts) == ("prefetch", ("x = f(a + ", ")"))
        await b.completer.engine_status()  # answered after the guess: that has been read
        await asyncio.sleep(0)
        at = b.type("a + ", at)
        b.host.answer = None
        assert texts(await b.ask(at)) == ["b"]
        assert b.completer.log.counts["recalled"] == 1


@scenario
async def test_a_real_request_takes_the_engine_from_the_guess(tmp_path: Path) -> None:
    async with bench(tmp_path) as b:
        at = await shown(b, "x = ║", "a +")
        await b.host.until(lambda: len(b.host.fills) == 2)
        assert b.host.fills[1].priority == "prefetch"
        at = b.type("q", at)
        asked = asyncio.create_task(b.ask(at))
        await b.host.until(lambda: len(b.host.fills) == 3 and bool(b.host.cancelled))
        assert b.host.cancelled == [b.host.fills[1].id]
        asked.cancel()


@scenario
async def test_a_guess_that_fails_is_told_to_nobody(tmp_path: Path) -> None:
    async with bench(tmp_path) as b:
        at = b.open("x = f(║)")
        failed = Failed(id=0, message="out of memory")
        b.host.answer = lambda fill: (
            offer("a + ")(fill) if fill.priority == "typed" else msgspec.structs.replace(failed, id=fill.id)
        )
        await b.ask(at)
        await b.host.until(lambda: len(b.host.fills) == 2)
        await b.completer.engine_status()  # answered after the failure: that has been read
        await asyncio.sleep(0)
        assert b.told == []
        assert b.completer.log.status.state == "ready"


@pytest.mark.parametrize("fate", ["close", "switch off", "exclude", "close and open"])
@scenario
async def test_nothing_is_guessed_for_a_document_that_is_left_alone_since(tmp_path: Path, fate: str) -> None:
    async with bench(tmp_path) as b:
        await shown(b, "x = f(║)", "a + ")
        if fate.startswith("close"):
            b.completer.close_document(URI)
            await b.host.until(lambda: b.host.forgotten == [URI])
        else:
            settings = Settings(enabled=False) if fate == "switch off" else Settings(excluded_globs=("me/",))
            b.completer.loaded = Loaded(settings)
        if fate.endswith("open"):
            b.open("x = f(║)")
        await asyncio.sleep(2 * IDLE_S)
        await b.completer.engine_status()  # answered after whatever was sent by now
        assert len(b.host.fills) == 1


@scenario
async def test_a_guess_for_a_closed_document_is_not_kept_for_its_successor(tmp_path: Path) -> None:
    async with bench(tmp_path) as b:
        at = await shown(b, "x = f(║)", "a + ")
        await b.host.until(lambda: len(b.host.fills) == 2)
        b.completer.close_document(URI)
        b.open("x = f(║)")
        await b.host.until(lambda: b.host.forgotten == [URI])
        await b.host.release(offer("b"))
        await b.completer.engine_status()  # answered after the guess: that has been read
        await asyncio.sleep(0)
        asked = await b.held(b.type("a + ", at))
        asked.cancel()


@pytest.mark.parametrize("settings", [Settings(min_confidence=0.99), Settings(eagerness="reserved")])
@scenario
async def test_an_answer_under_settings_of_before_is_neither_shown_nor_kept(tmp_path: Path, settings: Settings) -> None:
    async with bench(tmp_path) as b:
        at = b.open("x = ║")
        asked = await b.held(at)
        b.completer.loaded = Loaded(settings)
        await b.host.release(offer("1"))
        assert "the settings changed" in reason(await asked)
        (await b.held(at)).cancel()


@scenario
async def test_what_is_held_back_for_the_next_key_is_not_asked_under_settings_of_before(tmp_path: Path) -> None:
    async with bench(tmp_path) as b:
        at = await shown(b, "x = ║", "1")
        now = asyncio.get_running_loop().time()
        for n in range(10):
            b.completer.debounce.note_key(now - (9 - n) * 0.1)
        asked = asyncio.create_task(b.ask(b.type("q", at)))
        await asyncio.sleep(0)
        b.completer.loaded = Loaded(Settings(enabled=False))
        assert "switched off" in reason(await asked)
        await b.completer.engine_status()
        assert len(b.host.fills) == 1


@scenario
async def test_a_document_opened_again_starts_anew(tmp_path: Path) -> None:
    async with bench(tmp_path) as b:
        at = await shown(b, "x = ║", "1")
        b.completer.open_document(TextDocument(URI, "javascript", b.completer.documents[URI].snapshot))
        asked = await b.held(at)
        assert b.host.fills[-1].language == "javascript"
        asked.cancel()


@scenario
async def test_what_the_deadline_cut_off_is_shown_once_and_not_kept(tmp_path: Path) -> None:
    async with bench(tmp_path) as b:
        at = b.open("x = ║")
        cut = Candidate(gaps=("pri",), confidence=0.9, complete=False)
        b.host.answer = lambda fill: Filled(id=fill.id, candidates=(cut,))
        assert texts(await b.ask(at, trigger="invoked")) == ["pri"]
        b.host.answer = offer("print(1)")
        assert texts(await b.ask(at)) == ["print(1)"]


@scenario
async def test_settings_that_change_as_the_answer_arrives_count_too(tmp_path: Path) -> None:
    async with bench(tmp_path) as b:

        class LastMoment(EngineClient):
            async def fill(self, request: Fill, on_draft: Callable[[Draft], None] | None = None) -> Filled:
                filled = await super().fill(request, on_draft)
                strict = Loaded(Settings(min_confidence=0.99))
                asyncio.get_running_loop().call_soon(setattr, b.completer, "loaded", strict)
                return filled

        launch = Launch(checkpoint=tmp_path, socket=tmp_path / "run" / "e.sock", log=tmp_path / "log")
        completer = b.completer = Completer(lambda _: LastMoment(launch), b.told.append, b.shown.append, b.watch)
        b.host.answer = offer("1")
        assert "the settings changed" in reason(await b.ask(b.open("x = ║")))
        assert completer.log.counts["recalled"] == 0
