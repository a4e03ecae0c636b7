"""Code of other open files: what is read, what never is, and that it stays the same while one types."""

from __future__ import annotations

import math
import re
import time
from pathlib import Path

import pytest

from completion_bench import URI, bench, texts
from engine_host import offer, scenario
from midspan_server.imported import imported
from midspan_server.neighbours import Neighbours
from midspan_server.settings import Loaded, Settings
from midspan_server.similar import BLOCK_LINES, LONGEST_LINE
from midspan_server.text import Edit, Position, TextDocument, snapshot

SETTINGS = Settings(neighbour_characters=2000)
PRICES = "def price_of(item):\n    return item.price * item.count\n"
HERE = "def total(cart):\n    result = 0\n    for item in cart:\n        result += price_of(item)\n    \n"


@pytest.fixture(autouse=True)
def time_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine may stop a test for longer than gathering may take."""
    monkeypatch.setattr("midspan_server.neighbours.TIME_S", math.inf)


def opened(name: str, text: str, language: str = "python") -> TextDocument:
    return TextDocument(f"file:///home/me/{name}", language, snapshot(text, 1), (f"/home/me/{name}",))


def by_uri(*documents: TextDocument) -> dict[str, TextDocument]:
    return {document.uri: document for document in documents}


def test_similar_code_of_an_open_file_is_found_and_other_code_is_not() -> None:
    here, prices, other = opened("a.py", HERE), opened("b.py", PRICES), opened("c.py", "import os\nos.getcwd()\n")
    found = Neighbours().gather(here, 4, by_uri(here, prices, other), SETTINGS)
    assert found == PRICES + "\n"


@pytest.mark.parametrize("name", [".env.py", "server.pem", ".ssh/b.py"])
def test_what_is_excluded_as_context_is_never_read(name: str) -> None:
    here, secret = opened("a.py", HERE), opened(name, PRICES)
    assert Neighbours().gather(here, 4, by_uri(here, secret), SETTINGS) == ""


def test_files_of_another_language_are_left_out() -> None:
    here, other = opened("a.py", HERE), opened("b.js", PRICES, "javascript")
    assert Neighbours().gather(here, 4, by_uri(here, other), SETTINGS) == ""


def test_it_keeps_within_its_budget() -> None:
    here, prices = opened("a.py", HERE), opened("b.py", PRICES * 30)
    small = Settings(neighbour_characters=len(PRICES) * 10 + 5)
    assert 0 < len(Neighbours().gather(here, 4, by_uri(here, prices), small)) <= small.neighbour_characters


def test_what_is_not_found_in_time_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    here = opened("a.py", "from b import price_of\n" + HERE)
    documents = by_uri(here, opened("b.py", PRICES))
    late, in_time = Neighbours(), Neighbours()
    for neighbours in (late, in_time):
        neighbours.places.note(opened("b.py", PRICES).uri, 1)
    monkeypatch.setattr("midspan_server.neighbours.TIME_S", -1.0)
    assert late.gather(here, 5, documents, SETTINGS) == ""
    monkeypatch.setattr("midspan_server.neighbours.TIME_S", math.inf)
    found = in_time.gather(here, 5, documents, SETTINGS)
    assert found.startswith("def price_of(item): ...\n\n" + PRICES)
    assert found.endswith("\n" + PRICES + "\n"), "once as similar, once as just edited"


def test_it_stays_the_same_while_one_types_in_a_place() -> None:
    here, prices = opened("a.py", HERE + "\n" * BLOCK_LINES), opened("b.py", PRICES)
    neighbours, documents = Neighbours(), by_uri(here, prices)
    first = neighbours.gather(here, 4, documents, SETTINGS)
    here.change([Edit("import os, re, sys", Position(4, 4), Position(4, 4))], 2)
    assert neighbours.gather(here, 5, documents, SETTINGS) is first
    prices.change([Edit("class Price: pass\n", Position(0, 0), Position(0, 0))], 2)
    assert neighbours.gather(here, 5, documents, SETTINGS) != first


def test_the_heads_of_what_is_imported_come_first() -> None:
    here = opened("shop/a.py", "from shop.money import (\n    Price as P,\n    rounded,\n)\n" + HERE)
    price = "class Price:\n    value: int\n\n\n"
    rounded = "def rounded(\n    price: Price,\n) -> Price:\n    return price\n\n\n"
    money = opened("shop/money.py", f"{price}{rounded}def other():\n    pass\n")
    found = Neighbours().gather(here, 8, by_uri(here, money), SETTINGS)
    assert found.startswith("class Price: ...\ndef rounded(\n    price: Price,\n) -> Price: ...\n\n")
    assert "def other" not in found.partition("\n\n")[0]


def test_what_was_edited_elsewhere_of_late_comes_last() -> None:
    here = opened("a.py", "x = 1\n")
    other = opened("b.py", "".join(f"line_{n} = {n}\n" for n in range(50)))
    neighbours, documents = Neighbours(), by_uri(here, other)
    for line in (40, 10, 11):
        neighbours.places.note(other.uri, line)
    found = neighbours.gather(here, 0, documents, SETTINGS)
    assert found.endswith("line_9 = 9\nline_10 = 10\nline_11 = 11\nline_12 = 12\nline_13 = 13\n\n")
    assert "line_40" in found
    assert "line_25" not in found


def test_a_file_opened_again_is_read_again() -> None:
    here, old, new = (
        opened("a.py", "from m import f\n"),
        opened("m.py", "def f(OLD):\n"),
        opened("m.py", "def f(NEW):\n"),
    )
    neighbours = Neighbours()
    assert "OLD" in neighbours.gather(here, 0, by_uri(here, old), SETTINGS)
    assert "NEW" in neighbours.gather(here, 0, by_uri(here, new), SETTINGS)


@pytest.mark.parametrize("fault", ["out of step", "binary"])
def test_what_the_gate_keeps_out_is_not_read_either(fault: str) -> None:
    here, other = opened("a.py", HERE), opened("b.py", PRICES + "\0" * (fault == "binary"))
    other.is_in_step = fault == "binary"
    assert Neighbours().gather(here, 4, by_uri(here, other), SETTINGS) == ""


def test_lines_too_long_to_read_are_left_out() -> None:
    here, long = opened("a.py", HERE), opened("b.py", "price_of = item, cart " * LONGEST_LINE + "\n")
    assert Neighbours().gather(here, 4, by_uri(here, long), SETTINGS) == ""
    beside = opened("a.py", "price_of = item " * LONGEST_LINE + "\n\n")
    assert Neighbours().gather(beside, 1, by_uri(beside, opened("b.py", PRICES)), SETTINGS) == ""


def test_a_head_ends_at_its_colon_and_one_without_is_left_out() -> None:
    m = "def f(a):\r\n    if a:\r\n        g(a)\r\n\r\ndef g(a): return a\r\nclass C:\r\n    pass\r\n"
    assert imported("from m import f, g, C\n", {"/m.py": m}, 2000, math.inf) == "def f(a): ...\nclass C: ...\n\n"


@pytest.mark.parametrize(
    ("text", "other"),
    [
        ("from m import f\n", "def f(a\n" * 4000),
        ("from m import (f\n" * 4000, ""),
        ("x\n" * 2**20, "def f(a\n" * 2**18),
    ],
)
def test_what_is_imported_is_found_in_one_reading(text: str, other: str) -> None:
    began = time.process_time()
    re.findall(r"\w+", text + other)
    read = time.process_time()
    imported(text, {"/m.py": other}, 2000, math.inf)
    assert time.process_time() - read < 20 * (read - began) + 0.01


@scenario
async def test_a_document_opened_again_gathers_anew(tmp_path: Path) -> None:
    async with bench(tmp_path) as b:
        b.completer.loaded = Loaded(SETTINGS)
        b.host.answer = offer("1")
        b.completer.open_document(opened("m.py", "def f(a):\n\n\ndef g(b):\n"))
        for name, head in (("f", "def f(a): ...\n\n"), ("g", "def g(b): ...\n\n")):
            b.completer.close_document(URI)
            await b.ask(b.open(f"from m import {name}\nx = ║\n"))
            typed = [fill for fill in b.host.fills if fill.priority == "typed"]
            assert typed[-1].parts[0].startswith(head)


@scenario
async def test_the_engine_is_shown_it_before_the_file_where_the_user_wants_that(tmp_path: Path) -> None:
    async with bench(tmp_path) as b:
        b.host.answer = offer("return result")
        at = b.open(HERE.replace("    \n", "    ║\n"))
        b.completer.documents["file:///home/me/b.py"] = opened("b.py", PRICES)
        assert texts(await b.ask(at)) == ["return result"]
        assert b.host.fills[-1].parts[0] == HERE[: HERE.rindex("\n")]
        b.completer.loaded = Loaded(SETTINGS)
        assert texts(await b.ask(at, URI)) == ["return result"]
        typed = [fill for fill in b.host.fills if fill.priority == "typed"]
        assert typed[-1].parts[0] == PRICES + "\n" + HERE[: HERE.rindex("\n")]
