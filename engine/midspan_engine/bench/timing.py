"""Clocks for work on a CPU and on a GPU, and runs in turn so that a busy moment of the machine hits all alike."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from functools import partial

import torch

from midspan_engine.models.recording import Recording

Run = Callable[[], object]

WARM_UPS = 3
"""Runs of each before the clock counts: kernels are chosen, compiled and loaded in them."""


def elapsed_ms(run: Run, device: torch.device) -> float:
    """Returns what one run takes, on a GPU by its own clock, from an idle device to an idle device."""
    if device.type != "cuda":
        began = time.perf_counter()
        run()
        return (time.perf_counter() - began) * 1e3
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    torch.cuda.synchronize()
    start.record()
    run()
    end.record()
    torch.cuda.synchronize()
    return float(start.elapsed_time(end))


def medians_ms(
    runs: Mapping[str, Run],
    device: torch.device,
    n_times: int,
    between: Run = lambda: None,
    n_warm_ups: int = WARM_UPS,
) -> dict[str, float]:
    """Returns the median of each over `n_times` rounds in which all run once, `between` in front of each."""
    for run in runs.values():
        for _ in range(n_warm_ups):
            run()
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(n_times):
        for name, run in runs.items():
            between()
            times[name].append(elapsed_ms(run, device))
    return {name: statistics.median(values) for name, values in times.items()}


def captured(run: Run, device: torch.device) -> Run:
    """Returns what runs the same as one CUDA graph, without the time of launching; on a CPU `run` itself."""
    if device.type != "cuda":
        return run
    recording = Recording()
    recording.record(run, torch.cuda.graph_pool_handle())
    return partial(recording.play, run)


def cleared_cache(device: torch.device) -> Run:
    """Returns what empties a GPU's cache, so that a kernel finds its inputs in memory; on a CPU it does nothing."""
    if device.type != "cuda":
        return lambda: None
    # several times the largest there is: 126 MB on a B200
    filler = torch.empty(2**28, dtype=torch.int8, device=device)
    return filler.zero_
