"""Whole behaviour, case by case: a document and the engine's candidates go in, an item or a silence comes out.

The candidates pass through the real pipeline: socket, context, filters, items. `--regenerate` writes what comes out
into tests/golden; read the difference before you commit it.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from completion_bench import Bench, bench
from duplicates import duplicated
from engine_host import offer, scenario
from golden_case import FOLDER, Case, read_cases, write_cases
from midspan_server.context import Selected, is_word
from midspan_server.items import inline_list
from midspan_server.silence import Silence
from midspan_server.suggestion import Suggestions
from midspan_server.text import Position, Snapshot

FILES = {path: read_cases(path) for path in sorted(FOLDER.glob("*.toml"))}
ALL = [(path, number) for path, cases in FILES.items() for number in range(len(cases))]


def name_of(which: object) -> str:
    return which.stem if isinstance(which, Path) else str(which)


@pytest.mark.parametrize(("path", "number"), ALL, ids=name_of)
@scenario
async def test_golden(path: Path, number: int, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    case = FILES[path][number]
    async with bench(tmp_path) as b:
        found = await played(b, case)
    if request.config.getoption("--regenerate"):
        FILES[path][number] = found
        write_cases(path, FILES[path])
    assert found == FILES[path][number], case.name


def test_there_are_enough_cases_and_each_has_a_name_of_its_own() -> None:
    names = [case.name for cases in FILES.values() for case in cases]
    assert len(names) >= 150
    assert len(set(names)) == len(names)


async def played(b: Bench, case: Case) -> Case:
    """Returns the case with what comes out of it."""
    cells = case.cells or [case.text or ""]
    uris = [
        f"file://{case.path}" if case.cells is None else f"notebook-cell:{case.path}#{n}" for n in range(len(cells))
    ]
    here = next(n for n, cell in enumerate(cells) if "║" in cell)
    places = [
        b.open(cell if "║" in cell else cell + "║", uri, case.language, case.path)
        for uri, cell in zip(uris, cells, strict=True)
    ]
    cursor = places[here]
    if case.cells is not None:
        b.completer.notebooks.open(case.path, uris)
    selected = selected_at(b.completer.documents[uris[here]].snapshot, cursor, case.selected)
    asked = asyncio.create_task(b.ask(cursor, uris[here], case.trigger, selected))
    if case.offers is not None:
        await b.host.until(lambda: bool(b.host.fills))
        if case.typed:
            b.type(case.typed, cursor, uri=uris[here])
        await b.host.release(offer(*case.offers))
    answer = await asked
    fills = b.host.fills
    assert bool(fills) == (case.offers is not None), "the engine is asked where the case offers something, only there"
    return msgspec.structs.replace(
        case,
        asked=list(fills[0].parts) if case.asked is not None else None,
        several_lines=not fills[0].single_line if case.several_lines is not None else None,
        shown=accepted(answer) if isinstance(answer, Suggestions) else None,
        silence=answer.reason if isinstance(answer, Silence) else None,
    )


def selected_at(snapshot: Snapshot, cursor: Position, text: str | None) -> Selected | None:
    """Returns a selected item that replaces the word before the cursor."""
    if text is None:
        return None
    start = snapshot.offset_at(cursor)
    while start and is_word(snapshot.text[start - 1]):
        start -= 1
    return Selected(snapshot.position_at(start), cursor, text)


def accepted(answer: Suggestions) -> list[str]:
    """Returns the document after each item was accepted, the way an editor does it: from positions."""
    shown = []
    for item in inline_list(answer).items:
        assert item.range is not None
        assert isinstance(item.insert_text, str)
        assert "\r" not in item.insert_text
        start, end = (
            answer.snapshot.offset_at(Position(edge.line, edge.character))
            for edge in (item.range.start, item.range.end)
        )
        before, after = answer.snapshot.text[:start], answer.snapshot.text[end:]
        twice = duplicated(before, item.insert_text, after)
        assert twice is None, f"{twice!r} is said twice"
        shown.append(f"{before}├{item.insert_text}┤{after}")
    return shown
