"""Every operation with a Triton kernel, on inputs as a pass of a model has them.

`torch.device("meta")` gives inputs without memory: then a case tells what it would launch. Shape suffixes as in
`midspan_kernels`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from midspan_engine.bench.timing import Run
from midspan_engine.config import GenerationConfig, LayerConfig, ModelConfig
from midspan_kernels.canvas_attention import canvas_attention
from midspan_kernels.expert_blocks import expert_blocks
from midspan_kernels.experts import routed_experts
from midspan_kernels.norm import residual_norm, rms_norm
from midspan_kernels.packed import GROUP, Kind, Packed
from midspan_kernels.random_tokens import random_tokens
from midspan_kernels.rotary import normed_rotate, rotary_angles, rotary_frequencies
from midspan_kernels.row_logits import RowLogits
from midspan_kernels.row_samples import row_samples
from midspan_kernels.row_statistics import row_statistics
from midspan_kernels.soft_embedding import soft_embedding
from midspan_kernels.top_experts import top_experts

N_SLOTS, N_FREE, N_CONTEXT = 64, 20, 4096
"""Of a canvas, of its gap, and of the prompt in front: what a fill of one line has with the released checkpoint. Of a
smaller one the prompt is half of what it can read."""
_FP4_GROUP = 16
"""Source: the NVFP4 checkpoints."""
_EXPERTS: Mapping[str, Kind | None] = {"int4": "int4", "NVFP4": "fp4", "int8": "int8", "fp8": "fp8", "plain": None}
"""How the experts of a checkpoint may be held."""

TOLERANCES = {torch.float32: 1e-5, torch.float16: 1e-3, torch.bfloat16: 1e-2}
"""Relative error that rounding in another order explains. Source: the interpreter's tests; of bf16 two of its steps."""
NO_NUMBER = 1e9
"""The error of a result that is no number: JSON knows no infinity."""
_OF_STATISTICS = 1e-4
"""They are computed in fp32 whatever the type. Source: the interpreter's tests."""


@dataclass(frozen=True, slots=True)
class KernelCase:
    """One operation on given inputs."""

    run: Run
    """Returns a tensor or a tuple of them."""
    n_bytes: float
    """Read and written at least, each input once."""
    n_flop: float
    reference_waits: bool = False
    """Whether the reference waits for the device, so that no graph can hold it."""
    tolerance: float | None = None
    """Where it is not that of the inputs' type."""


