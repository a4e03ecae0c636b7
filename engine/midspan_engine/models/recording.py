"""A pass whose launches are recorded once and played back in one: a CUDA graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch

T = TypeVar("T")


class Recording:
    """What `run` launched when it was recorded. Without a recording, as on a CPU, `run` itself is called.

    Between two plays `run` may differ in what lies in its inputs, and in nothing else: no shape, no launch and no
    branch may depend on a number on the device.
    """

    def __init__(self) -> None:
        self._graph: torch.cuda.CUDAGraph | None = None
        self._result: Any = None

    def record(self, run: Callable[[], object], memory: Any) -> None:
        """Records on a GPU; intermediate results lie in a memory pool that graphs share."""
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):  # what is compiled or allocated at first use is no part of a graph
            run()
        torch.cuda.current_stream().wait_stream(side)
        self._graph = torch.cuda.CUDAGraph()
        # other threads answer a status meanwhile, and may ask the device how much memory is free
        with torch.cuda.graph(self._graph, pool=memory, capture_error_mode="thread_local"):
            self._result = run()

    def play(self, run: Callable[[], T]) -> T:
        """Returns what `run` would; it is good until anything is played that shares the memory."""
        if self._graph is None:
            return run()
        self._graph.replay()
        result: T = self._result
        return result
