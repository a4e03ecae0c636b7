"""What of a denoised canvas is offered."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from midspan_engine.candidates import Offer
from midspan_engine.config import GenerationConfig
from midspan_engine.denoise import Settled
from midspan_engine.protocol import Fill
from tiny_engine import BLANKS, embedded_tokens, tiny_engine

BLANK = 5
N_SLOTS = 8


def offer_for(*parts: str) -> Offer:
    prompt = tiny_engine().prompt_for(Fill(id=1, document="a.py", parts=parts), N_SLOTS)
    return Offer(embedded_tokens(), BLANKS, GenerationConfig(), prompt, parts)


def slots_for(offer: Offer, gap: int, text: str) -> list[int]:
    """Returns a gap's slots that hold a text, behind what is healed of it."""
    ids = embedded_tokens().encode(offer.prompt.required[gap].decode() + text)
    assert len(ids) <= N_SLOTS
    return ids + [BLANK] * (N_SLOTS - len(ids))


def settled(offer: Offer, *rows: list[int]) -> Settled:
    draft_BG = torch.tensor(rows)
    return Settled(
        canvas=offer.prompt.canvas,
        draft_BG=draft_BG,
        accepted_BG=torch.ones_like(draft_BG, dtype=torch.bool),
        confidence_BG=torch.ones(draft_BG.shape),
        n_steps=1,
        n_encoder_steps=0,
        decoder_s=0.0,
        is_complete=True,
    )


def test_a_text_that_says_again_what_follows_is_not_offered() -> None:
    offer = offer_for("size = MAX_FRAME", "BYTES\n")
    twice, sound = (slots_for(offer, 0, text) for text in ("_BYTES", "_"))
    assert [each.gaps for each in offer.candidates([settled(offer, twice, sound)])] == [("_",)]
    assert not offer.is_worth(twice)
    assert offer.is_worth(sound)


def test_an_edit_is_told_all_of_a_text_whose_end_it_cuts_off_itself() -> None:
    offer = replace(offer_for("size = MAX_FRAME", "BYTES\n"), is_cut_later=True)
    twice = slots_for(offer, 0, "_BYTES")
    assert [each.gaps for each in offer.candidates([settled(offer, twice)])] == [("_BYTES",)]
    assert offer.is_worth(twice)


@pytest.mark.parametrize(("first", "second", "is_offered"), [("a", "d", True), ("a, b", "d", False), ("a", "d)", True)])
def test_each_gap_is_held_against_what_stands_behind_it(first: str, second: str, is_offered: bool) -> None:
    offer = offer_for("f(", ", b, c, ", ")\n")
    both = slots_for(offer, 0, first) + slots_for(offer, 1, second)
    assert bool(offer.candidates([settled(offer, both)])) is is_offered


def test_half_a_character_is_not_worth_offering() -> None:
    offer = offer_for("word = '", "'\n")
    spellings = embedded_tokens().spellings
    half = next(index for index, spelling in enumerate(spellings) if spelling == "é".encode()[:1])
    opened = slots_for(offer, 0, "")
    n_healed = opened.index(BLANK)
    assert not offer.is_worth([*opened[:n_healed], half, *opened[n_healed:-1]])
    assert offer.is_worth(slots_for(offer, 0, "é"))
