"""Training rows are what the engine lays out, to the byte."""

from __future__ import annotations

import random
from pathlib import Path

import msgspec
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from midspan_engine.prompt import build_prompt, heal, quote
from midspan_engine.tokens import Tokens
from midspan_engine.training.examples import IGNORED, ExampleMaker
from midspan_engine.training.gaps import DEFAULT_MIX, cut
from packed_corpus import INFILL, N_SLOTS, N_TOKENS, SOURCES, pack_own_sources

PYTHON = "def area(w, h):\n    size = (w * (h + 1))\n    if size == 0:\n        return [w, {h: 1}]\n\n    return size\n"


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return pack_own_sources(tmp_path_factory.mktemp("packed"))


@pytest.fixture(scope="module")
def tokens(packed: Path) -> Tokens:
    return Tokens.load(packed / "tokenizer.json")


def make(
    packed: Path, tokens: Tokens, *, n_canvases: int = 8, blank_weight: float = 1.0, seed: int = 3
) -> ExampleMaker:
    return ExampleMaker(
        tokens,
        packed / "train.bin",
        INFILL,
        n_tokens=N_TOKENS,
        n_canvases=n_canvases,
        n_slots=N_SLOTS,
        blank_weight=blank_weight,
        seed=seed,
    )


@pytest.fixture
def maker(packed: Path, tokens: Tokens) -> ExampleMaker:
    return make(packed, tokens)


def spell(tokens: Tokens, ids: list[int]) -> str:
    return b"".join(tokens.spellings[index] for index in ids).decode()


def test_a_training_canvas_is_laid_out_as_the_engine_lays_out_the_same_gap(
    packed: Path, tokens: Tokens, maker: ExampleMaker
) -> None:
    stream = np.fromfile(packed / "train.bin", dtype="<u2").astype(np.int64)
    starts = np.flatnonzero(stream == tokens.bos_token_id).tolist()
    n_compared = 0
    for text, start in zip(SOURCES[4:], starts, strict=True):
        row = stream[start : start + N_TOKENS + 192]
        if len(row) < N_TOKENS + 192:
            continue
        for made in maker.cut_canvases(row):
            gap = made.canvas.gaps[0]
            ids = [*row[: made.n_context].tolist(), *made.canvas.ids[: gap.start]]
            if tokens.bos_token_id in ids[1:]:
                continue  # the gap lies in the next document
            kept, middle = spell(tokens, ids), spell(tokens, made.middle)
            # Wherever in the healed piece the cursor stood, the layout is the same.
            cursors = [n for n in range(len(middle)) if heal(kept + middle[:n], tokens)[0] == kept]
            assert cursors, (kept[-40:], middle)
            cursor = len(kept) + cursors[-1]
            is_free = all(index == tokens.pad_token_id for index in made.canvas.ids[gap.stop :])
            parts = (text[:cursor], text[len(kept) + len(middle) :])
            infill = msgspec.structs.replace(INFILL, head_tokens=0) if is_free else INFILL
            prompt = build_prompt(parts, tokens, infill, n_gap=len(gap), n_slots=N_SLOTS)
            assert made.canvas == prompt.canvas
            assert ids[: made.n_context][-len(prompt.context) :] == prompt.context or not prompt.context
            assert middle.encode().startswith(prompt.required[0])
            n_compared += 1
    assert n_compared > 100


