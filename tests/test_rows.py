"""Fills that share decoder passes get what they would have got alone, and what befalls one befalls no other."""

from __future__ import annotations

import math
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import pytest
import torch

from midspan_engine.engine import Engine
from midspan_engine.errors import Cancelled, EngineError
from midspan_engine.job_queue import Job
from midspan_engine.passes import Passes
from midspan_engine.protocol import Failed, Fill, Filled
from midspan_engine.rows import Rows
from midspan_engine.trouble import failed
from tiny_engine import BLANKS, PROBED, REFERENCE, embedded_tokens, tiny_engine, tiny_model

SLOW = msgspec.structs.replace(BLANKS, commit_confidence=1.1)
"""One slot a pass, so that a gap takes as many passes as it has slots, unless a blank ends it."""
INFILLS = {
    "left to right": SLOW,
    "with a vote": msgspec.structs.replace(SLOW, causal_weight=0.5, quote_tokens=2, sure_confidence=0.3),
    "entropy": REFERENCE,
    "probe": PROBED,
}
LINES = "".join(f"value_{number} = call({number})\n" for number in range(30))
REQUESTS = [
    {"parts": ("x = f(", ")\n")},
    {"parts": (LINES + "total = ", "\nprint(total)\n"), "max_tokens": 7},
    {"parts": ("", ""), "single_line": False},
    {"parts": ("import os\n\nos.pa", "(a, ", ")\n"), "max_tokens": 3},
    {"parts": (LINES[:200] + "z = g(", ")\n"), "n_candidates": 2},
]


def ask(id: int, seed: int = 0, **wishes: Any) -> Fill:
    return Fill(id=id, document=f"{id}.py", seed=seed, **wishes)


def answering(engine: Engine, job: Job) -> Passes[Filled | Failed]:
    """Answers whatever happens, as the worker does."""
    try:
        return (yield from engine.filling(job.request, received=job.received, is_cancelled=job.check_in))
    except Cancelled:
        return Filled(id=job.request.id, silence="cancelled")
    except Exception as error:
        return failed(job.request.id, error)


