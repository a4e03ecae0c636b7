"""Texts that were passed over on the way to a draft."""

from __future__ import annotations

import math
from itertools import product

import msgspec
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from midspan_engine import rivals as searched
from midspan_engine.canvas import lay_out
from midspan_engine.healing import GapRules
from midspan_engine.left_to_right import LeftToRight
from midspan_engine.order import Task
from midspan_engine.rivals import Beginning, Rivals
from tiny_engine import BLANKS, embedded_tokens, fill, tiny_engine, tiny_model

N_TOKENS, N_SLOTS, END = 4, 3, 0
BLANK = 5
VOTING = msgspec.structs.replace(
    BLANKS, causal_weight=0.6, quote_tokens=4, sure_confidence=0.4, repeat_weights=(0.2, 0.4), rival_passes=8
)
NOTHING = Beginning(0.0, (), ())


class Language:
    """Random probabilities of the next token behind every beginning, and the search of a gap in it."""

    def __init__(self, seed: int, max_passes: int = 8) -> None:
        generator = torch.Generator().manual_seed(seed)
        beginnings = [b for n in range(N_SLOTS) for b in product(range(N_TOKENS), repeat=n)]
        self.next = {b: (2 * torch.randn(N_TOKENS, generator=generator)).softmax(-1) for b in beginnings}
        self.n_reads = 0
        self.rivals = Rivals(N_SLOTS, END, max_passes)
        self.draft = NOTHING
        while not self.is_whole(self.draft):
            p_V = self.next[self.draft.tokens]
            token = int(p_V.argmax())
            self.rivals.pass_over(self.draft, p_V, token)
            self.draft = self.draft.then(token, float(p_V[token]))

    def is_whole(self, beginning: Beginning) -> bool:
        return END in beginning.tokens or len(beginning.tokens) == N_SLOTS

    def read(self, left: Beginning) -> tuple[torch.Tensor, list[int]]:
        self.n_reads += 1
        likely = [1] * (len(left.tokens) < N_SLOTS - 1)  # read along, as a repeat of the document
        return torch.stack([self.next[left.tokens + tuple(likely[:n])] for n in range(len(likely) + 1)]), likely

    def best(self, bound: float) -> Beginning | None:
        return self.rivals.best(list(self.draft.tokens), bound, self.read, lambda tokens: True, lambda: False)

    def cheapest(self) -> float:
        """The cost of the most probable text, by trying all."""
        costs = []
        for text in product(range(N_TOKENS), repeat=N_SLOTS):
            whole = NOTHING
            for token in text:
                if not self.is_whole(whole):
                    whole = whole.then(token, float(self.next[whole.tokens][token]))
            costs.append(whole.cost)
        return min(costs)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6))
def test_with_time_enough_the_most_probable_text_of_all_is_found(seed: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(searched, "WIDTH", N_TOKENS**N_SLOTS)
        language = Language(seed, max_passes=1000)
        rival = language.best(language.draft.cost)
        found = language.draft if rival is None else rival
        assert found.cost == pytest.approx(language.cheapest(), abs=1e-5)
        assert rival is None or rival.cost < language.draft.cost


def test_a_sure_draft_costs_no_pass() -> None:
    language = Language(1)
    assert language.best(-math.log(0.99)) is None
    assert language.n_reads == 0


def test_passes_are_limited_and_end_when_nobody_waits() -> None:
    languages = [Language(seed, max_passes=2) for seed in range(20)]
    for language in languages:
        language.best(math.inf)
    assert max(language.n_reads for language in languages) == 2
    left = Language(0)
    left.rivals.best([], math.inf, left.read, lambda tokens: True, lambda: True)
    assert left.n_reads == 0


@pytest.mark.parametrize("seed", range(8))
def test_a_draft_that_cannot_be_offered_gives_way_to_a_less_probable_text(seed: int) -> None:
    language = Language(seed, max_passes=1000)
    draft = language.draft
    rival = language.rivals.best(
        list(draft.tokens), math.inf, language.read, lambda tokens: tokens[0] != draft.tokens[0], lambda: False
    )
    assert rival is not None
    assert language.is_whole(rival)
    assert rival.tokens[0] != draft.tokens[0]


@pytest.mark.parametrize("seed", range(4))
def test_an_answer_is_never_less_probable_than_its_draft_was(seed: int) -> None:
    drafting = msgspec.structs.replace(VOTING, rival_passes=0)
    found, drafted = (
        fill(tiny_engine(infill, model=tiny_model(seed=seed)), "total = ", "\nprint(total)\n")
        for infill in (VOTING, drafting)
    )
    assert found.candidates[0].confidence >= drafted.candidates[0].confidence
    assert found.stats is not None
    assert drafted.stats is not None
    assert found.stats.encoder_steps >= drafted.stats.encoder_steps


def test_what_is_taken_back_leaves_no_doubt_behind() -> None:
    canvas = lay_out([[30, 31], [300, 301]], [6], 16, hole=4, pad=0)
    order = LeftToRight(Task(canvas, (b"",)), torch.full((1, 6), 4), GapRules(embedded_tokens(), BLANK), VOTING)
    for token in (40, 41, 42):
        order.commit(0, 0, token, 0.1)
    order.take_back(0, 0)
    order.commit(0, 0, 50, 0.9)
    order.commit(0, 0, BLANK, 0.8)
    assert order.beginning(0, 0).tokens == (50, BLANK)
    assert float(order.confidence_BG[0].prod()) == pytest.approx(0.72)
