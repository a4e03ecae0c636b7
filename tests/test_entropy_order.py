"""The entropy order where the host hears of a step one step late: the same answers, and no step waits for a device."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

from midspan_engine.accept import temperature
from midspan_engine.canvas import lay_out
from midspan_engine.config import GenerationConfig
from midspan_engine.denoise import Settled, Settling, denoise
from midspan_engine.entropy_order import EntropyOrder
from midspan_engine.errors import EngineError
from midspan_engine.healing import GapRules
from midspan_engine.kv import KVCache
from midspan_engine.models.diffusion_gemma import DiffusionGemma
from midspan_engine.order import Task
from midspan_engine.passes import alone
from midspan_engine.sampler import Counted, InTurn, Sampler
from midspan_engine.side_by_side import denoise_side_by_side
from midspan_kernels.choice import VARIABLE
from midspan_kernels.row_logits import RowLogits, capped
from tiny_engine import REFERENCE, embedded_tokens, tiny_model

RESTLESS = GenerationConfig(max_denoising_steps=9)
SETTLING = GenerationConfig(max_denoising_steps=12, entropy_bound=3.0, t_max=0.1, t_min=0.05, confidence_threshold=0.1)
"""So cold that a random network settles, after six to ten steps, for half of the seeds."""
N_SLOTS = 32
both = pytest.mark.parametrize("kind", [InTurn, Counted])


def cache_of(model: DiffusionGemma) -> KVCache:
    cache = KVCache(model.config.n_layers)
    with torch.inference_mode():
        model.encode(torch.tensor([embedded_tokens().encode("def total(values):\n    return ")]), cache)
    return cache


def task_of(seed: int, n_gap: int = 6, **wishes: Any) -> Task:
    canvas = lay_out([[9], [20, 21]], [n_gap], N_SLOTS, hole=4, pad=0)
    return Task(**{"canvas": canvas, "required": (b"se",), "seed": seed} | wishes)


def settling_of(
    task: Task, kind: type[Sampler], n_behind: int, generation: GenerationConfig, device: str = "cpu"
) -> Settling:
    sampler = kind(task.seed, REFERENCE, 4096, torch.device(device))
    sampler.n_behind = n_behind
    noise_BG = sampler.noise((task.n_rows, len(task.canvas.gap_slots)), 0)
    rules = GapRules(embedded_tokens(), None)
    return Settling(EntropyOrder(task, noise_BG, rules, generation, sampler))


def run(
    task: Task,
    kind: type[Sampler],
    n_behind: int,
    generation: GenerationConfig = SETTLING,
    is_cancelled: Callable[[], bool] = lambda: False,
) -> Settled:
    model = tiny_model()
    settling = settling_of(task, kind, n_behind, generation)
    return denoise(model, cache_of(model), settling, generation.max_denoising_steps, is_cancelled)


def assert_same_answer(found: Settled, expected: Settled) -> None:
    assert found.is_complete == expected.is_complete
    for name in ("draft_BG", "accepted_BG", "confidence_BG"):
        assert torch.equal(getattr(found, name), getattr(expected, name)), name


@both
@pytest.mark.parametrize("n_rows", [1, 2])
def test_hearing_late_changes_no_answer_and_costs_a_pass_at_most(kind: type[Sampler], n_rows: int) -> None:
    n_settled = 0
    for seed in range(5):
        at_once, late = (run(task_of(seed, 4, n_rows=n_rows), kind, n_behind) for n_behind in (0, 1))
        assert_same_answer(late, at_once)
        is_early = at_once.n_steps < SETTLING.max_denoising_steps
        assert late.n_steps == at_once.n_steps + is_early
        n_settled += is_early
    assert n_settled, "some settle before the last step"


@both
def test_at_the_step_limit_no_pass_is_wasted(kind: type[Sampler]) -> None:
    at_once, late = (run(task_of(3), kind, n_behind, RESTLESS) for n_behind in (0, 1))
    assert_same_answer(late, at_once)
    assert at_once.n_steps == late.n_steps == RESTLESS.max_denoising_steps


def test_a_canvas_that_settles_in_its_last_step_is_complete() -> None:
    n_steps = run(task_of(2), Counted, 0).n_steps
    assert n_steps < SETTLING.max_denoising_steps
    generation = msgspec.structs.replace(SETTLING, max_denoising_steps=n_steps)
    at_once, late = (run(task_of(2), Counted, n_behind, generation) for n_behind in (0, 1))
    assert at_once.n_steps == late.n_steps
    assert_same_answer(late, at_once)


def test_a_deadline_gives_the_draft_of_the_last_step_that_was_made(monkeypatch: pytest.MonkeyPatch) -> None:
    settled = run(task_of(2), Counted, 0)
    assert settled.is_complete
    for n_steps in (1, 3, settled.n_steps - 1, settled.n_steps):
        drafts: list[Settled] = []
        for n_behind in (0, 1):
            # a step asks for the time three times: at the start and the end of its pass, and whether another may begin
            ticks = iter(range(100))
            monkeypatch.setattr("midspan_engine.denoise.time.perf_counter", lambda ticks=ticks: float(next(ticks)))
            drafts.append(run(task_of(2, deadline=3 * n_steps - 1.5), Counted, n_behind))
        assert drafts[0].n_steps == drafts[1].n_steps == n_steps
        assert_same_answer(drafts[1], drafts[0])


@torch.inference_mode()
def test_rows_of_several_lengths_that_hear_late_become_what_they_become_at_once() -> None:
    model, answers = tiny_model(), []
    for n_behind in (0, 1):
        begun = [settling_of(task_of(5, n_gap), Counted, n_behind, SETTLING) for n_gap in (3, 6, 11)]
        answers.append(alone(model, denoise_side_by_side(model, cache_of(model), begun, 12, lambda: False)))
    at_once, late = answers
    assert at_once.n_steps <= late.n_steps <= at_once.n_steps + 1
    for found, expected in zip(late.settled, at_once.settled, strict=True):
        assert_same_answer(found, expected)


@pytest.mark.parametrize("n_behind", [0, 1])
def test_logits_that_are_no_numbers_are_told_of_late_too(n_behind: int) -> None:
    model = tiny_model.__wrapped__(seed=3)
    model.norm.weight.fill_(torch.nan)
    with pytest.raises(EngineError, match="damaged"):
        denoise(model, cache_of(model), settling_of(task_of(0), Counted, n_behind, SETTLING), 12, lambda: False)


@torch.inference_mode()
def test_a_canvas_that_is_gone_on_from_forgets_what_it_was_told_before() -> None:
    order = settling_of(task_of(0), Counted, 1, SETTLING).order
    certain_BGV = torch.zeros(1, 6, 4096)
    certain_BGV[..., embedded_tokens().encode("self")[0]] = 60.0
    for _ in range(2):
        order.advance(order.constrain(RowLogits(certain_BGV.clone())))
    order.go_on(replace(order.task, required=(b"self",)))
    assert not order.is_done
    order.advance(order.constrain(RowLogits(certain_BGV.clone())))
    order.conclude()
    assert order.is_done, "what follows is judged by all drafts, as it would have been"


@both
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@torch.inference_mode()
def test_a_step_reads_capped_logits_at_its_temperature_without_what_the_rules_forbid(
    kind: type[Sampler], dtype: torch.dtype
) -> None:
    order = settling_of(task_of(0), kind, 0, RESTLESS).order
    assert isinstance(order, EntropyOrder)
    z_BGV = (20 * torch.randn(1, 6, 4096, generator=torch.Generator().manual_seed(1))).to(dtype)
    for n_left in (RESTLESS.max_denoising_steps, RESTLESS.max_denoising_steps - 1):
        expected = capped(z_BGV, 30.0) / temperature(RESTLESS, n_left)
        logits = order.constrain(RowLogits(z_BGV.clone(), cap=30.0))
        values = logits.values()
        is_allowed = values != -torch.inf
        assert torch.equal(values[is_allowed], expected[is_allowed])
        assert 0 < is_allowed[0, 0].sum() < 50, "which spell what is required"
        assert not is_allowed.all(-1).any()
        order.advance(logits)


class NoCopy(TorchDispatchMode):
    """Refuses operations that give rows [1, 6, 4096], as many as a step has, unless in place; the head may."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        held = {x.untyped_storage()._cdata for x in tree_flatten(args)[0] if isinstance(x, torch.Tensor)}
        for made in tree_flatten(found)[0]:
            is_large = isinstance(made, torch.Tensor) and made.shape[-1:] == (4096,) and made.numel() == 6 * 4096
            is_new = is_large and made.untyped_storage()._cdata not in held
            assert not is_new or func is torch.ops.aten.linear.default, f"{func} copies the rows"
        return found


