"""Kernels that ask for more than a GPU has: they must not pass the gate that compiles ahead of time."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def spilling_kernel(numbers, out, N: tl.constexpr):  # type: ignore[no-untyped-def]
    """Holds 512 numbers a thread when one warp runs it, until all are summed; a thread has 255 registers."""
    at = tl.arange(0, N)
    held = tl.load(numbers + at)
    tl.store(out + at, held / tl.sum(held, 0))


@triton.jit
def hoarding_kernel(numbers, out, N: tl.constexpr, K: tl.constexpr):  # type: ignore[no-untyped-def]
    """Multiplies two tiles that lie in shared memory whole: 128 KiB each of fp16 with 64 x 1024 numbers."""
    of_n, of_k = tl.arange(0, N), tl.arange(0, K)
    left = tl.load(numbers + of_n[:, None] * K + of_k[None, :])
    right = tl.load(numbers + N * K + of_k[:, None] * N + of_n[None, :])
    tl.store(out + of_n[:, None] * N + of_n[None, :], tl.dot(left, right))
