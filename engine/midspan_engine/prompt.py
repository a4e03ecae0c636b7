"""From a request's text parts to tokens: what the encoder holds, what the canvas pins, what must be healed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from midspan_engine.canvas import Canvas, lay_out
from midspan_engine.chat import Frame
from midspan_engine.config import InfillConfig
from midspan_engine.errors import InputError
from midspan_engine.tokens import Tokens

STRIDE_TOKENS = 128
"""The prompt's start moves in steps of this many tokens as a file grows, so that the cached prefix stays valid."""
MAX_HEALED_TOKENS = 8
"""A longer last piece (a word in another script spelled byte by byte) stays pinned: it would fill the gap. Chosen."""
_HEAD_CHARACTERS = 8192
"""Characters of the suffix that are tokenised: more than any head spells, about two screens to look for repeats in."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """One request in tokens."""

    context: list[int]
    """What the encoder holds."""
    canvas: Canvas
    required: tuple[bytes, ...]
    """The text that each gap must write again, taken from the end of the part before it."""
    before: list[int]
    """All tokens in front of the first gap, what the encoder does not hold included."""
    after: list[int]
    """Tokens behind the last gap, more than the canvas pins."""
    fence: str = ""
    """What ends an answer early; empty for nothing."""


def build_prompt(
    parts: tuple[str, ...],
    tokens: Tokens,
    infill: InfillConfig,
    *,
    n_gap: int,
    n_slots: int,
    suffix_is_cut: bool = False,
    held: Sequence[str] = (),
    frame: Frame | None = None,
) -> Prompt:
    """Lays out a request: prefix into context and tail, healed pieces into the gaps, suffix into the head.

    `n_gap` is the number of slots of each gap, `n_slots` the width of the canvas; where it is too narrow for all gaps,
    they share what it has. Where no blank tells the length, a gap that holds a text is as long as that. Unless
    `suffix_is_cut`, the document ends with the last part. Raises InputError for fewer than two parts, or when the
    middle parts leave no room for the gaps.
    """
    if len(parts) < 2:
        raise InputError("a fill needs the text before and after the gap: give at least two parts")
    healed = [heal(part, tokens) for part in parts[:-1]]
    before = _prefix_ids(healed[0][0], tokens, frame)
    after = _suffix_ids(parts[-1], tokens, suffix_is_cut, frame)
    prompt = _cut(before, infill)
    tail = prompt[max(0, len(prompt) - infill.tail_tokens) :]
    middles = [tokens.encode(kept) for kept, _ in healed[1:]]
    head = after[: infill.head_tokens]
    hole = infill.mask_token_id if infill.mask_token_id is not None else 0
    room = n_slots - len(tail) - sum(map(len, middles)) - min(len(head), infill.tail_tokens)
    sizes = [max(1, min(n_gap, room // len(healed)))] * len(healed)
    if infill.blank_token_id is None and held:
        texts = [piece + text for (_, piece), text in zip(healed, held, strict=True)]
        sizes = [len(tokens.encode(text)) if text else size for text, size in zip(texts, sizes, strict=True)]
    canvas = lay_out([tail, *middles, head], sizes, n_slots, hole=hole, pad=tokens.pad_token_id or 0)
    required = tuple(piece.encode() for _, piece in healed)
    context = prompt[: len(prompt) - len(tail)]
    if frame is not None:
        return Prompt([*frame.opening, *context], canvas, required, before, after, frame.fence)
    return Prompt(context, canvas, required, before, after)


def heal(part: str, tokens: Tokens) -> tuple[str, str]:
    """Splits text in front of a gap into what stays pinned and what the gap writes again."""
    point = tokens.healing_point(part)
    if len(tokens.encode(part[point:])) > MAX_HEALED_TOKENS:
        point = len(part)
    return part[:point], part[point:]


def quote(tail: list[int], head: list[int], infill: InfillConfig) -> list[int]:
    """Returns what the encoder reads between the context and a gap: the suffix's first tokens, then the tail.

    The quote stands between two mask tokens, which occur nowhere else in what an encoder reads. A checkpoint that
    quotes nothing reads the tail alone.
    """
    if infill.quote_tokens == 0:
        return tail
    assert infill.mask_token_id is not None, "the mask token marks the quote"
    return [infill.mask_token_id, *head[: infill.quote_tokens], infill.mask_token_id, *tail]


def _prefix_ids(prefix: str, tokens: Tokens, frame: Frame | None) -> list[int]:
    ids = tokens.encode_long(prefix)
    if tokens.bos_token_id is not None and frame is None:
        ids.insert(0, tokens.bos_token_id)
    return ids


def _cut(ids: list[int], infill: InfillConfig) -> list[int]:
    """Returns the last tokens of a prefix that the prompt has room for."""
    surplus = len(ids) - infill.prompt_tokens
    if surplus <= 0:
        return ids
    return ids[-(-surplus // STRIDE_TOKENS) * STRIDE_TOKENS :]


def _suffix_ids(suffix: str, tokens: Tokens, is_cut: bool, frame: Frame | None) -> list[int]:
    ids = tokens.encode_long(suffix[:_HEAD_CHARACTERS])
    if is_cut or len(suffix) > _HEAD_CHARACTERS:
        return ids
    if frame is not None:
        return ids + frame.closing
    return ids if tokens.eos_token_id is None else [*ids, tokens.eos_token_id]
