"""The seam behind which the length of a gap is found: a fill that is laid out goes in, denoised canvases come out.

A checkpoint chooses by the key `length` of its infill_config.json. `blanks` and `fixed` take the gap as it is laid out
and let a blank token tell its end, or fill all of it (`AsLaidOut`); `probe` and `echo` find the length without
training, each in a module of its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import torch

from midspan_engine.canvas import Canvas, lay_out
from midspan_engine.causal_reader import CausalReader
from midspan_engine.causal_vote import CausalVote
from midspan_engine.config import GenerationConfig, InfillConfig
from midspan_engine.denoise import OnStep, Settled, Settling, begin, settle
from midspan_engine.healing import GapRules
from midspan_engine.kv import KVCache
from midspan_engine.models.diffusion_gemma import DiffusionGemma
from midspan_engine.order import Task
from midspan_engine.passes import Passes
from midspan_engine.prompt import Prompt
from midspan_engine.tokens import Tokens


@dataclass(frozen=True, slots=True)
class Means:
    """What a checkpoint fills gaps with."""

    model: DiffusionGemma
    tokens: Tokens
    rules: GapRules
    infill: InfillConfig
    generation: GenerationConfig

    def begin(self, task: Task) -> Settling:
        """Returns the canvas of a task before its first pass."""
        return begin(self.model, task, self.rules, self.infill, self.generation)


@dataclass(frozen=True, slots=True)
class Filling:
    """One fill whose context is in the cache."""

    prompt: Prompt
    settling: Settling
    """Its canvas, with a gap as long as the request allows."""
    following: str
    """The text behind the last gap."""
    cache: KVCache
    is_cancelled: Callable[[], bool]
    on_step: OnStep | None = None
    vote: CausalVote | None = None

    @property
    def task(self) -> Task:
        """What is denoised if the gap is taken as it is laid out."""
        return self.settling.order.task


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a fill."""

    settled: Sequence[Settled]
    """Canvases whose gaps may differ in length; all of their rows are answers."""
    n_steps: int
    """Decoder passes."""
    n_encoder_steps: int
    """Passes of the encoder behind the context."""
    decoder_s: float
    """Seconds in the decoder."""

    @classmethod
    def of(cls, settled: Settled) -> Outcome:
        """Returns one canvas and what it cost."""
        return cls([settled], settled.n_steps, settled.n_encoder_steps, settled.decoder_s)

    def behind(self, earlier: Outcome) -> Outcome:
        """Returns the same canvases at the cost of what was done before, too."""
        return replace(
            self,
            n_steps=self.n_steps + earlier.n_steps,
            n_encoder_steps=self.n_encoder_steps + earlier.n_encoder_steps,
            decoder_s=self.decoder_s + earlier.decoder_s,
        )


class LengthPolicy(Protocol):
    """Finds how long a gap is, and fills it."""

    def fill(self, filling: Filling) -> Passes[Outcome]:
        """Returns at least one canvas. Raises Cancelled, or EngineError when the weights give no numbers."""
        ...


class AsLaidOut:
    """Takes the gaps as they are: a blank token ends what they hold, or they are filled to the last slot."""

    def __init__(self, means: Means) -> None:
        self._means = means

    def fill(self, filling: Filling) -> Passes[Outcome]:
        """Denoises the one canvas, and goes on where it was left."""
        settled = yield from settle(
            self._means.model,
            filling.cache,
            filling.settling,
            self._means.generation.max_denoising_steps,
            filling.is_cancelled,
            filling.on_step,
            filling.vote,
        )
        return Outcome.of(settled)


def weighted(settled: Settled, share: float) -> Settled:
    """Returns a canvas whose answers are so much less probable: its length is the right one with that probability."""
    confidence_BG = settled.confidence_BG.clone()
    confidence_BG[:, 0] *= share
    return replace(settled, confidence_BG=confidence_BG)


def resized(prompt: Prompt, n_gap: int, n_slots: int, infill: InfillConfig, pad: int) -> Canvas:
    """Returns the canvas of a prompt of one gap with a gap of another length; the same is pinned around it."""
    tail, hole = prompt.canvas.ids[: prompt.canvas.gaps[0].start], infill.mask_token_id or 0
    return lay_out([tail, prompt.after[: infill.head_tokens]], [n_gap], n_slots, hole=hole, pad=pad)


@torch.inference_mode()
def log_probability(means: Means, filling: Filling, settled: Settled, reader: CausalReader) -> float:
    """Returns the log-probability (nats) of an answer and of what is pinned behind it, as the encoder reads them.

    As a language model it compares texts of different lengths without any correction.
    """
    spelled = b"".join(means.tokens.spellings[token] for token in settled.draft_BG[0].tolist())
    try:
        ids = means.tokens.encode(spelled.decode())
    except UnicodeDecodeError:
        return -math.inf
    tail = list(settled.canvas.ids[: settled.canvas.gaps[0].start])
    head = filling.prompt.after[: means.infill.head_tokens]
    return float(reader.log_probabilities(tail, [*ids, *head]).sum())