class Scene:
    """Rows of an engine, and the answers in the order in which they came."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.answers: dict[int, Filled | Failed] = {}
        self.rows = Rows(engine.model, self._note)

    def _note(self, job: Job, reply: Filled | Failed) -> None:
        assert reply.id == job.request.id
        self.answers[reply.id] = reply

    def add(self, request: Fill) -> Job:
        def ignore(message: object) -> None:
            pass

        job = Job(request, client=request.id, received=time.perf_counter(), on_draft=ignore, on_done=ignore)
        self.rows.add(job, answering(self.engine, job))
        return job

    def finish(self) -> dict[int, Filled | Failed]:
        while len(self.rows):
            self.rows.advance()
        return self.answers


def alone(engine: Engine, request: Fill) -> Filled:
    return engine.fill(request, received=time.perf_counter(), is_cancelled=lambda: False)


def assert_same(reply: Filled | Failed, expected: Filled) -> None:
    """Says that an answer is the same but for rounding, and cost the same passes."""
    assert isinstance(reply, Filled)
    assert [candidate.gaps for candidate in reply.candidates] == [candidate.gaps for candidate in expected.candidates]
    for candidate, other in zip(reply.candidates, expected.candidates, strict=True):
        assert candidate.confidence == pytest.approx(other.confidence, rel=1e-3)
    assert (reply.silence, reply.stats.steps) == (expected.silence, expected.stats.steps)
    assert reply.stats.encoder_steps == expected.stats.encoder_steps


@contextmanager
def widths(engine: Engine) -> Iterator[list[int]]:
    """Collects the rows of every decoder pass."""
    seen, decode = list[int](), engine.model.decode

    def watch(canvas_BC: torch.Tensor, *others: Any) -> torch.Tensor:
        seen.append(len(canvas_BC))
        return decode(canvas_BC, *others)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine.model, "decode", watch)
        yield seen


@pytest.mark.parametrize("kind", INFILLS)
@pytest.mark.parametrize("seed", range(2))
def test_every_fill_gets_the_answer_that_it_would_have_got_alone(kind: str, seed: int) -> None:
    scene = Scene(tiny_engine(INFILLS[kind]))
    requests = [ask(id, seed + id, **wishes) for id, wishes in enumerate(REQUESTS)]
    for request in requests:
        scene.add(request)
    answers = scene.finish()
    assert scene.rows.n_shared > 1
    for request in requests:
        assert_same(answers[request.id], alone(scene.engine, request))


def test_one_alone_makes_the_very_same_passes_as_without_rows() -> None:
    request = ask(1, parts=(LINES + "x = f(", ")\n"))
    for infill in INFILLS.values():
        scene = Scene(tiny_engine(infill))
        scene.add(request)
        reply, expected = scene.finish()[1], alone(scene.engine, request)
        assert isinstance(reply, Filled)
        assert reply.candidates == expected.candidates, "to the last bit"
        assert scene.rows.n_shared == 0


def test_one_that_is_done_leaves_and_another_joins_before_the_next_pass() -> None:
    engine = tiny_engine(SLOW)
    scene, requests = Scene(engine), [ask(id, parts=("x = f(", ")\n"), max_tokens=n) for id, n in ((1, 9), (2, 3))]
    n_long, n_short = (alone(engine, request).stats.steps for request in requests)
    assert n_long > n_short + 2
    with widths(engine) as seen:
        scene.add(requests[0])
        scene.rows.advance()
        scene.rows.advance()
        scene.add(requests[1])
        scene.finish()
    assert seen == [1, 1] + [2] * n_short + [1] * (n_long - n_short - 2)
    assert list(scene.answers) == [2, 1]
    assert scene.rows.n_shared == n_short


def test_one_that_is_withdrawn_ends_at_its_next_step_and_its_next_key_goes_on_from_there() -> None:
    scene, requests = Scene(tiny_engine(SLOW)), [ask(id, parts=("x = f(", ")\n")) for id in (1, 2)]
    first, _ = (scene.add(request) for request in requests)
    for _ in range(4):
        scene.rows.advance()
    first.cancel()
    scene.rows.advance()
    assert list(scene.answers) == [1]
    settling = scene.engine._unsettled._left["1.py"].settling
    typed = embedded_tokens().spellings[int(settling.order.draft_BG[0, 0])].decode()[1:]
    scene.add(ask(1, parts=("x = f(" + typed, ")\n")))
    answers = scene.finish()
    carried = answers[1]
    assert isinstance(carried, Filled)
    assert carried.stats.carried_steps == settling.n_steps - carried.stats.steps >= 4
    assert_same(answers[2], alone(scene.engine, requests[1]))


def test_the_deadline_and_the_confidence_asked_for_are_those_of_each() -> None:
    asked = {"parts": ("x = f(", ")\n")}
    late, hopeless, patient = ask(1, deadline_ms=0.0, **asked), ask(2, min_confidence=1.0, **asked), ask(3, **asked)
    scene = Scene(tiny_engine(SLOW))
    for request in (late, hopeless, patient):
        scene.add(request)
    answers = scene.finish()
    steps = [reply.stats.steps for reply in answers.values() if isinstance(reply, Filled)]
    assert steps[:2] == [1, 1] < steps[2:]
    assert_same(answers[3], alone(scene.engine, patient))


def test_numbers_that_are_none_are_told_to_the_one_that_has_them() -> None:
    engine = tiny_engine(SLOW)
    scene, decode = Scene(engine), engine.model.decode
    requests = [ask(id, parts=("x = f(", ")\n")) for id in (1, 2)]

    def spoil(*given: Any) -> torch.Tensor:
        hidden_BSH = decode(*given)
        hidden_BSH[0] = math.nan
        return hidden_BSH

    for request in requests:
        scene.add(request)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine.model, "decode", spoil)
        scene.rows.advance()
    reply = scene.finish()[1]
    assert isinstance(reply, Failed)
    assert "damaged" in reply.message
    assert_same(scene.answers[2], alone(scene.engine, requests[1]))


@pytest.mark.parametrize("doomed", [None, 2])
def test_where_a_shared_pass_fails_each_gets_its_own_and_memory_is_free_by_then(doomed: int | None) -> None:
    engine = tiny_engine(SLOW)
    scene, decode = Scene(engine), engine.model.decode
    requests = [ask(id, parts=("x = f(", ")\n"), max_tokens=id + 2) for id in (1, 2, 3)]
    held: list[weakref.ref[torch.Tensor]] = []

    def fail(canvas_BC: torch.Tensor, cache: Any, soft_BCH: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
        activations = torch.zeros(9)
        assert all(ref() is None for ref in held), "a pass that failed holds memory"
        if len(canvas_BC) > 1 or len(wanted) == (doomed or -2) + 2:
            held.append(weakref.ref(activations))
            raise RuntimeError("out of memory") if len(canvas_BC) > 1 else EngineError("no luck")
        return decode(canvas_BC, cache, soft_BCH, wanted)

    for request in requests:
        scene.add(request)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine.model, "decode", fail)
        answers = scene.finish()
    assert held
    assert scene.rows.n_shared == 0
    for request in requests:
        if request.id == doomed:
            assert answers[request.id] == Failed(id=request.id, message="no luck")
        else:
            assert_same(answers[request.id], alone(scene.engine, request))


def test_a_cpu_shares_a_pass_between_two() -> None:
    assert Rows(tiny_model(), lambda job, reply: None).n_most == 2
