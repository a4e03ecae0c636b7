"""Kernels in Triton's interpreter against their references; `test_kernels.py` runs this file in a process of its own.

Numbers are fp32 and fp16, bf16 is wrong in the interpreter.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import triton
import triton.language as tl

from midspan_kernels import split_attention, split_soft_embedding
from midspan_kernels.attention import attention
from midspan_kernels.canvas_attention import canvas_attention
from midspan_kernels.choice import VARIABLE
from midspan_kernels.counter_random import random_bits
from midspan_kernels.norm import residual_norm, rms_norm
from midspan_kernels.random_tokens import random_tokens
from midspan_kernels.rotary import normed_rotate, rotary_angles, rotary_frequencies
from midspan_kernels.row_logits import RowLogits
from midspan_kernels.row_samples import row_samples
from midspan_kernels.row_statistics import row_statistics
from midspan_kernels.soft_embedding import soft_embedding
from midspan_kernels.split_statistics import BLOCK_TOKENS
from poisoned_memory import Memory, close, random


@pytest.mark.parametrize(
    ("n_contexts", "n_queries", "n_slots", "n_heads", "n_groups", "dim", "n_places", "seen"),
    [
        (1, 1, 1, 1, 1, 16, 1, [(0, 0, 1, 1)]),
        (1, 5, 5, 4, 2, 32, 21, [(0, 0, 17, 5), (0, 0, 17, 5)]),  # rows share a buffer that is not full
        (4, 4, 37, 4, 1, 64, 33, [(2, 50, 80, 37), (0, 0, 0, 1), (3, 3, 36, 33)]),  # rings that have wrapped or not
        (2, 40, 40, 2, 2, 16, 40, [(1, 7, 7, 40), (0, 1, 3, 32)]),  # nothing is seen of a context, or little
        (1, 3, 35, 4, 2, 256, 1030, [(0, 2000, 3023, 35)]),  # a sliding layer of the released model, with slack
        (1, 5, 33, 8, 1, 512, 99, [(0, 0, 98, 30)]),  # a full one, its canvas padded
    ],
)
@pytest.mark.parametrize("n_programs", [6, split_attention.PROGRAMS])  # many blocks of keys to a piece, or one
def test_a_canvas_sees_what_it_is_told_of_its_context_and_itself(
    memory: Memory,
    compare: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    n_programs: int,
    n_contexts: int,
    n_queries: int,
    n_slots: int,
    n_heads: int,
    n_groups: int,
    dim: int,
    n_places: int,
    seen: list[tuple[int, int, int, int]],
) -> None:
    monkeypatch.setattr(split_attention, "PROGRAMS", n_programs)
    q = memory.hold(random(len(seen), n_queries, n_heads, dim, seed=1, scale=dim**-0.5))
    own = tuple(memory.hold(random(len(seen), n_slots, n_groups, dim, seed=seed)) for seed in (2, 3))
    context = tuple(memory.empty(n_contexts, n_places, n_groups, dim) for _ in range(2))
    beside = []
    for row, first, end, n_own in seen:
        far = [random(1, end - first, n_groups, dim, seed=seed) for seed in (4 + row, 14 + row)]
        for held, numbers in zip(context, far, strict=True):
            held[row, torch.arange(first, end) % n_places] = numbers[0]
        at = len(beside)
        beside.append([torch.cat([numbers, mine[at, None, :n_own]], 1) for numbers, mine in zip(far, own, strict=True)])
        for mine in own:
            mine[at, n_own:] = torch.nan
    seen_B4 = memory.hold(torch.tensor(seen))
    compare(canvas_attention, q, context, own, seen_B4)
    alone = [attention(q[row, None], *each, None, is_causal=False) for row, each in enumerate(beside)]
    close(canvas_attention(q, context, own, seen_B4), torch.cat(alone))


def test_a_canvas_sees_a_cut_of_a_buffer_whole(memory: Memory, compare: Callable[..., None]) -> None:
    q, *own = (memory.hold(random(2, 6, n_heads, 32, seed=n_heads)) for n_heads in (4, 2, 2))
    buffers = (memory.hold(random(1, 50, 2, 32, seed=seed)) for seed in (4, 5))
    compare(canvas_attention, q, tuple(buffer[:, 11:43].expand(2, -1, -1, -1) for buffer in buffers), tuple(own))


def test_a_canvas_without_context_sees_itself(memory: Memory, compare: Callable[..., None]) -> None:
    q, *own = (memory.hold(random(1, 40, n_heads, 64, seed=n_heads)) for n_heads in (4, 2, 2))
    compare(canvas_attention, q, None, tuple(own))


def test_large_scores_do_not_overflow(memory: Memory, compare: Callable[..., None]) -> None:
    q, *own = (memory.hold(random(1, 40, 2, 64, seed=seed, scale=30)) for seed in (1, 2, 3))
    compare(canvas_attention, q, tuple(own), tuple(own))


def test_every_head_dim_of_the_model_and_few_others_have_a_kernel() -> None:
    assert all(split_attention.can_run(dim) for dim in (64, 256, 512))
    assert not split_attention.can_run(72)


@pytest.mark.parametrize("shape", [(1, 7), (3, 2816), (2, 5, 3, 48), (130, 16)])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-6), (torch.float16, 1e-3)])
def test_norms_are_the_references(
    memory: Memory, compare: Callable[..., None], shape: tuple[int, ...], dtype: torch.dtype, tolerance: float
) -> None:
    x, branch = (memory.hold(random(*shape, seed=seed).to(dtype)) for seed in (1, 2))
    weight, scalar = (memory.hold(random(n, seed=n).to(dtype)) for n in (shape[-1], 1))
    compare(rms_norm, x, weight, 1e-6, tolerance=tolerance)
    compare(rms_norm, x, None, 1e-6, tolerance=tolerance)
    compare(residual_norm, x, branch, weight, 1e-6, tolerance=tolerance)
    compare(residual_norm, x, branch, weight, 1e-6, scalar, tolerance=tolerance)


@pytest.mark.parametrize(("n_rows", "n_tokens", "n_heads", "dim"), [(1, 1, 1, 16), (2, 9, 3, 48), (3, 5, 16, 256)])
@pytest.mark.parametrize("rotated", [1.0, 0.25])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-6), (torch.float16, 1e-3)])
def test_heads_are_normalised_and_turned_as_by_the_reference(
    memory: Memory,
    compare: Callable[..., None],
    n_rows: int,
    n_tokens: int,
    n_heads: int,
    dim: int,
    rotated: float,
    dtype: torch.dtype,
    tolerance: float,
) -> None:
    x = memory.hold(random(n_rows, n_tokens, n_heads, dim, seed=1).to(dtype))
    weight = memory.hold(random(dim, seed=2).to(dtype))
    frequencies = rotary_frequencies(dim, 1e4, rotated)
    for positions in (torch.arange(900, 900 + n_tokens)[None], torch.arange(n_rows * n_tokens).view(n_rows, -1)):
        angles = (memory.hold(table) for table in rotary_angles(positions, frequencies, dtype))
        compare(normed_rotate, x, weight, 1e-6, *angles, tolerance=tolerance)


@pytest.mark.parametrize(
    ("n_rows", "n_tokens", "n_hidden"), [(1, 7, 5), (3, 1000, 130), (20, 2 * 32 * 11 + 1, 64), (70, 65, 200)]
)
@pytest.mark.parametrize("n_programs", [2, split_soft_embedding.PROGRAMS])
def test_soft_embeddings_are_the_references(
    memory: Memory,
    compare: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    n_programs: int,
    n_rows: int,
    n_tokens: int,
    n_hidden: int,
) -> None:
    monkeypatch.setattr(split_soft_embedding, "PROGRAMS", n_programs)
    logits = memory.hold(random(n_rows, n_tokens, seed=1, scale=4.0))
    logits[:, 2:5] = -torch.inf
    if n_rows > 1:
        logits[0, : n_tokens - 1] = -torch.inf  # pieces without a token, and one token alone
    weight = memory.hold(random(n_tokens, n_hidden, seed=2))
    compare(soft_embedding, RowLogits(logits), weight)
    compare(soft_embedding, RowLogits(logits[:, None], cap=5.0, temperature=0.4), weight)


@pytest.mark.parametrize(
    ("n_rows", "n_tokens", "scale"),
    [(1, 7, 1.0), (3, 5000, 4.0), (2, BLOCK_TOKENS, 0.1), (3, 3 * BLOCK_TOKENS + 1, 9.0)],
)
def test_rows_have_the_statistics_and_the_draw_of_the_reference(
    memory: Memory, monkeypatch: pytest.MonkeyPatch, n_rows: int, n_tokens: int, scale: float
) -> None:
    logits = memory.hold(random(n_rows, n_tokens, seed=n_tokens, scale=scale))
    logits[:, 2:5] = -torch.inf
    if n_tokens > 2 * BLOCK_TOKENS:
        logits[0, :BLOCK_TOKENS] = -torch.inf  # a piece without a token
        logits[1] = -torch.inf
        logits[1, -1] = 3.0  # one token alone
    seed = torch.arange(n_rows) * 987654321987 - 5
    for operation in (row_statistics, lambda z: row_samples(RowLogits(z), memory.hold(seed))):
        monkeypatch.setenv(VARIABLE, "reference")
        expected = operation(logits)
        monkeypatch.setenv(VARIABLE, "triton")
        found = operation(logits)
        for name, wanted in expected._asdict().items():
            torch.testing.assert_close(getattr(found, name), wanted, rtol=1e-4, atol=1e-5, msg=name)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("cap", [None, 30.0])
@pytest.mark.parametrize("temperature", [0.4, 1.0])
def test_logits_are_capped_then_divided_and_what_is_ruled_out_stays_so(
    memory: Memory,
    compare: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    dtype: torch.dtype,
    cap: float | None,
    temperature: float,
) -> None:
    n_tokens = BLOCK_TOKENS + 9
    z = memory.hold(random(4, n_tokens, seed=1, scale=12.0).to(dtype))
    z[0] = -torch.inf
    z[0, 9], z[0, -2] = -28.0, -27.0  # all others would be more probable at -cap
    z[1, 7], z[1, 8] = 1e4, -1e4
    z[2, 2:5] = -torch.inf
    logits, seed = RowLogits(z, cap, temperature), memory.hold(torch.arange(4) - 2)
    monkeypatch.setenv(VARIABLE, "reference")
    expected = row_samples(logits, seed)
    monkeypatch.setenv(VARIABLE, "triton")
    found = row_samples(logits, seed)
    for name, wanted in expected._asdict().items():
        torch.testing.assert_close(getattr(found, name), wanted, rtol=1e-4, atol=1e-5, msg=name)
    assert found.argmax[:2].tolist() == [n_tokens - 2, 7]
    weight = memory.hold(random(n_tokens, 33, seed=2))
    compare(soft_embedding, logits, weight)


@pytest.mark.parametrize("n_tokens", [11, 262144])
def test_random_tokens_are_the_references(memory: Memory, compare: Callable[..., None], n_tokens: int) -> None:
    compare(random_tokens, memory.hold(torch.arange(37) * 987654321987 - 5), n_tokens)


def test_a_row_that_holds_no_numbers_shows_in_its_entropy(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    logits = memory.hold(random(3, BLOCK_TOKENS + 9, seed=1))
    logits[0], logits[1, 5] = torch.nan, torch.nan
    for wish in ("reference", "triton"):
        monkeypatch.setenv(VARIABLE, wish)
        for cap in (None, 30.0):
            drawn = row_samples(RowLogits(logits, cap), memory.hold(torch.arange(3)))
            assert drawn.entropy.isnan().tolist() == [True, True, False], (wish, cap)


def test_the_noise_is_tritons_own(memory: Memory) -> None:
    seeds = memory.hold(torch.tensor([0, 1, -3, 987654321987]))
    out = memory.empty(4, 40, dtype=torch.int32)
    _noise_kernel[(4,)](seeds, out, 40, BLOCK=64)
    assert torch.equal(out.long() & 0xFFFFFFFF, random_bits(seeds, 40))


@triton.jit
def _noise_kernel(seeds, out, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.arange(0, BLOCK)
    bits = tl.randint(tl.load(seeds + tl.program_id(0)), at)
    tl.store(out + tl.program_id(0) * n + at, bits.to(tl.int32, bitcast=True), mask=at < n)
