"""Training rows: a stretch of code for the causal loss, and several gaps cut out of it.

Each gap is asked twice: of the decoder as a canvas, of the encoder as a continuation behind the quoted suffix.

The canvases are laid out as the engine lays them out when it is asked: healed prefix piece in front of the gap, pinned
tail and head, surplus slots blank. The reveal patterns are those that the sampler produces: mostly "the first tokens
are known, all else is hidden", else the trailing blanks collapse (an independent random mask never shows them).
"""

from __future__ import annotations

import random
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from midspan_engine.canvas import Canvas, lay_out
from midspan_engine.config import InfillConfig
from midspan_engine.errors import InputError
from midspan_engine.noise import draw_noise
from midspan_engine.prompt import heal, quote
from midspan_engine.tokens import Tokens
from midspan_engine.training.gaps import DEFAULT_MIX, cut, draw_kind

LOOK_AHEAD = 192
"""Tokens behind a row from which gaps and suffixes may still be cut."""
GAP_SIZES = (12, 16, 24, 32, 40)
"""Slots of a training gap; the engine may ask for any number up to the largest that the recipe allows."""
MAX_DRAWS = 1000
"""Rows looked at for one with enough gaps; Python code needs one or two."""
NO_SUFFIX_SHARE = 0.10
"""Canvases without a head, so that code is continued too when nothing follows; chosen, not tuned."""
LEFT_TO_RIGHT_SHARE = 0.65
"""Canvases revealed from the left, the pattern of the sampler that ships; chosen, not tuned."""
LENGTH_GIVEN_SHARE = 0.10
"""Canvases whose blanks are known; chosen, not tuned. The rest is revealed at random."""
FRONTIER_DECAY, FRONTIER_FLOOR = 0.6, 0.1
"""Weight by distance from the frontier of a run, with something left for all: the sampler commits at the frontier, far
slots mostly add noise (chosen; 0.85 before left the frontier 0.6 nats behind the causal loss of the same tokens)."""
_CHARACTERS_PER_SLOT = 8
"""More than any head of a canvas spells on average (3.65 characters a token)."""

IGNORED = -100
"""Target without a loss, `ignore_index` of torch's cross-entropy."""

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class CutCanvas:
    """A canvas with its answer."""

    canvas: Canvas
    n_context: int
    """Tokens of the row that the decoder sees in front of the canvas."""
    middle: list[int]
    """The true tokens of the gap, without the surplus."""
    quote: list[int]
    """What the encoder reads between that context and the gap, see `quote`."""


@dataclass(frozen=True, slots=True)
class Batch:
    """R rows of L tokens with K canvases each; B = R * K, C canvas slots, G slots of the largest gap."""

    rows_RL: torch.Tensor
    canvas_BC: torch.Tensor
    known_BC: torch.Tensor
    n_context_B: torch.Tensor
    slots_BG: torch.Tensor
    """Which slots the gap takes, padded with slot 0."""
    targets_BG: torch.Tensor
    weights_BG: torch.Tensor
    """Loss weights; 0 for known and padding slots. A row of them sums to 1 or 0."""
    quoted_BS: torch.Tensor
    """Quote and gap for the encoder, as many slots as a canvas has."""
    spots_BA: torch.Tensor
    """Which of them predict a token of the gap or its end, padded with slot 0."""
    answers_BA: torch.Tensor
    """What they predict, a blank at the end; `IGNORED` for padding."""

    def to(self, device: torch.device) -> Batch:
        """Returns the batch on a device."""
        return Batch(*(getattr(self, field.name).to(device, non_blocking=True) for field in fields(self)))


