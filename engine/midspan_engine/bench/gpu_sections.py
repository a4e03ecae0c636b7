"""The sections of a GPU check and their parts, each of which tells what it finds as it goes."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Mapping
from functools import cache, cached_property, partial
from importlib.metadata import PackageNotFoundError, version
from itertools import pairwise
from typing import Any, NamedTuple

import msgspec
import torch

from midspan_engine.bench.beside import canvas_of, random_ids, step_of
from midspan_engine.bench.ceilings import Ceilings, measure_ceilings
from midspan_engine.bench.findings import Finding, Line, Machine
from midspan_engine.bench.kernel_cases import NO_NUMBER, KernelCase, kernel_cases
from midspan_engine.bench.kernels import implementation, measure_kernel
from midspan_engine.bench.model_sections import NARROW, WIDE, SyntheticBench, Targets, on_gpu
from midspan_engine.bench.synthetic import Held, capture_passes, captured_cache, synthetic_model
from midspan_engine.bench.timing import Run, elapsed_ms
from midspan_engine.bench.twin import twin_of
from midspan_engine.config import ModelConfig
from midspan_engine.kv import KVCache
from midspan_engine.kv_pool import SLACK_TOKENS

Part = Callable[[], Iterable[Line]]
Best = Callable[[], Ceilings]

FOUR_BITS, KERNELS, PASSES, BF16 = "4bit", "kernels", "passes", "bf16"
DTYPES = (torch.bfloat16, torch.float16)
"""Of kernels; in fp32, which nobody serves on a GPU, keys and values of head dim 512 exceed its shared memory."""
_PACKAGES = ("torch", "triton", "transformers", "numpy", "safetensors", "tokenizers", "msgspec", "click", "rich")
_PASS_TOLERANCE = 1e-3
"""Relative error of the logits of a pass of few layers in fp32: each layer multiplies that of its kernels."""
_SHARE_OF_SLOTS = 0.9
"""That have to keep to it. Rounding sends a token to another expert where two are as good as equally probable: of the
1536 choices that six layers make for 256 slots, that may be one. What is wrong in a pass is wrong in every slot, since
each sees all others. Chosen."""
_N_LAYERS, _LARGEST_HEAD = 6, 128
"""One full and five sliding: in fp32 the whole model would not fit, nor heads of 512 into the attention kernel, and for
heads of 256 the compiler takes four times as long as for these. Those are checked by themselves, in the types that are
served."""
_FEW, _MANY = 1, 9
"""Steps of a canvas of transformers: the difference is that of eight steps, whatever a prompt and a start take."""
_N_CANVASES = 3
COMPILED = "compiled, static cache"
"""How transformers is run that we are compared with."""


def their_step(way: str) -> str:
    """Returns what the finding of a step of transformers is called, by the way it is run."""
    return f"transformers {way}: step"


def _best_of(device: torch.device) -> Best:
    """Returns what gives the ceilings, measured when they are first asked for."""
    return cache(partial(measure_ceilings, device, torch.bfloat16))


def _four_bits(config: ModelConfig, device: torch.device) -> Mapping[str, Part]:
    best = _best_of(device)
    return _machine(device, best) | SyntheticBench(FOUR_BITS, config, device, "4bit", best).units()


def _bf16(config: ModelConfig, device: torch.device) -> Mapping[str, Part]:
    best = _best_of(device)
    own = SyntheticBench(BF16, config, device, "plain", best)
    return _machine(device, best) | own.units() | _BesideTransformers(own).parts()


def _passes(config: ModelConfig, device: torch.device) -> Mapping[str, Part]:
    return _Passes(config, device).parts()


def _kernels(config: ModelConfig, device: torch.device) -> Mapping[str, Part]:
    best = _best_of(device)
    parts = _machine(device, best)
    for dtype in DTYPES:
        for name, make in kernel_cases(config, dtype, device).items():
            parts[f"{name}, {str(dtype).removeprefix('torch.')}"] = partial(_kernel, name, make, dtype, device, best)
    return parts


def _kernel(
    name: str, make: Callable[[], KernelCase], dtype: torch.dtype, device: torch.device, best: Best
) -> Iterable[Line]:
    yield measure_kernel(name, make, dtype, device, best())


def _machine(device: torch.device, best: Best) -> dict[str, Part]:
    return {"machine": partial(_of_machine, device, best)}


def _of_machine(device: torch.device, best: Best) -> Iterable[Line]:
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.processor() or platform.machine()
    yield Machine(name, platform.python_version(), {package: _version(package) for package in _PACKAGES})
    yield best()


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "missing"


class _Passes:
    """Whole passes of a few layers in fp32: kernels against references, replays against launches, transformers."""

    def __init__(self, config: ModelConfig, device: torch.device) -> None:
        replace = msgspec.structs.replace
        layers = (replace(layer, head_dim=min(layer.head_dim, _LARGEST_HEAD)) for layer in config.layers[:_N_LAYERS])
        self._config = replace(config, layers=tuple(layers))
        self._device = device

    def parts(self) -> dict[str, Part]:
        """Returns what is compared, by name."""
        return {
            "plain experts": lambda: self._compared("plain"),
            "4-bit experts": lambda: self._compared("4bit"),
            "transformers": self._beside,
        }

    def _ids(self, n: int) -> torch.Tensor:
        return random_ids(self._config, self._device, n)

    def _found(self, name: str, error: float) -> Finding:
        about = {"unit": "relative error", "at_most": _PASS_TOLERANCE, "is_check": True}
        return Finding(section=PASSES, name=name, value=error, **about)  # type: ignore[arg-type]

    def _compared(self, held: Held) -> Iterable[Line]:
        """Compares while a document grows past the window and on round its ring."""
        model = synthetic_model(self._config, torch.float32, self._device, held)
        window = self._config.sliding_window
        capture_passes(model, 2 * window + 2 * SLACK_TOKENS, [(1, NARROW), (1, WIDE)])
        cache, loose, reference = captured_cache(model), *(KVCache(self._config.n_layers) for _ in range(2))
        ids = self._ids(window + SLACK_TOKENS + 100)
        for start, end in pairwise((0, 20, window, ids.shape[1])):
            for chunk_1L in torch.split(ids[:, start:end], SLACK_TOKENS, 1):
                model.encode(chunk_1L, cache)
                model.encode(chunk_1L, loose)
                with implementation("reference"):
                    model.encode(chunk_1L, reference)
            for n_slots in (40, WIDE):  # the first does not fill its captured pass
                canvas_1C, soft_1CH = self._ids(n_slots), model.embed(self._ids(n_slots).flip(1))
                captured, eager = (model.logits(model.decode(canvas_1C, each, soft_1CH)) for each in (cache, loose))
                about = f"{held}, {end} tokens before, {n_slots} slots"
                yield self._found(f"captured against launched, {about}", error_of_slots(captured, eager))
                with implementation("reference"):
                    expected = model.logits(model.decode(canvas_1C, reference, soft_1CH))
                yield self._found(f"kernels against references, {about}", error_of_slots(eager, expected))

    def _beside(self) -> Iterable[Line]:
        model = synthetic_model(self._config, torch.float32, self._device)
        prompt_1L, canvas_1C = self._ids(self._config.sliding_window + 40), self._ids(WIDE)
        cache = KVCache(self._config.n_layers)
        model.encode(prompt_1L, cache)
        first = model.logits(model.decode(canvas_1C, cache))
        found = model.logits(model.decode(canvas_1C, cache, model.soften(first)))
        twin = twin_of(model)
        twin.set_experts_implementation("eager")  # its grouped products are made for bf16
        expected = step_of(twin, prompt_1L, canvas_1C, first)()
        yield self._found("against transformers", error_of_slots(found, expected))


def error_of_slots(found_BCV: torch.Tensor, expected_BCV: torch.Tensor) -> float:
    """Returns the relative error that nearly all slots' logits keep to."""
    if not bool(found_BCV.isfinite().all() and expected_BCV.isfinite().all()):
        return NO_NUMBER
    error_BC = (found_BCV - expected_BCV).norm(dim=-1) / expected_BCV.norm(dim=-1)
    return float(error_BC.flatten().quantile(_SHARE_OF_SLOTS))


