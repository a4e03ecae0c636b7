"""Typing on while a canvas settles: where the draft agrees, denoising goes on instead of starting over."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from host_process import TROUBLED, Client, Hosts, fill
from midspan_engine.engine import Engine
from midspan_engine.errors import Cancelled
from midspan_engine.protocol import Draft, Fill, Filled
from served_checkpoint import CHECKPOINT
from tiny_engine import BLANKS, REFERENCE, tiny_engine

ENGINES = {"left to right": BLANKS, "entropy": REFERENCE}
BLOCK = """    def rename_{0}(self, name):
        self.items[{0}] = name.strip().lower()
        self.changed.append({0})
        return self

"""
PREFIX = "class Shop:\n" + "".join(BLOCK.format(n) for n in range(8)) + "    def rename_8(self, name):\n        self.it"
SUFFIX = "\n\n\nclass Other:\n    pass\n"
"""Code that repeats itself: any model that reads it has an opinion of what comes next."""
LONG = {"single_line": False, "max_tokens": 40}


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    """One host of the real model, which holds a watched fill between two passes until the fill is withdrawn."""
    hosts = Hosts(tmp_path_factory.mktemp("held"))
    hosts.start(CHECKPOINT, program=TROUBLED)
    hosts.client().wait_for_state("ready")
    yield hosts
    hosts.end()


def ask(id: int, document: str, typed: str = "", **wishes: object) -> Fill:
    return fill(id, document=document, parts=(PREFIX + typed, SUFFIX), **LONG | wishes)


def drafted(client: Client, n_passes: int) -> str:
    """Waits for so many drafts; returns the text that the last of them has settled behind the prefix."""
    for _ in range(n_passes):
        draft = client.receive()
        while isinstance(draft, Filled):  # of the fill before
            assert "superseded" in str(draft.silence)
            draft = client.receive()
        assert isinstance(draft, Draft)
    before = "".join(slot.text for slot in draft.slots[: [slot.pinned for slot in draft.slots].index(False)])
    healed = PREFIX[PREFIX.rindex(before) + len(before) :]
    settled = "".join(slot.text for slot in draft.slots if not slot.pinned and slot.accepted)
    assert settled.startswith(healed)
    return settled[len(healed) :]


def answered(client: Client, id: int) -> Filled:
    """Returns the answer to a fill; those before it hear at once that it replaces them."""
    while not (isinstance(reply := client.receive(), Filled) and reply.id == id):
        assert isinstance(reply, Draft) or "superseded" in str(getattr(reply, "silence", "")), reply
    return reply


def n_passes(filled: Filled) -> int:
    return filled.stats.steps + filled.stats.encoder_steps


def test_a_key_that_agrees_with_the_draft_goes_on_from_the_present_canvas(hosts: Hosts) -> None:
    client = hosts.client()
    client.send(ask(1, "held-after-3.py", watch=True))
    settled = drafted(client, 3)
    typed = settled[:2]
    assert len(typed) == 2
    client.send(ask(2, "held-after-3.py", typed))
    carried = answered(client, 2)
    fresh = client.ask(ask(3, "fresh.py", typed))
    assert isinstance(fresh, Filled)
    assert carried.stats.carried_steps == 3
    assert fresh.stats.carried_steps == 0
    assert n_passes(carried) < n_passes(fresh)
    assert carried.stats.n_encoded == 0
    assert carried.candidates
    text = carried.candidates[0].text
    assert (typed + text).startswith(settled), "what had settled stays"
    assert client.status().counts["carried on"] >= 1


def test_a_key_that_disagrees_with_the_draft_starts_over(hosts: Hosts) -> None:
    client = hosts.client()
    client.send(ask(1, "held-after-2.py", watch=True))
    typed = "q" if drafted(client, 2)[:1] != "q" else "z"
    client.send(ask(2, "held-after-2.py", typed))
    over = answered(client, 2)
    fresh = client.ask(ask(3, "fresh.py", typed))
    assert isinstance(fresh, Filled)
    assert over.stats.carried_steps == 0
    assert [candidate.text for candidate in over.candidates] == [candidate.text for candidate in fresh.candidates]


def test_every_key_of_a_row_goes_on_from_the_key_before(hosts: Hosts) -> None:
    client = hosts.client()
    client.send(ask(1, "held-after-1.py", watch=True))
    typed = ""
    for id in range(2, 5):
        settled = drafted(client, 1)
        assert settled.startswith(typed)
        typed = settled[: len(typed) + 1]
        client.send(ask(id, "held-after-1.py", typed, watch=id < 4))
    filled = answered(client, 4)
    assert filled.stats.carried_steps == 3
    assert (typed + filled.candidates[0].text).startswith(settled)


def test_the_canvas_of_another_client_is_not_gone_on_from(hosts: Hosts) -> None:
    client, other = hosts.client(), hosts.client()
    client.send(ask(1, "held-after-1.py", watch=True))
    typed = drafted(client, 1)[:1]
    client.close()
    reply = other.ask(ask(2, "held-after-1.py", typed))
    assert isinstance(reply, Filled)
    assert reply.stats.carried_steps == 0


def left(engine: Engine, n_passes: int, **wishes: object) -> str:
    """Withdraws a fill after so many passes; returns what the draft then holds behind the prefix."""
    drafts: list[Draft] = []
    request = Fill(id=1, **{"document": "a.py", "parts": ("x = f(", ")\n")} | wishes)  # type: ignore[arg-type]
    with pytest.raises(Cancelled):
        engine.fill(
            request,
            received=time.perf_counter(),
            is_cancelled=lambda: len(drafts) == n_passes,
            on_draft=drafts.append,
        )
    return "".join(slot.text for slot in drafts[-1].slots if not slot.pinned).removeprefix("(")


def gone_on(engine: Engine, typed: str, **wishes: object) -> Filled:
    request = Fill(id=2, **{"document": "a.py", "parts": ("x = f(" + typed, ")\n")} | wishes)  # type: ignore[arg-type]
    return engine.fill(request, received=time.perf_counter(), is_cancelled=lambda: False)


@pytest.mark.parametrize("order", ENGINES)
def test_both_orders_go_on_and_keep_what_was_typed(order: str) -> None:
    engine = tiny_engine(ENGINES[order])
    typed = left(engine, 2)[:2]
    filled = gone_on(engine, typed)
    assert filled.stats.carried_steps == 2
    assert all("\n" not in candidate.text for candidate in filled.candidates)
    assert gone_on(engine, typed).stats.carried_steps == 0, "a canvas that has settled is not gone on from"


@pytest.mark.parametrize("order", ENGINES)
def test_a_deadline_that_has_passed_is_answered_with_the_draft_there_is(order: str) -> None:
    engine = tiny_engine(ENGINES[order])
    typed = left(engine, 2)[:1]
    filled = gone_on(engine, typed, deadline_ms=0.0)
    assert filled.stats.carried_steps == 2
    assert filled.stats.steps == 0
    assert filled.candidates or filled.silence


@pytest.mark.parametrize(
    "wishes",
    [
        {"parts": ("x = f(", "))\n")},
        {"single_line": False},
        {"max_tokens": 6},
        {"n_candidates": 2},
        {"seed": 3},
        {"document": "b.py"},
        {"suffix_is_cut": True},
    ],
)
def test_a_request_for_anything_else_starts_over(wishes: dict[str, object]) -> None:
    engine = tiny_engine()
    typed = left(engine, 2)[:1]
    if "parts" in wishes:
        wishes = {"parts": ("x = f(" + typed, "))\n")}
    assert gone_on(engine, typed, **wishes).stats.carried_steps == 0


def test_what_is_forgotten_or_dropped_is_not_gone_on_from() -> None:
    engine = tiny_engine()
    for drop in (lambda: engine.forget("a.py"), engine.drop_caches):
        typed = left(engine, 2)[:1]
        drop()
        assert gone_on(engine, typed).stats.carried_steps == 0


def test_the_confidence_asked_for_is_that_of_the_newer_request() -> None:
    engine = tiny_engine()
    typed = left(engine, 2, min_confidence=0.0)[:1]
    filled = gone_on(engine, typed, min_confidence=1.0)
    assert filled.stats.carried_steps == 2
    assert not filled.candidates
    assert "not confident enough" in str(filled.silence)
