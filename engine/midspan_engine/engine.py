"""The engine: a loaded checkpoint that answers `Fill` requests, one at a time, from one thread."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from pathlib import Path

import torch

from midspan_engine.canvas import Canvas
from midspan_engine.causal_reader import CausalReader
from midspan_engine.causal_vote import CausalVote
from midspan_engine.config import (
    GenerationConfig,
    InfillConfig,
    load_generation_config,
    load_infill_config,
    load_model_config,
)
from midspan_engine.cpu import cpu_dtype
from midspan_engine.denoise import Settled, denoise
from midspan_engine.errors import CheckpointError
from midspan_engine.healing import GapRules
from midspan_engine.kv import KVCache
from midspan_engine.models.diffusion_gemma import DiffusionGemma
from midspan_engine.order import Order, Task
from midspan_engine.prefix_cache import PrefixCache
from midspan_engine.prompt import Prompt, build_prompt
from midspan_engine.protocol import Candidate, Draft, Fill, Filled, Slot, Stats
from midspan_engine.repeats import Repeats
from midspan_engine.tokens import Tokens
from midspan_engine.weights import load_weights

MAX_CANDIDATES = 8
"""Rows denoised side by side: as many as the command line offers; a CPU takes eight times as long for them."""
_N_SEEDS = 2**64
"""A generator of torch takes no others; larger and negative ones are folded."""


class Engine:
    """Owns the model and the caches of the documents."""

    def __init__(
        self, model: DiffusionGemma, tokens: Tokens, infill: InfillConfig, generation: GenerationConfig
    ) -> None:
        self.model, self.tokens, self.infill, self.generation = model, tokens, infill, generation
        self.rules = GapRules(tokens, infill.blank_token_id)
        self.prefixes = PrefixCache(model)
        breaks = (index for index, spelling in enumerate(tokens.spellings) if spelling[:1] in (b"\n", b"\r"))
        self._breaks = frozenset(breaks)

    @classmethod
    def load(cls, checkpoint: Path, on_progress: Callable[[float], None] = lambda share: None) -> Engine:
        """Reads a checkpoint folder and tells the share read, 0..1. Raises CheckpointError when it cannot be used."""
        config = load_model_config(checkpoint)
        infill = load_infill_config(checkpoint)
        tokens = Tokens.load(checkpoint / "tokenizer.json")
        if tokens.n_ids > config.vocab_size:
            raise CheckpointError(
                f"{checkpoint / 'tokenizer.json'} has {tokens.n_ids} ids, the model only {config.vocab_size}: "
                "they do not belong together"
            )
        for name in ("mask_token_id", "blank_token_id"):
            index = getattr(infill, name)
            if index is not None and not 0 <= index < tokens.n_ids:
                raise CheckpointError(f"{checkpoint / 'infill_config.json'}: {name} {index} is no id of its tokenizer")
        model = load_weights(checkpoint, config, cpu_dtype(), on_progress).eval().requires_grad_(False)
        model.fuse()
        return cls(model, tokens, infill, load_generation_config(checkpoint))

    @property
    def n_parameters(self) -> int:
        """The number of weights."""
        return sum(parameter.numel() for parameter in self.model.parameters())

    @property
    def languages(self) -> tuple[str, ...]:
        """The LSP language ids that the checkpoint knows; empty for all."""
        return self.infill.languages or ()

    @property
    def device(self) -> str:
        """Where the model runs."""
        return str(self.model.embed_tokens.weight.device)

    @property
    def n_documents(self) -> int:
        """The number of documents with cached keys and values."""
        return len(self.prefixes)

    def forget(self, document: str) -> None:
        """Drops what is kept for a document."""
        self.prefixes.forget(document)

    def fill(
        self,
        request: Fill,
        *,
        received: float,
        is_cancelled: Callable[[], bool],
        on_draft: Callable[[Draft], None] | None = None,
    ) -> Filled:
        """Fills the gaps of a request.

        `received` is `time.perf_counter()` at receipt; the deadline counts from it. Raises InputError for a request
        that cannot be laid out, Cancelled when the flag is seen between two passes of the model.
        """
        if self.languages and request.language not in self.languages:
            known = ", ".join(self.languages)
            language = request.language or "this language"
            return Filled(id=request.id, silence=f"this checkpoint knows {known}, not {language}")
        n_gap = max(1, min(request.max_tokens, self.infill.gap_tokens))
        n_slots = self.model.config.canvas_length
        prompt = build_prompt(
            request.parts,
            self.tokens,
            self.infill,
            n_gap=n_gap,
            n_slots=n_slots,
            suffix_is_cut=request.suffix_is_cut,
        )
        started = time.perf_counter()
        cache, n_encoded = self.prefixes.encode(request.document, prompt.context, is_cancelled)
        encoded = time.perf_counter()
        settled = self._denoise(request, prompt, cache, received, is_cancelled, on_draft)
        ended = time.perf_counter()
        candidates = self._candidates(prompt, settled)
        stats = Stats(
            ms=(ended - received) * 1e3,
            steps=settled.n_steps,
            encoder_steps=settled.n_encoder_steps,
            decoder_ms=settled.decoder_s * 1e3,
            encoder_ms=(encoded - started) * 1e3,
            n_prompt=len(prompt.context),
            n_encoded=n_encoded,
            n_canvas=len(prompt.canvas.ids),
        )
        shown = tuple(c for c in candidates if any(c.gaps) and c.confidence >= request.min_confidence)
        return Filled(id=request.id, candidates=shown, silence=_silence(candidates, shown, request), stats=stats)

    def _denoise(
        self,
        request: Fill,
        prompt: Prompt,
        cache: KVCache,
        received: float,
        is_cancelled: Callable[[], bool],
        on_draft: Callable[[Draft], None] | None,
    ) -> Settled:
        deadline = math.inf if request.deadline_ms is None else received + request.deadline_ms / 1e3
        task = Task(
            canvas=prompt.canvas,
            required=prompt.required,
            single_line=request.single_line,
            n_rows=max(1, min(request.n_candidates, MAX_CANDIDATES)),
            deadline=deadline,
            seed=request.seed % _N_SEEDS,
            min_probability=max(0.0, request.min_confidence) ** (1 / self.infill.confidence_power),
        )
        on_step = None
        if on_draft is not None:
            send = on_draft

            def on_step(step: int, order: Order) -> None:
                send(Draft(id=request.id, step=step, slots=self._slots(prompt.canvas, order)))

        return denoise(
            self.model,
            cache,
            task,
            self.rules,
            self.infill,
            self.generation,
            is_cancelled,
            on_step,
            self._vote(prompt, cache),
        )

    def _vote(self, prompt: Prompt, cache: KVCache) -> CausalVote | None:
        infill = self.infill
        if infill.causal_weight == 0:
            return None
        assert infill.blank_token_id is not None, "configs with a vote are checked for it"
        repeats = None
        if infill.repeat_weights:
            repeats = Repeats(
                prompt.before,
                prompt.after,
                end=infill.blank_token_id,
                breaks=self._breaks,
                weights=infill.repeat_weights,
            )
        reader = CausalReader(self.model, cache)
        return CausalVote(infill, self.rules, reader, repeats, self.tokens.pad_token_id or 0)

    def _slots(self, canvas: Canvas, order: Order) -> tuple[Slot, ...]:
        gap = {slot: index for index, slot in enumerate(canvas.gap_slots)}
        slots = []
        for slot, token in enumerate(canvas.ids):
            index = gap.get(slot)
            if index is None:
                slots.append(Slot(self.tokens.decode([token]), True, True, 0.0))
            else:
                text = self.tokens.decode([int(order.draft_BG[0, index])])
                slots.append(Slot(text, False, bool(order.accepted_BG[0, index]), float(order.entropy_BG[0, index])))
        return tuple(slots)

    def _candidates(self, prompt: Prompt, settled: Settled) -> list[Candidate]:
        """Contracts the blanks, takes the healed text off, drops duplicates and broken text; best first.

        Of a draft that was cut off, each gap keeps its accepted slots from the left.
        """
        found: dict[tuple[str, ...], float] = {}
        sizes = [len(gap) for gap in prompt.canvas.gaps]
        kept_BG = torch.ones_like(settled.accepted_BG) if settled.is_complete else settled.accepted_BG
        for draft_G, kept_G, confidence_G in zip(settled.draft_BG, kept_BG, settled.confidence_BG, strict=True):
            n_kept = [int(kept.long().cumprod(0).sum()) for kept in kept_G.split(sizes)]
            ids = [draft[:n].tolist() for draft, n in zip(draft_G.split(sizes), n_kept, strict=True)]
            texts = [
                self._text(slots, required, settled.is_complete)
                for slots, required in zip(ids, prompt.required, strict=True)
            ]
            gaps = tuple(text for text in texts if text is not None)
            if len(gaps) == len(texts):
                of_gaps = [float(c[:n].prod()) for c, n in zip(confidence_G.split(sizes), n_kept, strict=True)]
                found[gaps] = max(found.get(gaps, 0.0), min(1.0, math.prod(of_gaps)) ** self.infill.confidence_power)
        ranked = sorted(found.items(), key=lambda item: -item[1])
        return [Candidate(gaps=gaps, confidence=c, complete=settled.is_complete) for gaps, c in ranked]

    def _text(self, ids: list[int], required: bytes, is_complete: bool) -> str | None:
        """Returns what a gap's tokens add to its healed text; None when they do not repeat that or are no UTF-8."""
        spelled = b"".join(self.tokens.spellings[token] for token in ids)
        if not spelled.startswith(required):
            return None
        try:
            return spelled[len(required) :].decode()
        except UnicodeDecodeError as error:
            is_cut = not is_complete and error.reason == "unexpected end of data"
            return spelled[len(required) :][: error.start].decode() if is_cut else None


def _silence(candidates: list[Candidate], shown: tuple[Candidate, ...], request: Fill) -> str | None:
    if shown:
        return None
    offered = [candidate for candidate in candidates if any(candidate.gaps)]
    if offered:
        return f"not confident enough: {offered[0].confidence:.2f}, asked for {request.min_confidence:.2f}"
    if candidates and candidates[0].complete:
        return "the model would add nothing here"
    if candidates:
        return "the model was sure of nothing before its deadline or its last step"
    return "the model found no text that fits"