class _BesideTransformers:
    """Steps of ours and of transformers on the very same weights in bf16."""

    def __init__(self, own: SyntheticBench) -> None:
        self._own, self._device = own, own.device

    @cached_property
    def _twin(self) -> Any:
        return twin_of(self._own.model)

    @cached_property
    def _prompt(self) -> torch.Tensor:
        """Within the window: behind a longer prompt the static cache of transformers loses count."""
        return self._own.ids(min(512, self._own.config.sliding_window // 2))

    @cached_property
    def _cache(self) -> KVCache:
        cache = captured_cache(self._own.model)
        self._own.model.encode(self._prompt, cache)
        return cache

    def parts(self) -> dict[str, Part]:
        """Returns what is compared, by name."""
        return {"transformers": self._launched, "transformers, compiled": self._compiled}

    def _launched(self) -> Iterable[Line]:
        own = self._own.step_run(WIDE, WIDE, self._cache)
        z_1CV = torch.randn(1, WIDE, self._own.config.vocab_size, dtype=torch.bfloat16, device=self._device)
        theirs = step_of(self._twin, self._prompt, self._own.ids(WIDE), z_1CV)
        times = self._own.medians({"own": own, "theirs": theirs})
        yield from self._pair("launch by launch, without a sampler", times["own"], times["theirs"], None)
        if self._device.type == "cuda":
            loose = KVCache(self._own.config.n_layers)  # what a captured pass takes is held already
            self._own.model.encode(self._prompt, loose)
            for who, run in (("midspan", self._own.step_run(WIDE, WIDE, loose)), ("transformers", theirs)):
                yield self._own.found(f"memory of a step of {who}, beside weights and caches", _peak_gb(run), "GB")

    def _compiled(self) -> Iterable[Line]:
        # on a CPU the check is tried, not measured: a compiler would take minutes
        about = {"cache_implementation": "static", "disable_compile": self._device.type != "cuda"}
        few, many = (canvas_of(self._twin, self._prompt, n, **about) for n in (_FEW, _MANY))
        yield self._own.found("transformers compiled in", elapsed_ms(many, self._device) / 1e3, "s")
        own = self._own.step_run(WIDE, WIDE, self._cache)
        times = self._own.medians({"own": own, "few": few, "many": many}, _N_CANVASES)
        theirs_ms = (times["many"] - times["few"]) / (_MANY - _FEW)
        bound = on_gpu(Targets.TIMES_TRANSFORMERS, self._device)
        yield from self._pair(COMPILED, times["own"], theirs_ms, bound)

    def _pair(self, way: str, own_ms: float, theirs_ms: float, bound: float | None) -> Iterable[Line]:
        yield self._own.found(f"midspan beside transformers {way}: step", own_ms, "ms")
        about = f"{WIDE} slots, behind {self._prompt.shape[1]} tokens, the same weights"
        yield self._own.found(their_step(way), theirs_ms, "ms", note=about)
        yield self._own.found(f"transformers {way}: over midspan", theirs_ms / own_ms, "times", at_least=bound)


def _peak_gb(run: Run) -> float:
    """Returns the most memory that a run takes on a GPU beside what is there before."""
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    run()
    return (torch.cuda.max_memory_allocated() - before) / 1e9


class Section(NamedTuple):
    """What one process of the check does."""

    share: float
    """Of the time that is left when it begins. Chosen: compiling transformers takes longest."""
    parts: Callable[[ModelConfig, torch.device], Mapping[str, Part]]
    """Gives them by name, in order; nothing is made yet."""


SECTIONS = {
    FOUR_BITS: Section(0.25, _four_bits),
    KERNELS: Section(0.35, _kernels),
    PASSES: Section(0.4, _passes),
    BF16: Section(0.97, _bf16),
}
"""In the order in which they run: what is served first, and last what takes long, compiling transformers."""