class ExampleMaker:
    """Draws training batches from a packed stream of tokens, for ever; seeded, so that it can be replayed."""

    def __init__(
        self,
        tokens: Tokens,
        stream: Path,
        infill: InfillConfig,
        *,
        n_tokens: int,
        n_canvases: int,
        n_slots: int,
        blank_weight: float,
        seed: int,
    ) -> None:
        assert infill.blank_token_id is not None, "recipes are checked for it"
        assert infill.mask_token_id is not None, "recipes are checked for it"
        self._tokens, self._infill = tokens, infill
        self._blank: int = infill.blank_token_id
        self._mask, self._pad, self._eos = infill.mask_token_id, tokens.pad_token_id or 0, tokens.eos_token_id or 0
        self._gap_sizes = sorted({*(size for size in GAP_SIZES if size < infill.gap_tokens), infill.gap_tokens})
        self._name = stream.name
        if not stream.exists() or stream.stat().st_size < 2 * (n_tokens + LOOK_AHEAD + 1):
            raise InputError(f"{stream} is missing or too short for rows of {n_tokens} tokens: pack more text into it")
        self._stream: npt.NDArray[np.uint16] = np.memmap(stream, dtype=np.uint16, mode="r")
        self._lengths = np.array([len(spelling) for spelling in tokens.spellings], dtype=np.int64)
        self._n_tokens, self._n_canvases, self._n_slots = n_tokens, n_canvases, n_slots
        self._blank_weight = blank_weight
        self._rng = random.Random(seed)
        # of its own: the kind of noise does not change which gaps are drawn
        self._noise = torch.Generator().manual_seed(seed)

    def rows(self, n_rows: int) -> torch.Tensor:
        """Draws rows for the causal loss alone, [R, L]."""
        return torch.from_numpy(np.stack([self._draw_row()[: self._n_tokens] for _ in range(n_rows)]))

    def batch(self, n_rows: int) -> Batch:
        """Draws rows with canvases."""
        drawn = [self._row_with_canvases() for _ in range(n_rows)]
        return self._stack(np.stack([row for row, _ in drawn]), [made for _, cuts in drawn for made in cuts])

    def _row_with_canvases(self) -> tuple[Ints, list[CutCanvas]]:
        for _ in range(MAX_DRAWS):
            row = self._draw_row()
            cuts = self.cut_canvases(row)
            if len(cuts) == self._n_canvases:
                return row[: self._n_tokens], cuts
        raise InputError(f"{self._name} has no rows with {self._n_canvases} gaps: is it Python code?")

    def _draw_row(self) -> Ints:
        start = self._rng.randrange(len(self._stream) - self._n_tokens - LOOK_AHEAD)
        return self._stream[start : start + self._n_tokens + LOOK_AHEAD].astype(np.int64)

    def cut_canvases(self, row: Ints) -> list[CutCanvas]:
        """Cuts canvases out of a row and the tokens that follow it; fewer than wanted where it has few gaps."""
        ends = np.cumsum(self._lengths[row])
        text = b"".join([self._tokens.spellings[index] for index in row]).decode("latin-1")  # one character a byte
        breaks = [*ends[row == self._tokens.bos_token_id].tolist(), int(ends[-1]) + 1]
        found: list[CutCanvas] = []
        for _ in range(4 * self._n_canvases):
            if len(found) == self._n_canvases:
                break
            at = int(ends[self._rng.randrange(8, self._n_tokens)])
            gap = cut(draw_kind(self._rng, DEFAULT_MIX), text, at, self._rng)
            if gap and (made := self._make(row, ends, text, gap, breaks)):
                found.append(made)
        return found

    def _make(self, row: Ints, ends: Ints, text: str, gap: tuple[int, int], breaks: list[int]) -> CutCanvas | None:
        """Lays out one gap as `build_prompt` does; None where it cannot be learned from.

        Documents are laid out one by one, although rows run across them: healing, tail and head stop at a `<bos>`.
        """
        start, end = gap
        document_start = max((place for place in breaks if place < start), default=0)
        document_end = min(place for place in breaks if place >= start)
        before = text[max(document_start, start - 256) : start]
        after = text[end : min(document_end, end + _CHARACTERS_PER_SLOT * self._n_slots)]
        if end > document_end or not (before + text[start:end] + after).isascii():
            return None
        kept, required = heal(before, self._tokens)
        if before and not required:
            return None  # a piece too long to be healed: its part in front of the gap has other tokens than the row
        healed = start - len(before) + len(kept)
        # "right" takes a <bos>, which spells nothing, into the prompt of the document that it begins
        n_prompt = int(np.searchsorted(ends, healed, side="right"))
        if n_prompt == 0 or n_prompt > self._n_tokens or ends[n_prompt - 1] != healed:
            return None
        middle = self._tokens.encode(text[healed:end])
        sizes = [size for size in self._gap_sizes if size >= len(middle)]
        head = self._head(after, is_whole=len(after) == document_end - end)
        if not sizes or head is None:
            return None
        first = max(0, int(np.searchsorted(ends, document_start, side="right")) - 1)
        n_tail = min(self._infill.tail_tokens, n_prompt - first)
        tail = row[n_prompt - n_tail : n_prompt].tolist()
        canvas = lay_out([tail, head], [self._rng.choice(sizes)], self._n_slots, hole=self._mask, pad=self._pad)
        return CutCanvas(canvas, n_prompt - n_tail, middle, quote(tail, head, self._infill))

    def _head(self, after: str, *, is_whole: bool) -> list[int] | None:
        if self._rng.random() < NO_SUFFIX_SHARE:
            return []
        head = self._tokens.encode(after) + [self._eos] * is_whole
        # a head that is cut short by the look-ahead would look like the end of a file
        return head[: self._infill.head_tokens] if is_whole or len(head) > self._infill.head_tokens else None

    def _stack(self, rows: Ints, cuts: list[CutCanvas]) -> Batch:
        n = len(cuts)
        canvas = np.array([made.canvas.ids for made in cuts], dtype=np.int64)
        known = np.ones_like(canvas, dtype=np.bool_)
        shape = (n, self._gap_sizes[-1])
        slots, targets, weights = np.zeros(shape, np.int64), np.zeros(shape, np.int64), np.zeros(shape, np.float32)
        for index, made in enumerate(cuts):
            gap = made.canvas.gaps[0]
            blanks = [self._blank] * (len(gap) - len(made.middle))
            answer = np.array(made.middle + blanks, dtype=np.int64)
            revealed, weight = self._reveal(len(made.middle), len(gap))
            slots[index, : len(gap)] = gap
            targets[index, : len(gap)] = answer
            weights[index, : len(gap)] = weight
            canvas[index, gap.start : gap.stop] = np.where(revealed, answer, self._hidden(len(gap)))
            known[index, gap.start : gap.stop] = revealed
        contexts = np.array([made.n_context for made in cuts], dtype=np.int64)
        arrays = (rows, canvas, known, contexts, slots, targets, weights, *self._stack_quoted(cuts))
        return Batch(*(torch.from_numpy(array) for array in arrays))

    def _hidden(self, n_slots: int) -> Ints:
        """Draws what hidden slots hold, see `draw_noise`."""
        drawn = draw_noise(self._infill, (n_slots,), len(self._lengths), self._noise, torch.device("cpu"))
        return np.asarray(drawn, dtype=np.int64)

    def _stack_quoted(self, cuts: list[CutCanvas]) -> tuple[Ints, Ints, Ints]:
        n, n_answers = len(cuts), self._gap_sizes[-1] + 1
        quoted = np.full((n, self._n_slots), self._pad, np.int64)
        spots, answers = np.zeros((n, n_answers), np.int64), np.full((n, n_answers), IGNORED, np.int64)
        for index, made in enumerate(cuts):
            row = (made.quote + made.middle)[: self._n_slots]
            answer = [*made.middle, self._blank][: self._n_slots + 1 - len(made.quote)]
            quoted[index, : len(row)] = row
            spots[index, : len(answer)] = len(made.quote) - 1 + np.arange(len(answer))
            answers[index, : len(answer)] = answer
        return quoted, spots, answers

    def _reveal(self, n_middle: int, n_gap: int) -> tuple[Bools, Floats]:
        """Draws which of the gap's slots are known, and weighs the others.

        The slot at the frontier of a left-to-right run weighs most, since the sampler commits there; all surplus
        blanks behind the first together weigh as `blank_weight` tokens (DreamOn, arXiv 2602.01326, has them weigh 1).
        """
        known = np.zeros(n_gap, np.bool_)
        weight = np.ones(n_gap, np.float32)
        pattern = self._rng.random()
        if pattern < LEFT_TO_RIGHT_SHARE:
            frontier = self._rng.randint(0, min(n_middle, n_gap - 1))
            known[:frontier] = True
            weight = (FRONTIER_FLOOR + FRONTIER_DECAY ** np.abs(np.arange(n_gap) - frontier)).astype(np.float32)
        else:
            draws = np.array([self._rng.random() for _ in range(n_gap)])
            known = draws < self._rng.random()
            if pattern < LEFT_TO_RIGHT_SHARE + LENGTH_GIVEN_SHARE and n_middle > 0:
                known[n_middle:] = True
        surplus = slice(n_middle + 1, n_gap)
        n_surplus = int((~known[surplus]).sum())
        if n_surplus:
            weight[surplus] *= self._blank_weight / n_surplus
        weight[known] = 0
        total = float(weight.sum())
        return known, weight / total if total else weight