class _Inputs:
    """Random tensors on a device."""

    def __init__(self, device: torch.device, dtype: torch.dtype) -> None:
        self.device, self.dtype = device, dtype
        self._generator = None if device.type == "meta" else torch.Generator(device).manual_seed(0)

    def normal(self, *shape: int, scale: float = 1.0, dtype: torch.dtype | None = None) -> torch.Tensor:
        empty = torch.empty(shape, dtype=dtype or self.dtype, device=self.device)
        return empty.normal_(0, scale, generator=self._generator)

    def whole(self, high: int, *shape: int, dtype: torch.dtype = torch.int64) -> torch.Tensor:
        return torch.empty(shape, dtype=dtype, device=self.device).random_(0, high, generator=self._generator)

    def distinct(self, n_rows: int, n: int) -> torch.Tensor:
        """Returns rows [R, n] without equal numbers, in any type: who is largest is no matter of rounding."""
        return self.whole(1 << 30, n_rows, n, dtype=torch.int32).argsort(-1).to(self.dtype) / 16

    def logits(self, n_rows: int, n_tokens: int) -> torch.Tensor:
        """Returns rows [R, V] of which one token is the most probable for sure."""
        z_RV = self.normal(n_rows, n_tokens, scale=2.0)
        return z_RV.scatter_(-1, self.whole(n_tokens, n_rows, 1), 14.0)

    def row_logits(self, n_rows: int, config: ModelConfig) -> RowLogits:
        """Returns such rows as a step reads them: still without cap and temperature."""
        return RowLogits(self.logits(n_rows, config.vocab_size), config.softcap, GenerationConfig().t_max)

    def weights(self, kind: Kind | None, *shape: int) -> torch.Tensor | Packed:
        """Returns matrices [.., O, I], packed unless the kind is None."""
        *outer, n_inputs = shape
        spread = n_inputs**-0.5
        match kind:
            case None:
                return self.normal(*shape, scale=spread)
            case "fp4":
                codes = self.whole(256, *outer, n_inputs // 2, dtype=torch.uint8)
                scales = self.normal(*outer, n_inputs // _FP4_GROUP, dtype=torch.float32).abs().to(torch.float8_e4m3fn)
                return Packed(kind, codes, scales, row_scales=self.normal(*outer, 1, scale=spread, dtype=torch.float32))
            case "int4":
                codes = self.whole(256, *outer, n_inputs // 2, dtype=torch.uint8)
                scale = spread / 4
            case "int8":
                codes, scale = self.whole(127, *shape, dtype=torch.int8), spread / 64
            case "fp8":
                codes = self.normal(*shape, dtype=torch.bfloat16).to(torch.float8_e4m3fn)
                return Packed(kind, codes, self.normal(*outer, 1, scale=spread, dtype=torch.bfloat16))
        return Packed(kind, codes, self.normal(*outer, n_inputs // GROUP, scale=scale, dtype=torch.bfloat16))


def kernel_cases(
    config: ModelConfig, dtype: torch.dtype, device: torch.device
) -> Mapping[str, Callable[[], KernelCase]]:
    """Returns by name what makes each case; a case holds its inputs, so only one at a time should live."""
    inputs = _Inputs(device, dtype)
    cases: dict[str, Callable[[], KernelCase]] = {}
    for is_sliding, layer in {layer.is_sliding: layer for layer in config.layers}.items():
        name = "sliding" if is_sliding else "full"
        cases[f"canvas attention, {name}"] = partial(_attention, inputs, config, layer)
        cases[f"heads: norm and rotation, {name}"] = partial(_rotation, inputs, config, layer)
    cases["norm"] = partial(_norm, inputs, config)
    cases["residual and norm"] = partial(_residual_norm, inputs, config)
    if config.n_experts > 1:
        cases["top experts"] = partial(_routing, inputs, config)
        cases["blocks of experts"] = partial(_blocks, inputs, config)
        for name, kind in _EXPERTS.items():
            cases[f"experts, {name}"] = partial(_experts, inputs, config, kind)
    cases["row statistics"] = partial(_statistics, inputs, config)
    cases["random tokens"] = partial(_tokens, inputs, config)
    cases["row samples"] = partial(_samples, inputs, config)
    cases["soft embedding"] = partial(_soft_embedding, inputs, config)
    return cases


def _attention(inputs: _Inputs, config: ModelConfig, layer: LayerConfig) -> KernelCase:
    n_context = min(N_CONTEXT, config.max_positions // 2)
    n_seen = min(n_context, config.sliding_window - 1) if layer.is_sliding else n_context
    n_places = n_seen + N_SLOTS  # a buffer with slack, or a ring that has wrapped
    q = inputs.normal(1, N_SLOTS, config.n_heads, layer.head_dim, scale=layer.head_dim**-0.5)
    keys, values = (inputs.normal(1, n_places, layer.n_kv_heads, layer.head_dim) for _ in range(2))
    own = tuple(inputs.normal(1, N_SLOTS, layer.n_kv_heads, layer.head_dim) for _ in range(2))
    start = n_places // 2 if layer.is_sliding else 0
    seen = torch.tensor([[0, start, start + n_seen, N_SLOTS]]).to(inputs.device)
    return KernelCase(
        lambda: canvas_attention(q, (keys, values), (own[0], own[1]), seen),
        n_bytes=2 * q.nbytes + (keys.nbytes + values.nbytes) * n_seen / n_places + 2 * own[0].nbytes,
        n_flop=4.0 * N_SLOTS * (n_seen + N_SLOTS) * config.n_heads * layer.head_dim,
    )


def _rotation(inputs: _Inputs, config: ModelConfig, layer: LayerConfig) -> KernelCase:
    x, weight = inputs.normal(1, N_SLOTS, config.n_heads, layer.head_dim), inputs.normal(layer.head_dim)
    positions = torch.arange(N_CONTEXT, N_CONTEXT + N_SLOTS, device=inputs.device)[None]
    frequencies = rotary_frequencies(layer.head_dim, layer.rope_theta, layer.rotated).to(inputs.device)
    cos, sin = rotary_angles(positions, frequencies, inputs.dtype)
    eps = config.rms_norm_eps
    n_bytes = 2 * x.nbytes + 2 * cos.nbytes
    return KernelCase(lambda: normed_rotate(x, weight, eps, cos, sin), n_bytes, 0)


def _norm(inputs: _Inputs, config: ModelConfig) -> KernelCase:
    x, weight = inputs.normal(1, N_SLOTS, config.hidden_size), inputs.normal(config.hidden_size)
    return KernelCase(lambda: rms_norm(x, weight, config.rms_norm_eps), 2 * x.nbytes, 0)


def _residual_norm(inputs: _Inputs, config: ModelConfig) -> KernelCase:
    x, branch = (inputs.normal(1, N_SLOTS, config.hidden_size) for _ in range(2))
    weight, scalar = inputs.normal(config.hidden_size), inputs.normal(1)
    return KernelCase(lambda: residual_norm(x, branch, weight, config.rms_norm_eps, scalar), 3 * x.nbytes, 0)


def _routing(inputs: _Inputs, config: ModelConfig) -> KernelCase:
    logits, scale = inputs.distinct(N_SLOTS, config.n_experts), inputs.normal(config.n_experts)
    n_bytes = logits.nbytes + 12 * N_SLOTS * config.top_k_experts
    return KernelCase(lambda: top_experts(logits, config.top_k_experts, scale), n_bytes, 0)


def _blocks(inputs: _Inputs, config: ModelConfig) -> KernelCase:
    expert = inputs.whole(config.n_experts, N_SLOTS * config.top_k_experts)
    # blocks that hold nothing may be told in any way
    return KernelCase(lambda: expert_blocks(expert, config.n_experts)[0], 2 * expert.nbytes, 0)


def _experts(inputs: _Inputs, config: ModelConfig, kind: Kind | None) -> KernelCase:
    n, h, i, k = config.n_experts, config.hidden_size, config.moe_intermediate_size, config.top_k_experts
    gate_up, down = inputs.weights(kind, n, 2 * i, h), inputs.weights(kind, n, h, i)
    x, weight = inputs.normal(N_SLOTS, h), inputs.normal(N_SLOTS, k, dtype=torch.float32)
    index = inputs.distinct(N_SLOTS, n).topk(k).indices
    return KernelCase(
        lambda: routed_experts(x, gate_up, down, index, weight),
        n_bytes=(_n_bytes(gate_up) + _n_bytes(down)) * share_of_experts(config, N_SLOTS),
        n_flop=6.0 * N_SLOTS * k * h * i,
        reference_waits=True,
    )


def _n_bytes(weights: torch.Tensor | Packed) -> int:
    return weights.n_bytes if isinstance(weights, Packed) else weights.nbytes


def share_of_experts(config: ModelConfig, n_tokens: int) -> float:
    """Returns which share of the experts so many tokens go to, where each is as likely as any other."""
    return 1 - (1 - config.top_k_experts / config.n_experts) ** n_tokens


def _statistics(inputs: _Inputs, config: ModelConfig) -> KernelCase:
    logits = inputs.logits(N_FREE, config.vocab_size).float()  # capped by then, the probe reads them
    return KernelCase(lambda: row_statistics(logits), logits.nbytes, 0, tolerance=_OF_STATISTICS)


def _tokens(inputs: _Inputs, config: ModelConfig) -> KernelCase:
    seed = torch.arange(N_FREE, device=inputs.device)
    return KernelCase(lambda: random_tokens(seed, config.vocab_size), 2 * seed.nbytes, 0)


def _samples(inputs: _Inputs, config: ModelConfig) -> KernelCase:
    logits = inputs.row_logits(N_FREE, config)
    seed = torch.arange(N_FREE, device=inputs.device)
    return KernelCase(lambda: row_samples(logits, seed), logits.z.nbytes, 0, tolerance=_OF_STATISTICS)


def _soft_embedding(inputs: _Inputs, config: ModelConfig) -> KernelCase:
    logits = inputs.row_logits(N_FREE, config)
    weight = inputs.normal(config.vocab_size, config.hidden_size)
    n_flop = 2.0 * N_FREE * config.hidden_size * config.vocab_size
    return KernelCase(lambda: soft_embedding(logits, weight), logits.z.nbytes + weight.nbytes, n_flop)


def tensors(result: Any) -> list[torch.Tensor]:
    """Returns what an operation gave as a list."""
    return [result] if isinstance(result, torch.Tensor) else list(result)


def largest_error(found: Any, expected: Any) -> float:
    """Returns the largest relative error of a result's tensors; of whole numbers, the share that differs."""
    return max(_error(*pair) for pair in zip(tensors(found), tensors(expected), strict=True))


def _error(found: torch.Tensor, expected: torch.Tensor) -> float:
    if not expected.is_floating_point():
        return float((found != expected).float().mean())
    if not bool(found.isfinite().all() and expected.isfinite().all()):
        return NO_NUMBER
    difference, size = (found.float() - expected.float()).norm(), expected.float().norm()
    return float(difference / size) if size > 0 else float(difference)
