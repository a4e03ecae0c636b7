"""The kernels beside their torch references: right, how fast, and how near to what the machine can do at best.

On a GPU each is one CUDA graph, as in serving, and finds its inputs in memory and not in the cache; a reference that
waits for the device, so that no graph can hold it, runs as it is. Triton's kernels run on GPUs alone: on a CPU the
references are measured.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal

import msgspec
import torch

from midspan_engine.bench.ceilings import Ceilings
from midspan_engine.bench.kernel_cases import TOLERANCES, KernelCase, kernel_cases, largest_error
from midspan_engine.bench.timing import captured, cleared_cache, medians_ms
from midspan_engine.config import ModelConfig
from midspan_kernels.choice import VARIABLE

_N_TIMES = 20


class KernelRow(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """One operation in one type."""

    kernel: str
    dtype: str
    reference_ms: float
    triton_ms: float | None = None
    """None where Triton does not run."""
    error: float | None = None
    """Relative, of Triton's result against the reference's."""
    tolerance: float
    gb_per_s: float
    """Bytes that have to be moved over the time of the faster one."""
    tflop_per_s: float
    share_of_ceiling: float
    """Of the ceiling that is nearer: 1 is the best this machine can do."""

    @property
    def is_right(self) -> bool | None:
        """Whether Triton gives what the reference gives; None where it does not run."""
        return None if self.error is None else self.error <= self.tolerance


@contextmanager
def implementation(wish: Literal["reference", "triton"]) -> Iterator[None]:
    """Has one implementation run, whatever the environment says."""
    before = os.environ.get(VARIABLE)
    os.environ[VARIABLE] = wish
    try:
        yield
    finally:
        if before is None:
            del os.environ[VARIABLE]
        else:
            os.environ[VARIABLE] = before


def measure_kernels(config: ModelConfig, dtype: torch.dtype, device: torch.device, best: Ceilings) -> list[KernelRow]:
    """Measures every kernel in turn."""
    return [
        measure_kernel(name, make, dtype, device, best) for name, make in kernel_cases(config, dtype, device).items()
    ]


@torch.inference_mode()
def measure_kernel(
    name: str, make: Callable[[], KernelCase], dtype: torch.dtype, device: torch.device, best: Ceilings
) -> KernelRow:
    """Compares and times one kernel."""
    case = make()
    error, runs = None, {}
    with implementation("reference"):
        expected = case.run()
        runs["reference"] = case.run if case.reference_waits else captured(case.run, device)
    if device.type == "cuda":
        with implementation("triton"):
            error = largest_error(case.run(), expected)
            runs["triton"] = captured(case.run, device)
    with implementation("reference"):
        times = medians_ms(runs, device, _N_TIMES, cleared_cache(device))
    ms = min(times.values())
    gb_per_s, tflop_per_s = case.n_bytes / ms / 1e6, case.n_flop / ms / 1e9
    return KernelRow(
        kernel=name,
        dtype=str(dtype).removeprefix("torch."),
        reference_ms=times["reference"],
        triton_ms=times.get("triton"),
        error=error,
        tolerance=TOLERANCES[dtype] if case.tolerance is None else case.tolerance,
        gb_per_s=gb_per_s,
        tflop_per_s=tflop_per_s,
        share_of_ceiling=max(gb_per_s / best.gb_per_s, tflop_per_s / best.tflop_per_s),
    )


KERNEL_COLUMNS = ("kernel", "type", "reference ms", "Triton ms", "error", "GB/s", "TFLOP/s", "of the ceiling")


def kernel_cells(row: KernelRow) -> tuple[str, ...]:
    """Returns the cells of a kernel's row."""
    verdict = "" if row.error is None else f"{row.error:.0e}{'' if row.is_right else ' WRONG'}"
    triton = "" if row.triton_ms is None else f"{row.triton_ms:.3f}"
    reached = (f"{row.gb_per_s:.1f}", f"{row.tflop_per_s:.3f}", f"{row.share_of_ceiling:.0%}")
    return row.kernel, row.dtype, f"{row.reference_ms:.3f}", triton, verdict, *reached
