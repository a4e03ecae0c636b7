"""Every kernel, as the released model would launch it, compiles for every target and fits: no spills, no GPU needed."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import midspan_kernels
from ahead_of_time import SHARED_KIB, Launch, fit, launches
from midspan_kernels.canvas_attention import canvas_attention
from midspan_kernels.choice import VARIABLE
from midspan_kernels.expert_blocks import expert_blocks
from midspan_kernels.experts import routed_experts
from midspan_kernels.norm import residual_norm, rms_norm
from midspan_kernels.packed import Packed
from midspan_kernels.random_tokens import random_tokens
from midspan_kernels.rotary import normed_rotate
from midspan_kernels.row_logits import RowLogits
from midspan_kernels.row_samples import row_samples
from midspan_kernels.row_statistics import row_statistics
from midspan_kernels.soft_embedding import soft_embedding
from midspan_kernels.top_experts import top_experts

pytest.importorskip("triton")

# google/diffusiongemma-26B-A4B-it: config.json
HIDDEN, WIDTH, N_EXPERTS, TOP_K, VOCABULARY = 2816, 704, 128, 8, 262144
HEADS = {"sliding": (256, 8), "full": (512, 2)}
N_SLOTS, N_PLACES = 64, 4096


def meta(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    return torch.empty(*shape, dtype=dtype, device="meta")


def attend() -> None:
    for dim, n_groups in HEADS.values():
        q, own = meta(1, N_SLOTS, 16, dim), (meta(1, N_SLOTS, n_groups, dim),) * 2
        for seen in (None, meta(1, 4, dtype=torch.int64)):
            canvas_attention(q, (meta(1, N_PLACES, n_groups, dim),) * 2, own, seen)
        canvas_attention(q.expand(4, -1, -1, -1), None, tuple(t.expand(4, -1, -1, -1) for t in own))
    canvas_attention(meta(1, N_SLOTS, 6, 64), None, (meta(1, N_SLOTS, 2, 64),) * 2)  # the embedded checkpoint's


def normalise() -> None:
    x, weight = meta(1, N_SLOTS, HIDDEN), meta(HIDDEN)
    rms_norm(x, weight, 1e-6)
    rms_norm(x, None, 1e-6)
    residual_norm(x, x, weight, 1e-6)
    residual_norm(x, x, weight, 1e-6, meta(1))
    for dim, n_groups in HEADS.values():
        rms_norm(meta(1, N_SLOTS, n_groups, dim), None, 1e-6)
        for n_heads in (16, n_groups):
            normed_rotate(meta(1, N_SLOTS, n_heads, dim), meta(dim), 1e-6, *(meta(1, N_SLOTS, 1, dim),) * 2)


def sample() -> None:
    for n_rows in (12, 24, 64):
        seed = meta(n_rows, dtype=torch.int64)
        random_tokens(seed, VOCABULARY)
        plain = meta(n_rows, VOCABULARY, dtype=torch.float32)
        row_statistics(plain)
        for logits in (RowLogits(plain), RowLogits(meta(n_rows, VOCABULARY), cap=30.0, temperature=0.8)):
            row_samples(logits, seed)
            soft_embedding(logits, meta(VOCABULARY, HIDDEN))


def route() -> None:
    def weights(*shape: int, layout: str) -> torch.Tensor | Packed:
        groups = {"int4": 32, "with offsets": 32, "NVFP4": 16, "int8": 32}
        *outer, n_inputs = shape
        if layout == "plain":
            return meta(*shape)
        if layout == "FP8":
            return Packed("fp8", meta(*shape, dtype=torch.float8_e4m3fn), meta(*outer, 1))
        if layout == "int8":
            return Packed("int8", meta(*shape, dtype=torch.int8), meta(*outer, n_inputs // groups[layout]))
        is_fp4 = layout == "NVFP4"
        scales = meta(*outer, n_inputs // groups[layout], dtype=torch.float8_e4m3fn if is_fp4 else torch.bfloat16)
        return Packed(
            "fp4" if is_fp4 else "int4",
            meta(*outer, n_inputs // 2, dtype=torch.uint8),
            scales,
            offsets=scales if layout == "with offsets" else None,
            row_scales=meta(*outer, 1, dtype=torch.float32) if is_fp4 else None,
        )

    for layout in ("int4", "with offsets", "NVFP4", "int8", "FP8", "plain"):
        gate_up = weights(N_EXPERTS, 2 * WIDTH, HIDDEN, layout=layout)
        down = weights(N_EXPERTS, HIDDEN, WIDTH, layout=layout)
        index = meta(N_SLOTS, TOP_K, dtype=torch.int64)
        routed_experts(meta(N_SLOTS, HIDDEN), gate_up, down, index, meta(N_SLOTS, TOP_K, dtype=torch.float32))
    top_experts(meta(N_SLOTS, N_EXPERTS), TOP_K, meta(N_EXPERTS))
    expert_blocks(meta(256 * TOP_K, dtype=torch.int64), N_EXPERTS)  # the widest canvas


@pytest.fixture
def of_the_released_model(monkeypatch: pytest.MonkeyPatch) -> set[Launch]:
    """What one pass of the released model launches."""
    monkeypatch.setenv(VARIABLE, "triton")
    with torch.inference_mode():
        return set().union(*(launches(run) for run in (attend, normalise, sample, route)))


def kernels() -> Iterator[Any]:
    """Yield every kernel of the package that is launched: those that are not are parts of these."""
    import triton

    for module in pkgutil.iter_modules(midspan_kernels.__path__):
        members = vars(importlib.import_module(f"midspan_kernels.{module.name}"))
        yield from (it for name, it in members.items() if isinstance(it, triton.JITFunction) and "kernel" in name)


def test_the_gate_forgets_no_kernel(of_the_released_model: set[Launch]) -> None:
    assert {launch.kernel.fn for launch in of_the_released_model} == {kernel.fn for kernel in kernels()}


@pytest.mark.parametrize("capability", SHARED_KIB)
@pytest.mark.slow
def test_every_kernel_compiles_without_spills_and_fits(
    of_the_released_model: set[Launch], capability: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    for launch in of_the_released_model:
        spilled_bytes, shared_bytes = fit(launch, capability)
        about = f"{launch.kernel.fn.__qualname__} {dict(launch.constants)} {dict(launch.options)}"
        assert not spilled_bytes, about
        assert shared_bytes <= SHARED_KIB[capability] * 1024, about


@pytest.mark.slow
def test_a_kernel_that_asks_for_too_much_is_seen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("triton")
    from greedy_kernels import hoarding_kernel, spilling_kernel

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    wide, tiles = meta(2**14, dtype=torch.float32), meta(2 * 64 * 1024, dtype=torch.float16)
    (spilling,) = launches(lambda: spilling_kernel[(1,)](wide, wide, N=2**14, num_warps=1))
    (hoarding,) = launches(lambda: hoarding_kernel[(1,)](tiles, wide, N=64, K=1024, num_warps=4))
    assert fit(spilling, 90).spilled_bytes
    assert fit(hoarding, 90).shared_bytes > SHARED_KIB[90] * 1024