def test_context_pins_and_answer_of_a_canvas_spell_the_source_to_the_byte(tokens: Tokens, maker: ExampleMaker) -> None:
    corpus = "".join(SOURCES[4:])
    for _ in range(8):
        batch = maker.batch(2)
        for index, (slots, targets) in enumerate(zip(batch.slots_BG, batch.targets_BG, strict=True)):
            n_gap = int((slots > 0).sum())
            filled = batch.canvas_BC[index].clone()
            filled[slots[:n_gap]] = targets[:n_gap]
            context = batch.rows_RL[index // 8][: batch.n_context_B[index]].tolist()
            raw = b"".join(tokens.spellings[token] for token in [*context, *filled.tolist()])
            assert raw in corpus.encode()


def test_hidden_slots_hold_the_mask_and_known_ones_the_answer(maker: ExampleMaker) -> None:
    batch = maker.batch(16)
    for canvas, known, slots, targets, weights in zip(
        batch.canvas_BC, batch.known_BC, batch.slots_BG, batch.targets_BG, batch.weights_BG, strict=True
    ):
        n_gap = int((slots > 0).sum())
        is_known = known[slots[:n_gap]]
        assert torch.equal(canvas[slots[:n_gap]], torch.where(is_known, targets[:n_gap], INFILL.mask_token_id))
        assert torch.equal(weights[:n_gap] > 0, ~is_known)
        assert not weights[n_gap:].any()
        assert float(weights.sum()) == pytest.approx(0.0 if is_known.all() else 1.0, abs=1e-5)


def test_the_surplus_behind_the_first_blank_weighs_no_more_than_one_token(maker: ExampleMaker) -> None:
    batch = maker.batch(32)
    n_surplus = 0
    for targets, weights in zip(batch.targets_BG, batch.weights_BG, strict=True):
        blanks = (targets == INFILL.blank_token_id).nonzero()[:, 0]
        if len(blanks) > 1 and weights[: blanks[0] + 1].any():
            n_surplus += 1
            assert weights[blanks[1:]].sum() <= weights[: blanks[0] + 1].max() * 1.1 + 1e-6
    assert n_surplus > 50


def test_the_encoder_is_asked_for_the_same_gap_behind_the_quoted_suffix(maker: ExampleMaker) -> None:
    batch = maker.batch(8)
    n_cut = 0
    for canvas, slots, targets, quoted, spots, answers in zip(
        batch.canvas_BC,
        batch.slots_BG,
        batch.targets_BG,
        batch.quoted_BS,
        batch.spots_BA,
        batch.answers_BA,
        strict=True,
    ):
        gap = slots[slots > 0].tolist()
        answer = answers[answers != IGNORED].tolist()
        places = spots[: len(answer)].tolist()
        tail, head = canvas[: gap[0]].tolist(), [token for token in canvas[gap[-1] + 1 :].tolist() if token]
        asked = quoted[: places[0] + 1].tolist()
        # a wide gap leaves the canvas less of the suffix than is quoted
        n_quoted = min(len(head), INFILL.quote_tokens)
        assert asked[: 1 + n_quoted] == quote([], head, INFILL)[: 1 + n_quoted]
        assert asked[len(asked) - len(tail) - 1 :] == [INFILL.mask_token_id, *tail]
        assert quoted[places[1:]].tolist() == answer[:-1], "each place is asked for the token behind it"
        blanks = answer.count(INFILL.blank_token_id)
        assert answer == targets[: len(answer)].tolist() or len(answer) == len(gap) + 1
        assert blanks == (answer[-1] == INFILL.blank_token_id)
        n_cut += not blanks
    assert n_cut < 8, "only the longest gaps end without their blank"


def test_batches_repeat_with_the_seed_and_differ_without(packed: Path, tokens: Tokens) -> None:
    def rows(seed: int) -> list[list[int]]:
        return make(packed, tokens, n_canvases=4, seed=seed).batch(2).canvas_BC.tolist()

    assert rows(1) == rows(1)
    assert rows(1) != rows(2)


def test_surplus_blanks_weigh_as_the_recipe_says(packed: Path, tokens: Tokens) -> None:
    light, heavy = (make(packed, tokens, blank_weight=weight).batch(4) for weight in (0.5, 2.0))
    assert light.targets_BG.tolist() == heavy.targets_BG.tolist()
    is_blank_BG = light.targets_BG == INFILL.blank_token_id
    is_surplus_BG = is_blank_BG & (is_blank_BG.long().cumsum(-1) > 1)
    shares = [
        (weights_BG * is_surplus_BG).sum(-1) / (weights_BG * ~is_surplus_BG).sum(-1)
        for weights_BG in (light.weights_BG, heavy.weights_BG)
    ]
    has_both_B = (shares[0] > 0) & shares[0].isfinite()
    assert has_both_B.sum() > 4
    torch.testing.assert_close(shares[1][has_both_B], 4 * shares[0][has_both_B])


@given(
    kind=st.sampled_from(sorted(DEFAULT_MIX)),
    text=st.just(PYTHON) | st.text("ab =():,[]{}\n'#", max_size=80),
    at=st.integers(0, 200),
    seed=st.integers(0, 1000),
)
def test_a_gap_lies_in_the_line_that_was_asked_for(kind: str, text: str, at: int, seed: int) -> None:
    at = min(at, len(text))
    gap = cut(kind, text, at, random.Random(seed))
    assert gap == cut(kind, text, at, random.Random(seed))
    if gap is None:
        return
    start, end = gap
    line_start = text.rfind("\n", 0, at) + 1
    assert line_start <= start < end <= len(text)
    assert text[line_start:end].strip(), "blank lines are no gaps"
    assert not text[line_start:start].strip() or "\n" not in text[line_start:start]
    if kind != "lines":
        assert "\n" not in text[start:end]
    if kind in ("rest_of_line", "whole_line", "lines"):
        assert text[end] == "\n"
