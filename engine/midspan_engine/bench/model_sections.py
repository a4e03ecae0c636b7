"""What a synthetic model takes on a device: memory, a step, a fill, token by token, and several rows at once."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property

import torch

from midspan_engine.bench.beside import N_STEPS, NEVER, random_ids
from midspan_engine.bench.ceilings import Ceilings
from midspan_engine.bench.findings import Finding
from midspan_engine.bench.floors import datasheet_gb_per_s, step_bytes
from midspan_engine.bench.synthetic import Held, capture_passes, captured_cache, synthetic_model
from midspan_engine.bench.timing import Run, medians_ms
from midspan_engine.canvas import Canvas
from midspan_engine.config import GenerationConfig, InfillConfig, ModelConfig
from midspan_engine.denoise import begin, denoise
from midspan_engine.kv import KVCache
from midspan_engine.kv_pool import SLACK_TOKENS
from midspan_engine.models.diffusion_gemma import DiffusionGemma
from midspan_engine.order import Task
from midspan_kernels.row_samples import row_samples

Unit = Callable[[], Iterable[Finding]]

WIDE, NARROW = 256, 64
"""Slots of the released checkpoint's canvas, and of the one that a fill of one line is laid out on."""
N_TAIL, N_GAP = 20, 20
"""Slots of the narrow canvas before the gap, and of the gap; what is left is text behind it."""
STEPS_OF_A_CANVAS = 12
"""Of 256 slots. Source: arXiv 2608.00146, the mean of seven benchmarks; random weights never settle."""
ROWS = (1, 2, 4)
_N_CONTEXT = 2048
_N_TIMES = 15
"""A CPU only tries the check: there each runs twice."""


class Targets:
    """What is asked of a GPU like the H200. Source: the project's aims for the released checkpoint in 4 bits."""

    STEP_MS = 4.1 * 1.6
    """1.6 times the floor of a step over 64 slots."""
    FILL_MS = 60.0
    RESIDENT_GB = 20.0
    TIMES_TRANSFORMERS = 3.0
    """A step of transformers' compiled path with a static cache, over ours."""
    TIMES_AUTOREGRESSIVE = 4.0
    """Tokens a second, over those of the same weights token by token. Source: the published headline."""


def step_over(n_slots: int, n_free: int) -> str:
    """Returns what the finding of a step is called."""
    return f"step over {n_slots} slots, {n_free} free"


def on_gpu(bound: float, device: torch.device) -> float | None:
    """Returns a bound on a GPU, None where nothing is asked."""
    return bound if device.type == "cuda" else None


