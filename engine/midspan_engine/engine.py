"""The engine: a loaded checkpoint that answers `Fill` requests from one thread; they may share decoder passes."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec
import torch

from midspan_engine.budget import wished_weights
from midspan_engine.candidates import Offer
from midspan_engine.causal_reader import CausalReader
from midspan_engine.causal_vote import CausalVote
from midspan_engine.chat import Chat
from midspan_engine.config import (
    GenerationConfig,
    InfillConfig,
    load_generation_config,
    load_infill_config,
    load_model_config,
)
from midspan_engine.cpu import cpu_dtype
from midspan_engine.denoise import Settling, begin, go_on
from midspan_engine.device import serving_device
from midspan_engine.echo import Echo
from midspan_engine.errors import Cancelled, CheckpointError
from midspan_engine.graphs import capture
from midspan_engine.healing import GapRules
from midspan_engine.kv import KVCache
from midspan_engine.length_policy import AsLaidOut, Filling, LengthPolicy, Means, Outcome
from midspan_engine.models.diffusion_gemma import DiffusionGemma
from midspan_engine.order import Order, Task
from midspan_engine.passes import Passes, alone
from midspan_engine.prefix_cache import PrefixCache
from midspan_engine.probe import Probe
from midspan_engine.prompt import Prompt, build_prompt
from midspan_engine.protocol import Draft, Fill, Filled, Lend, Slot, Stats
from midspan_engine.repeats import Repeats, Source
from midspan_engine.texts import NOTHING
from midspan_engine.tokens import Tokens
from midspan_engine.unsettled import Unsettled
from midspan_engine.weights import load_weights
from midspan_engine.withheld import reason_for_none
from midspan_engine.workspace import Workspace

MAX_CANDIDATES = 8
"""Rows denoised side by side: as many as the command line offers; a CPU takes eight times as long for them."""
_POLICIES: Mapping[str, Callable[[Means], LengthPolicy]] = {
    "blanks": AsLaidOut,
    "fixed": AsLaidOut,
    "probe": Probe,
    "echo": Echo,
}
_N_SEEDS = 2**64
"""A generator of torch takes no others; larger and negative ones are folded."""


class Engine:
    """Owns the model and the caches of the documents."""

    def __init__(
        self,
        model: DiffusionGemma,
        tokens: Tokens,
        infill: InfillConfig,
        generation: GenerationConfig,
        chat: Chat | None = None,
    ) -> None:
        self.model, self.tokens, self.infill, self.generation, self.chat = model, tokens, infill, generation, chat
        self.rules = GapRules(tokens, infill.blank_token_id if infill.finds_length == "blanks" else None)
        self.prefixes = PrefixCache(model)
        self.workspaces: dict[str, Workspace] = {}
        self._unsettled = Unsettled(tokens.spellings)
        breaks = (index for index, spelling in enumerate(tokens.spellings) if spelling[:1] in (b"\n", b"\r"))
        self.breaks = frozenset(breaks)

    @classmethod
    def load(
        cls,
        checkpoint: Path,
        on_progress: Callable[[float], None] = lambda share: None,
        on_budget: Callable[[str], None] = lambda told: None,
    ) -> Engine:
        """Reads a checkpoint folder; tells first what memory it will take, then the share read, 0..1.

        Raises CheckpointError when it cannot be used, EngineError when the free memory does not suffice.
        """
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
        chat = None if infill.prompt == "raw" else Chat.load(checkpoint, tokens)
        if chat is not None:
            infill = msgspec.structs.replace(infill, instructions=True)
        elif infill.prompt == "chat":
            raise CheckpointError(f"{checkpoint} has no chat template: download chat_template.jinja too")
        device = serving_device(config)
        dtype = torch.bfloat16 if device.type == "cuda" else cpu_dtype()
        wish = wished_weights()
        model = load_weights(
            checkpoint, config, dtype, on_progress, wish=wish, infill=infill, device=device, on_budget=on_budget
        )
        model.requires_grad_(False)
        model.fuse()
        capture(model, infill)
        return cls(model, tokens, infill, load_generation_config(checkpoint), chat)

    def with_infill(self, infill: InfillConfig) -> Engine:
        """Returns an engine of the same weights, caches and files that fills in another way."""
        other = Engine(self.model, self.tokens, infill, self.generation, self.chat)
        other.prefixes, other.workspaces = self.prefixes, self.workspaces
        return other

    @property
    def n_parameters(self) -> int:
        """The number of weights."""
        return self.model.n_weights

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

    @property
    def n_files(self) -> int:
        """The number of files that were lent to workspaces."""
        return sum(map(len, self.workspaces.values()))

    def forget(self, document: str) -> None:
        """Drops what is kept for a document."""
        self.prefixes.forget(document)
        self._unsettled.forget(document)

    def lend(self, lent: Lend) -> None:
        """Takes a file's text into a workspace, an empty one out of it.

        Nothing for a checkpoint without a vote, or of a language that it does not know.
        """
        is_known = self.infill.causal_weight > 0 and (not self.languages or lent.language in self.languages)
        workspace = self.workspaces.get(lent.workspace)
        if lent.text and is_known:
            workspace = self.workspaces.setdefault(lent.workspace, Workspace())
        if workspace is not None:
            workspace.lend(lent.file, lent.text if is_known else "", self.tokens)
            if not len(workspace):
                del self.workspaces[lent.workspace]

    @property
    def is_settled(self) -> bool:
        """Tells whether all that was lent is ready to be searched."""
        return all(workspace.is_settled for workspace in self.workspaces.values())

    def settle_workspaces(self) -> bool:
        """Makes what was lent to one workspace ready to be searched; False when there is nothing to do."""
        return any(workspace.settle() for workspace in self.workspaces.values())

    def drop_caches(self) -> None:
        """Drops what is kept for all documents, and gives memory of an accelerator back that nothing uses."""
        self.prefixes.clear()
        self._unsettled.clear()
        if self.device.startswith("cuda"):
            torch.cuda.empty_cache()

    def prompt_for(self, request: Fill, n_gap: int | None = None) -> Prompt:
        """Returns a request in tokens, as a fill asks the model; with `n_gap`, each of its gaps has that many slots.

        Raises InputError for a request that cannot be laid out.
        """
        frame = None
        if self.chat is not None and request.parts:
            prefix, suffix = "".join(request.parts[:-1]), request.parts[-1]
            frame = self.chat.frame(request.language, prefix, suffix, request.instruction)
        return build_prompt(
            request.parts,
            self.tokens,
            self.infill,
            n_gap=max(1, min(request.max_tokens, self.infill.gap_tokens)) if n_gap is None else n_gap,
            n_slots=self.model.config.canvas_length,
            suffix_is_cut=request.suffix_is_cut,
            held=[each.text for each in request.held],
            frame=frame,
        )

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
        filling = self.filling(request, received=received, is_cancelled=is_cancelled, on_draft=on_draft)
        return alone(self.model, filling)

    def filling(
        self,
        request: Fill,
        *,
        received: float,
        is_cancelled: Callable[[], bool],
        on_draft: Callable[[Draft], None] | None = None,
    ) -> Passes[Filled]:
        """Does what `fill` does, with decoder passes that others may share.

        Two fills of one document must not run side by side: they have one cache.
        """
        if self.languages and request.language not in self.languages:
            known = ", ".join(self.languages)
            language = request.language or "this language"
            return Filled(id=request.id, silence=f"this checkpoint knows {known}, not {language}")
        prompt, settling = self._canvas(request, received)
        offer = Offer(self.tokens, self.infill, self.generation, prompt, request.parts, bool(request.held))
        n_carried = settling.n_steps + settling.n_encoder_steps
        started = time.perf_counter()
        try:
            cache, n_encoded = self.prefixes.encode(request.document, prompt.context, is_cancelled)
            encoded = time.perf_counter()
            outcome = yield from self._denoise(request, offer, cache, settling, is_cancelled, on_draft)
        except Cancelled:
            self._unsettled.keep(request, prompt, settling)
            raise
        ended = time.perf_counter()
        candidates = offer.candidates(outcome.settled)[: max(1, request.n_candidates)]
        stats = Stats(
            ms=(ended - received) * 1e3,
            steps=outcome.n_steps,
            encoder_steps=outcome.n_encoder_steps,
            carried_steps=n_carried,
            decoder_ms=outcome.decoder_s * 1e3,
            encoder_ms=(encoded - started) * 1e3,
            n_prompt=len(prompt.context),
            n_encoded=n_encoded,
            n_canvas=len(prompt.canvas.ids),
        )
        shown = tuple(c for c in candidates if any(c.gaps) and c.confidence >= request.min_confidence)
        return Filled(id=request.id, candidates=shown, silence=reason_for_none(candidates, shown, request), stats=stats)

    def _canvas(self, request: Fill, received: float) -> tuple[Prompt, Settling]:
        """Returns the canvas that an older request of the document was withdrawn from, else a new one."""
        if (left := self._unsettled.take(request)) is not None:
            go_on(left[1], self._task(request, left[0], received))
            return left
        prompt = self.prompt_for(request)
        task = self._task(request, prompt, received)
        return prompt, begin(self.model, task, self.rules, self.infill, self.generation)

    def _task(self, request: Fill, prompt: Prompt, received: float) -> Task:
        deadline = math.inf if request.deadline_ms is None else received + request.deadline_ms / 1e3
        return Task(
            canvas=prompt.canvas,
            required=prompt.required,
            single_line=request.single_line,
            n_rows=max(1, min(request.n_candidates, MAX_CANDIDATES)),
            deadline=deadline,
            seed=request.seed % _N_SEEDS,
            min_probability=max(0.0, request.min_confidence) ** (1 / self.infill.confidence_power),
        )

    def _denoise(
        self,
        request: Fill,
        offer: Offer,
        cache: KVCache,
        settling: Settling,
        is_cancelled: Callable[[], bool],
        on_draft: Callable[[Draft], None] | None,
    ) -> Passes[Outcome]:
        on_step = None
        if on_draft is not None:
            send = on_draft

            def on_step(step: int, order: Order) -> None:
                send(Draft(id=request.id, step=step, slots=self._slots(order)))

        means = Means(self.model, self.tokens, self.rules, self.infill, self.generation)
        is_begun = settling.n_steps + settling.n_encoder_steps > 0
        is_simple = len(request.parts) == 2 and not request.held and not is_begun
        policy = _POLICIES[self.infill.finds_length if is_simple else "fixed"](means)
        vote = self._vote(request, offer, cache)
        filling = Filling(offer.prompt, settling, request.parts[-1], cache, is_cancelled, on_step, vote)
        return (yield from policy.fill(filling))

    def _vote(self, request: Fill, offer: Offer, cache: KVCache) -> CausalVote | None:
        infill = self.infill
        if infill.causal_weight == 0 or infill.finds_length != "blanks":
            return None
        assert infill.blank_token_id is not None, "configs with a vote are checked for it"
        blank, breaks, weights = infill.blank_token_id, self.breaks, infill.repeat_weights
        beside = None
        if infill.workspace_weights and (workspace := self.workspaces.get(request.workspace)) is not None:
            beside = Source(*workspace.besides(request.file), infill.workspace_weights)

        def repeats(between: list[int], following: list[int] | None) -> Repeats:
            after = offer.prompt.after if following is None else [*following, NOTHING, *offer.prompt.after]
            before = [*offer.prompt.before, *between]
            return Repeats(before, after, end=blank, breaks=breaks, weights=weights, beside=beside)

        reader = CausalReader(self.model, cache)
        repeated = repeats if weights or beside else None
        return CausalVote(infill, self.rules, reader, repeated, offer.is_worth, self.tokens.pad_token_id or 0)

    def _slots(self, order: Order) -> tuple[Slot, ...]:
        canvas = order.task.canvas
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
