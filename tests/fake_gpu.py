"""Runs Midspan on a GPU that is not there; `test_fake_gpu.py` runs this file in a process of its own.

Tensors say that they lie on the GPU and have no memory. They refuse to meet one that does not, as they would there;
kernels are launched into nothing, and every number that the host asks for is 1 (false, if it is a truth). So what is
shown is where things lie and what a graph would have recorded, never a result.
"""

from __future__ import annotations

import ctypes
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import msgspec
import torch
import triton
from torch._subclasses import fake_impls
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from midspan_engine import graphs
from midspan_engine.bench import model_sections
from midspan_engine.bench.ceilings import Ceilings
from midspan_engine.bench.shapes import SMALL
from midspan_engine.bench.synthetic import synthetic_model
from midspan_engine.config import GenerationConfig, InfillConfig
from midspan_engine.edit import revise
from midspan_engine.engine import Engine
from midspan_engine.healing import GapRules
from midspan_engine.models.recording import Recording
from midspan_engine.protocol import Fill, Held
from tiny_engine import BLANKS, PROBED, REFERENCE, embedded_tokens, fill, tiny_model

GPU = torch.device("cuda")
POLICIES = {
    "probe": PROBED,
    "fixed": REFERENCE,
    "echo": msgspec.structs.replace(PROBED, length="echo"),
    "blanks": BLANKS,
}
CONFIG, TOKENS = tiny_model().config, embedded_tokens()
PREFIX, SUFFIX = "def f(x):\n    return x + ", "\nprint(f(1))\n"

_SCALAR = torch.ops.aten._local_scalar_dense.default
is_capturing = False


class Driverless(TorchFunctionMode):
    """Leaves out what needs a driver: memory of the host is not pinned, numbers of the host are made there first."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        about = {key: value for key, value in (kwargs or {}).items() if key != "pin_memory"}
        if function is torch.tensor and (device := about.pop("device", None)) is not None:
            return function(*args, **about).to(device)
        return function(*args, **about)


class Captured(TorchDispatchMode):
    """Fails where a pass that is captured reads a number or meets the host's memory."""

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        for tensor in (each for each in tree_leaves((args, kwargs)) if isinstance(each, torch.Tensor)):
            assert not (is_capturing and (tensor.device.type == "cpu" or function is _SCALAR)), function
            if function is not _SCALAR:
                tensor.constant = None  # type: ignore[attr-defined]  # it would be computed with where it lies
        return function(*args, **(kwargs or {}))


class Event:
    """What happens on the GPU has happened at once."""

    def __init__(self, **about: Any) -> None:
        pass

    def record(self) -> None:
        """Does nothing."""

    def synchronize(self) -> None:
        """Does nothing."""

    def elapsed_time(self, end: Event) -> float:
        """Returns some time."""
        return 1.0


class Generator:
    """Draws nothing: there is no memory to draw into."""

    def __init__(self, device: torch.device | None = None) -> None:
        pass

    def manual_seed(self, seed: int) -> None:
        """Does nothing."""


def record(recording: Recording, run: Callable[[], object], memory: Any) -> None:
    """Does what `Recording.record` does but for the graph."""
    global is_capturing
    run()
    is_capturing = True
    recording._result = run()
    is_capturing = False
    recording._graph = type("Graph", (), {"replay": lambda self: None})()  # type: ignore[assignment]


def pretend() -> None:
    """Puts what a GPU's driver would do in its place."""
    stand_ins: dict[str, Any] = {
        "Event": Event,
        "is_available": lambda: True,
        "graph_pool_handle": lambda: None,
        "synchronize": lambda: None,
        "empty_cache": lambda: None,
        "reset_peak_memory_stats": lambda: None,
        "mem_get_info": lambda device: (10**11, 10**11),
        "memory_reserved": lambda: 10**9,
        "max_memory_reserved": lambda: 10**9,
        "get_device_name": lambda device: "NVIDIA H200",
    }
    for name, stand_in in stand_ins.items():
        setattr(torch.cuda, name, stand_in)
    torch.Generator = Generator  # type: ignore[assignment, misc]
    # of tensors without memory those that nobody may take a gradient of cannot be told apart
    torch.inference_mode = lambda mode=True: torch.no_grad() if mode else nullcontext()  # type: ignore[assignment, misc]
    triton.JITFunction.run = lambda kernel, *args, **about: None
    fake_impls.op_implementations_dict[_SCALAR] = lambda mode, function, x: False if x.dtype is torch.bool else 1
    Recording.record = record  # type: ignore[method-assign, assignment]
    GapRules.fitting = lambda self, required, single_line: torch.tensor([7, 8])  # type: ignore[method-assign]


def answer(infill: InfillConfig) -> None:
    """Fills gaps and edits with an engine whose passes are captured."""
    model = synthetic_model(CONFIG, torch.bfloat16, GPU)
    graphs.capture(model, infill)
    assert model.captured is not None, "capturing does not fail"
    engine = Engine(model, TOKENS, infill, GenerationConfig(max_denoising_steps=3))
    for parts in ((PREFIX, SUFFIX), (PREFIX + "x", SUFFIX), ("def f(", "):\n    return ", "\n")):
        assert fill(engine, *parts, n_candidates=2).stats.steps
    held = (Held(text="    self.counts[nmae] = count\n", single_line=False),)
    request = Fill(id=1, document="a.py", parts=("def f(self):\n", "\n"), held=held)
    revise(engine, request, received=time.perf_counter(), is_cancelled=lambda: False)


def main() -> None:
    """Takes the library that lets torch believe in the GPU; tells each part that is done."""
    ctypes.CDLL(sys.argv[1], mode=ctypes.RTLD_GLOBAL)
    pretend()
    model_sections._N_TIMES = 1
    with FakeTensorMode(), Driverless(), torch.no_grad(), Captured():
        for name, infill in POLICIES.items():
            answer(infill)
            print(name)
        bench = model_sections.SyntheticBench("4bit", SMALL, GPU, "4bit", lambda: Ceilings(1.0, 1.0))
        for name, unit in bench.units().items():
            assert list(unit()), name
            print(name)


if __name__ == "__main__":
    main()