def test_where_kernels_run_a_step_reads_the_rows_as_the_head_left_them(monkeypatch: pytest.MonkeyPatch) -> None:
    triton = pytest.importorskip("triton")
    monkeypatch.setenv(VARIABLE, "triton")
    launched: list[str] = []
    monkeypatch.setattr(triton.JITFunction, "run", lambda kernel, *args, **about: launched.append(kernel.__module__))
    with torch.device("meta"):
        model = DiffusionGemma(tiny_model().config).bfloat16()
    order = settling_of(task_of(0), Counted, 1, SETTLING, "meta").order
    with torch.inference_mode():
        order.constrain(RowLogits(torch.empty(1, 6, 4096, device="meta")))  # what is required goes there once
        launched.clear()
        with NoCopy():
            hidden_BGH = torch.empty(1, 6, model.config.hidden_size, dtype=torch.bfloat16, device="meta")
            logits = order.constrain(model.row_logits(hidden_BGH))
            order.advance(logits)
            model.soften(*logits)
    assert (logits.z.dtype, logits.cap) == (torch.bfloat16, 30.0)
    kernels = ["split_statistics", "fused_random_tokens", "split_soft_embedding"]
    assert launched == [f"midspan_kernels.{name}" for name in kernels]


class NoTransfer(TorchDispatchMode):
    """Refuses what would have the host wait: an operation between devices, a number taken from a tensor."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        tensors = [x for x in tree_flatten((args, kwargs, found))[0] if isinstance(x, torch.Tensor) and x.dim()]
        assert len({tensor.device for tensor in tensors}) <= 1, f"{func} goes between devices"
        return found


@torch.inference_mode()
def test_no_step_takes_anything_from_the_device_or_brings_anything_there() -> None:
    """The meta device holds no data, so that nothing can be read from it."""
    order = settling_of(task_of(0, n_rows=2), Counted, 1, SETTLING, "meta").order
    for step in range(3):
        logits = RowLogits(torch.empty(2, 6, 4096, device="meta", dtype=torch.bfloat16), cap=30.0)
        if step == 0:
            order.advance(order.constrain(logits))  # what is required goes there once
            continue
        with NoTransfer():
            order.advance(order.constrain(logits))
    assert order.slots_BG.device.type == "meta"
    assert math.prod(order.draft_BG.shape) == 12