class SyntheticBench:
    """A model of random weights, made when it is first asked for, with captured passes and a prompt read."""

    def __init__(
        self, section: str, config: ModelConfig, device: torch.device, held: Held, best: Callable[[], Ceilings]
    ):
        self.section, self.config, self.device, self.held, self._best = section, config, device, held, best
        self.n_context = min(_N_CONTEXT, config.max_positions // 2)

    @cached_property
    def model(self) -> DiffusionGemma:
        """The model with captured passes."""
        model = synthetic_model(self.config, torch.bfloat16, self.device, self.held)
        capture_passes(model, self.n_context + SLACK_TOKENS, [*((n_rows, NARROW) for n_rows in ROWS), (1, WIDE)])
        return model

    @cached_property
    def cache(self) -> KVCache:
        """The prompt, where captured passes read it."""
        return self._read(captured_cache(self.model))

    @cached_property
    def loose_cache(self) -> KVCache:
        """The same prompt where passes are made launch by launch."""
        return self._read(KVCache(self.config.n_layers))

    def _read(self, cache: KVCache) -> KVCache:
        for chunk_1L in torch.split(self.ids(self.n_context), SLACK_TOKENS, 1):
            self.model.encode(chunk_1L, cache)
        return cache

    def ids(self, n: int, n_rows: int = 1) -> torch.Tensor:
        """Returns tokens [B, n], always the same."""
        return random_ids(self.config, self.device, n, n_rows)

    def medians(self, runs: Mapping[str, Run], n_times: int = _N_TIMES) -> Mapping[str, float]:
        """Returns the median time of each, ms."""
        if self.device.type != "cuda":
            return medians_ms(runs, self.device, 1, n_warm_ups=1)
        return medians_ms(runs, self.device, n_times)

    def units(self) -> dict[str, Unit]:
        """Returns what is measured, by name, in order."""
        return {
            "memory": self.memory,
            f"step over {WIDE} slots": lambda: self.step(WIDE, WIDE),
            f"step over {NARROW} slots": lambda: self.step(NARROW, N_GAP),
            "fill": self.fill,
            "rows": self.rows,
            "token by token": self.token_by_token,
            "peak": self.peak,
        }

    def _target(self, bound: float) -> float | None:
        return on_gpu(bound, self.device) if self.held == "4bit" else None

    def found(self, name: str, value: float, unit: str, **about: float | str | None) -> Finding:
        """Returns a figure of this section."""
        return Finding(section=self.section, name=name, value=value, unit=unit, **about)  # type: ignore[arg-type]

    def memory(self) -> Iterable[Finding]:
        """Makes the model, and tells what its weights take and how long capturing took."""
        if self.device.type == "cuda":  # what others left is none of its memory
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
        began = time.perf_counter()
        tensors = [*self.model.parameters(), *self.model.buffers()]
        n_bytes = sum(tensor.nbytes for tensor in tensors)
        bound = self._target(Targets.RESIDENT_GB)
        yield self.found("weights", n_bytes / 1e9, "GB", at_most=bound)
        if self.device.type == "cuda":
            torch.cuda.empty_cache()  # what is left is held: captured passes keep memory that counts as free
            about = "weights, two documents, captured passes"
            yield self.found("memory resident", torch.cuda.memory_reserved() / 1e9, "GB", at_most=bound, note=about)
        yield self.found("made and captured in", time.perf_counter() - began, "s")

    def step_run(self, n_slots: int, n_free: int, cache: KVCache) -> Run:
        """Returns a denoising step: pass, logits of the free slots, statistics and draw, soft embeddings."""
        canvas_1C, model = self.ids(n_slots), self.model
        slots_S = torch.arange(n_slots - n_free, n_slots, device=self.device)
        seed_S, soft_1CH = torch.arange(n_free, device=self.device), model.embed(canvas_1C)
        temperature = GenerationConfig().t_max

        def step() -> torch.Tensor:
            logits = model.row_logits(model.decode(canvas_1C, cache, soft_1CH, slots_S))
            logits = logits._replace(z=logits.z[0], temperature=temperature)
            row_samples(logits, seed_S)
            return model.soften(*logits)[None]

        return step

    def step(self, n_slots: int, n_free: int) -> Iterable[Finding]:
        """Tells what a step takes, captured and launch by launch, beside the least that it could take."""
        canvas_1C = self.ids(n_slots)
        runs = {
            "pass, captured": lambda: self.model.decode(canvas_1C, self.cache),
            "pass, launch by launch": lambda: self.model.decode(canvas_1C, self.loose_cache),
            "step": self.step_run(n_slots, n_free, self.cache),
            "step, launch by launch": self.step_run(n_slots, n_free, self.loose_cache),
        }
        times = self.medians(runs)
        bound = self._target(Targets.STEP_MS) if n_slots == NARROW else None
        shape = f"{n_slots} slots, {n_free} free"
        about = f"{step_bytes(self.model, n_slots, self.n_context) / 1e9:.1f} GB read"
        name, floors = step_over(n_slots, n_free), self._floors(n_slots)
        yield self.found(name, times["step"], "ms", at_most=bound, note=about, **floors)
        for name in ("pass, captured", "pass, launch by launch", "step, launch by launch"):
            yield self.found(f"{name}, {shape}", times[name], "ms")
        ratio = times["pass, launch by launch"] / times["pass, captured"]
        yield self.found(f"launch by launch over captured, {shape}", ratio, "times")

    def _floors(self, n_slots: int, n_steps: int = 1) -> dict[str, float | None]:
        """Returns the least that steps can take, ms, by the bandwidth measured and by the datasheet's."""
        n_bytes, published = n_steps * step_bytes(self.model, n_slots, self.n_context), datasheet_gb_per_s(self.device)
        return {
            "floor": n_bytes / self._best().gb_per_s / 1e6,
            "published_floor": None if published is None else n_bytes / published / 1e6,
        }

    def fill(self) -> Iterable[Finding]:
        """Tells what a fill takes: the token of a key is read, then a gap of 20 is denoised in 8 steps."""
        ids, last_11 = self.ids(NARROW)[0].tolist(), self.ids(1)
        canvas = Canvas(tuple(ids), (range(N_TAIL, N_TAIL + N_GAP),))
        generation = GenerationConfig(confidence_threshold=NEVER)

        def denoised() -> None:
            settling = begin(self.model, Task(canvas, ()), None, InfillConfig(length="fixed"), generation)
            denoise(self.model, self.cache, settling, N_STEPS, lambda: False)

        def typed() -> None:
            self.cache.truncate(self.n_context - 1)
            self.model.encode(last_11, self.cache)

        def filled() -> None:
            typed()
            denoised()

        times = self.medians({"fill": filled, "denoised": denoised, "typed": typed})
        bound = self._target(Targets.FILL_MS)
        about = f"{N_GAP} tokens, {N_STEPS} steps, {NARROW} slots"
        floors = self._floors(NARROW, N_STEPS)
        yield self.found("fill, the key's token read before", times["fill"], "ms", at_most=bound, note=about, **floors)
        yield self.found("fill, prompt read", times["denoised"], "ms", note=about, **floors)
        yield self.found("a token read", times["typed"], "ms")

    def rows(self) -> Iterable[Finding]:
        """Tells what a pass over several rows takes, as a ratio to one."""
        canvases = {n_rows: self.ids(NARROW, n_rows) for n_rows in ROWS}
        runs = {str(n): lambda canvas=canvas: self.model.decode(canvas, self.cache) for n, canvas in canvases.items()}
        times = self.medians(runs)
        for n_rows in ROWS[1:]:
            yield self.found(
                f"pass over {n_rows} rows of {NARROW} slots, over one", times[str(n_rows)] / times["1"], "times"
            )

    def token_by_token(self) -> Iterable[Finding]:
        """Tells tokens a second of whole canvases and of the same weights run autoregressively."""
        last_11 = self.ids(1)

        def token() -> torch.Tensor:
            self.cache.truncate(self.n_context - 1)
            return self.model.logits(self.model.encode(last_11, self.cache)).argmax(-1)

        runs = {"token": token, "step": self.step_run(WIDE, WIDE, self.cache)}
        times = self.medians(runs)
        causal, diffusion = 1e3 / times["token"], 1e3 * WIDE / (STEPS_OF_A_CANVAS * times["step"])
        yield self.found("token by token", causal, "tokens/s")
        note = f"at {STEPS_OF_A_CANVAS} steps a canvas, as published; random weights never settle"
        yield self.found("canvas by canvas", diffusion, "tokens/s", note=note)
        bound = self._target(Targets.TIMES_AUTOREGRESSIVE)
        yield self.found("canvas by canvas over token by token", diffusion / causal, "times", at_least=bound)

    def peak(self) -> Iterable[Finding]:
        """Tells the most memory that all of it took on a GPU."""
        if self.device.type == "cuda":
            yield self.found("peak memory of all above", torch.cuda.max_memory_reserved() / 1e9, "GB")
