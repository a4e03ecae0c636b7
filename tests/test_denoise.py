"""Denoising changes gap slots only, stops when told, and equals the reference sampler where nothing is pinned."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import msgspec
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from midspan_engine.canvas import Canvas, lay_out
from midspan_engine.config import GenerationConfig, InfillConfig
from midspan_engine.denoise import Settled, begin, condition, denoise
from midspan_engine.errors import Cancelled, EngineError
from midspan_engine.generate import denoise_canvas
from midspan_engine.healing import GapRules
from midspan_engine.kv import KVCache
from midspan_engine.models.diffusion_gemma import DiffusionGemma
from midspan_engine.order import Order, Task
from tiny_engine import BLANKS, REFERENCE, embedded_tokens, tiny_model

GENERATION = GenerationConfig(max_denoising_steps=12)
ONE_STEP = GenerationConfig(max_denoising_steps=1)
INFILLS = {"left to right": BLANKS, "entropy": REFERENCE}
CONTEXT = "def total(values):\n    result = 0\n    for value in values:\n"
N_SLOTS = 32

orders = st.sampled_from(sorted(INFILLS))
pieces = st.lists(st.lists(st.integers(6, 4095), max_size=5), min_size=2, max_size=4)


def context_cache(model: DiffusionGemma) -> KVCache:
    cache = KVCache(model.config.n_layers)
    with torch.inference_mode():
        model.encode(torch.tensor([embedded_tokens().encode(CONTEXT)]), cache)
    return cache


def task_of(parts: list[list[int]], n_gap: int = 4, required: bytes = b"", **wishes: object) -> Task:
    canvas = lay_out(parts, [n_gap] * (len(parts) - 1), N_SLOTS, hole=4, pad=0)
    needed = (required, *[b""] * (len(canvas.gaps) - 1))
    return Task(**{"canvas": canvas, "required": needed} | wishes)  # type: ignore[arg-type]


def run(
    task: Task,
    infill: InfillConfig,
    model: DiffusionGemma | None = None,
    is_cancelled: Callable[[], bool] = lambda: False,
    on_step: Callable[[int, Order], None] | None = None,
    generation: GenerationConfig = GENERATION,
) -> Settled:
    model = model or tiny_model()
    rules = GapRules(embedded_tokens(), infill.blank_token_id)
    settling = begin(model, task, rules, infill, generation)
    return denoise(model, context_cache(model), settling, generation.max_denoising_steps, is_cancelled, on_step)


@contextmanager
def watched(model: DiffusionGemma) -> Iterator[list[torch.Tensor]]:
    """Collects the canvas that every decoder pass of `model` is given."""
    seen: list[torch.Tensor] = []
    decode = model.decode

    def watch(canvas_BC: torch.Tensor, *others: Any) -> torch.Tensor:
        seen.append(canvas_BC.clone())
        return decode(canvas_BC, *others)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(model, "decode", watch)
        yield seen


@settings(max_examples=20)
@given(parts=pieces, order=orders, seed=st.integers(0, 2**40), n_rows=st.integers(1, 3))
def test_pins_never_change_at_any_step(parts: list[list[int]], order: str, seed: int, n_rows: int) -> None:
    task = task_of(parts, seed=seed, n_rows=n_rows)
    gap_slots = set(task.canvas.gap_slots)
    pins = [slot for slot in range(N_SLOTS) if slot not in gap_slots]
    expected = torch.tensor(task.canvas.ids)[pins]
    with watched(tiny_model()) as seen:
        settled = run(task, INFILLS[order])
    assert len(seen) == settled.n_steps
    for canvas_BC in seen:
        assert canvas_BC.shape == (n_rows, N_SLOTS)
        assert (canvas_BC[:, pins] == expected).all()


@settings(max_examples=20)
@given(
    order=orders,
    seed=st.integers(0, 2**40),
    required=st.sampled_from([b"", b"sel", b"\n    ", b" ", "é".encode(), b"__"]),
    n_gaps=st.integers(1, 3),
    n_rows=st.integers(1, 3),
)
def test_gaps_keep_their_rules(order: str, seed: int, required: bytes, n_gaps: int, n_rows: int) -> None:
    parts = [embedded_tokens().encode("x =")] + [[20]] * n_gaps
    settled = run(task_of(parts, 5, required, seed=seed, n_rows=n_rows), INFILLS[order])
    spellings = embedded_tokens().spellings
    for row in settled.draft_BG.tolist():
        first = b"".join(spellings[token] for token in row[:5])
        assert first.startswith(required)
        behind = first[len(required) :] + b"".join(spellings[token] for token in row[5:])
        assert b"\n" not in behind
        assert b"\r" not in behind
        assert all(spellings[token] or token == INFILLS[order].blank_token_id for token in row), "no special id"


@settings(max_examples=8)
@given(order=orders, seed=st.integers(0, 2**40))
def test_the_same_seed_gives_the_same_answer(order: str, seed: int) -> None:
    first, second = (run(task_of([[9], [20, 21]], 8, seed=seed, n_rows=2), INFILLS[order]) for _ in range(2))
    assert torch.equal(first.draft_BG, second.draft_BG)
    assert torch.equal(first.confidence_BG, second.confidence_BG)
    assert first.n_steps == second.n_steps


def test_another_seed_of_uniform_noise_gives_another_answer() -> None:
    drafts = [run(task_of([[9], [20]], 8, seed=seed), REFERENCE, generation=ONE_STEP).draft_BG for seed in range(6)]
    assert any(not torch.equal(draft, drafts[0]) for draft in drafts)


@pytest.mark.parametrize("order", INFILLS)
@pytest.mark.parametrize("n_steps", [0, 1, 3])
def test_a_cancel_takes_effect_before_the_next_step(order: str, n_steps: int) -> None:
    infill = msgspec.structs.replace(INFILLS[order], commit_confidence=1.1)  # one slot a step
    with watched(tiny_model()) as seen, pytest.raises(Cancelled):
        run(task_of([[9], [20]], 12), infill, is_cancelled=lambda: len(seen) == n_steps)
    assert len(seen) == n_steps


@pytest.mark.parametrize("order", INFILLS)
def test_a_deadline_long_past_still_gives_the_draft_of_one_step(order: str) -> None:
    settled = run(task_of([[9], [20]], 12, deadline=-math.inf), INFILLS[order])
    assert settled.n_steps == 1
    assert not settled.is_complete
    assert settled.accepted_BG.any(), "the most certain slot at least"
    assert (settled.draft_BG != 4).all(), "a draft holds no noise"


@pytest.mark.parametrize("order", INFILLS)
def test_a_deadline_between_two_steps_gives_the_draft_so_far(order: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # a step asks for the time three times: at the start and the end of its pass, and whether another may begin
    ticks = iter(range(100))
    monkeypatch.setattr("midspan_engine.denoise.time.perf_counter", lambda: float(next(ticks)))
    infill = msgspec.structs.replace(INFILLS[order], commit_confidence=1.1)
    drafts: list[torch.Tensor] = []
    settled = run(
        task_of([[9], [20]], 12, deadline=7.5), infill, on_step=lambda _, order: drafts.append(order.draft_BG.clone())
    )
    assert settled.n_steps == len(drafts) == 3
    assert torch.equal(settled.draft_BG, drafts[-1])


@pytest.mark.parametrize("order", INFILLS)
def test_at_the_step_limit_the_draft_is_given_as_incomplete(order: str) -> None:
    infill = msgspec.structs.replace(INFILLS[order], commit_confidence=1.1)
    settled = run(task_of([[9], [20]], 12), infill, generation=ONE_STEP)
    assert settled.n_steps == 1
    assert not settled.is_complete


def test_left_to_right_commits_from_the_left_and_keeps_what_it_committed() -> None:
    infill = msgspec.structs.replace(BLANKS, commit_confidence=0.02)
    seen: list[tuple[torch.Tensor, torch.Tensor]] = []
    settled = run(
        task_of([[9], [20]], 12),
        infill,
        on_step=lambda _, order: seen.append((order.slots_BG.clone(), order.known_BG.clone())),
    )
    assert settled.is_complete
    for (slots, known), (later, known_later) in pairwise(seen):
        n_known = int(known.sum())
        assert known[0, :n_known].all(), "a run from the left"
        assert int(known_later.sum()) > n_known, "at least one slot a step"
        assert torch.equal(later[0, :n_known], slots[0, :n_known])
    assert torch.equal(seen[-1][0], settled.draft_BG)


@pytest.mark.parametrize("seed", range(3))
def test_the_first_blank_makes_all_slots_behind_it_surplus(seed: int) -> None:
    model = copy.deepcopy(tiny_model(seed=seed))
    hidden_BCH = model.decode(torch.tensor([[9] + [4] * 12 + [20] * 19]), context_cache(model))
    # The head now prefers the blank in nearly every slot, the more the later.
    model.embed_tokens.weight[5] = hidden_BCH[0, 4:13].mean(0)
    settled = run(task_of([[9], [20]], 12, b"self"), BLANKS, model)
    row = settled.draft_BG[0].tolist()
    first = row.index(5)
    assert settled.is_complete
    assert first > 0, "what is required comes before the end"
    assert row[first:] == [5] * (12 - first)
    assert (settled.confidence_BG[0, first + 1 :] == 1).all(), "surplus says nothing about confidence"


def test_alternatives_part_at_the_first_slot_where_they_can() -> None:
    settled = run(task_of([[9], [20]], 6, n_rows=3), BLANKS)
    assert len(set(settled.draft_BG[:, 0].tolist())) == 3
    healed = run(task_of([[9], [20]], 6, b"\xff", n_rows=3), BLANKS)
    spellings = embedded_tokens().spellings
    assert {spellings[token][:1] for token in healed.draft_BG[:, 0].tolist()} == {b"\xff"}, "only one token fits"


@pytest.mark.parametrize("order", INFILLS)
def test_weights_that_are_no_numbers_are_reported(order: str) -> None:
    model = copy.deepcopy(tiny_model())
    model.layers[0].mlp.up_proj.weight.fill_(torch.nan)
    with pytest.raises(EngineError, match="damaged"):
        run(task_of([[9], [20]]), INFILLS[order], model)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("confidence", [0.005, 100.0])
def test_without_pins_the_entropy_order_is_the_reference_sampler_draw_for_draw(seed: int, confidence: float) -> None:
    generation = msgspec.structs.replace(
        GENERATION, entropy_bound=3.0, confidence_threshold=confidence, stability_threshold=1
    )
    model = tiny_model()
    expected_drafts: list[torch.Tensor] = []
    with torch.inference_mode():
        generator = torch.Generator().manual_seed(seed)
        expected = denoise_canvas(model, context_cache(model), generation, generator, expected_drafts.append)
    drafts: list[torch.Tensor] = []
    task = Task(Canvas((0,) * N_SLOTS, (range(N_SLOTS),)), (b"",), seed=seed)
    settled = denoise(
        model,
        context_cache(model),
        begin(model, task, None, REFERENCE, generation),
        generation.max_denoising_steps,
        lambda: False,
        lambda _, order: drafts.append(order.draft_BG.clone()),
    )
    assert torch.equal(settled.draft_BG, expected)
    assert settled.n_steps == len(expected_drafts) > 1
    assert all(torch.equal(own, reference) for own, reference in zip(drafts, expected_drafts, strict=True))


def test_gap_rows_equal_the_rows_of_the_whole_canvas() -> None:
    model = tiny_model()
    generator = torch.Generator().manual_seed(3)
    canvas_BC = torch.randint(6, 4096, (2, N_SLOTS), generator=generator)
    gap_slots = torch.tensor([4, 5, 6, 15, 16])
    with torch.inference_mode():
        hidden_BCH = model.decode(canvas_BC, context_cache(model))
        all_BCV = model.logits(hidden_BCH)
        gap_BGV = model.logits(model.decode(canvas_BC, context_cache(model), None, gap_slots))
        torch.testing.assert_close(gap_BGV, all_BCV[:, gap_slots], atol=1e-5, rtol=0)
        soft_BGH = model.soften(gap_BGV)
        torch.testing.assert_close(soft_BGH, model.soften(all_BCV)[:, gap_slots], atol=1e-5, rtol=0)
        known_BC = torch.ones_like(canvas_BC, dtype=torch.bool)
        known_BC[:, gap_slots] = False
        mixed_BCH = condition(model, canvas_BC, known_BC, gap_slots, soft_BGH)
    assert torch.equal(mixed_BCH[:, gap_slots], soft_BGH)
    assert torch.equal(mixed_BCH[known_BC], model.embed(canvas_BC)[known_BC]), "a pin conditions on its own token"
