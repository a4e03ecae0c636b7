"""Whatever it is asked, the engine answers with candidates or with a reason for its silence."""

from __future__ import annotations

import itertools
import math
import time

import msgspec
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from midspan_engine.engine import MAX_CANDIDATES, Engine
from midspan_engine.errors import Cancelled, CheckpointError, InputError
from midspan_engine.protocol import Draft, Fill
from served_checkpoint import CHECKPOINT
from tiny_engine import BLANKS, PROBED, REFERENCE, fill, tiny_engine, tiny_model

PREFIX = "import os\n\n\ndef total(values):\n    result = "
SUFFIX = "\n    return result\n"
ENGINES = {"left to right": BLANKS, "entropy": REFERENCE}

texts = st.lists(
    st.sampled_from(["x", " ", "\n", "\r\n", "    ", "def f(", "__in", '"', "é", "😀", "<mask>", "1", "\t", "\x00"]),
    max_size=10,
).map("".join)


@settings(max_examples=30)
@given(
    parts=st.lists(texts, min_size=2, max_size=3),
    infill=st.sampled_from([BLANKS, REFERENCE, PROBED]),
    n_candidates=st.integers(1, 3),
    single_line=st.booleans(),
    max_steps=st.integers(1, 16),
    seed=st.integers(0, 9),
)
def test_any_parts_are_answered_and_gaps_are_new_text_only(
    parts: list[str], infill: object, n_candidates: int, single_line: bool, max_steps: int, seed: int
) -> None:
    engine = tiny_engine(infill, max_denoising_steps=max_steps)  # type: ignore[arg-type]
    wishes = {"max_tokens": 4, "n_candidates": n_candidates, "single_line": single_line}
    filled = fill(engine, *parts, seed=seed, **wishes)
    assert bool(filled.candidates) == (filled.silence is None)
    assert len(filled.candidates) <= n_candidates
    assert len({candidate.gaps for candidate in filled.candidates}) == len(filled.candidates), "no duplicates"
    confidences = [candidate.confidence for candidate in filled.candidates]
    assert confidences == sorted(confidences, reverse=True)
    for candidate in filled.candidates:
        assert 0 <= candidate.confidence <= 1
        assert len(candidate.gaps) == len(parts) - 1
        assert any(candidate.gaps)
        if single_line:
            assert not any(set("\r\n") & set(gap) for gap in candidate.gaps)
        document = "".join(itertools.chain(*itertools.zip_longest(parts, candidate.gaps, fillvalue="")))
        assert len(document.encode()) == sum(len(text.encode()) for text in (*parts, *candidate.gaps))


def test_a_language_that_the_checkpoint_does_not_know_is_answered_with_a_reason() -> None:
    engine = tiny_engine()
    assert engine.languages == ("python",)
    for language in ("rust", ""):
        filled = fill(engine, "fn main() { ", "}", language=language)
        assert not filled.candidates
        assert "knows python, not" in (filled.silence or "")
        assert filled.stats.steps == 0
    assert fill(tiny_engine(REFERENCE), "fn main() { ", "}", language="rust").stats.steps, "no list means all languages"


@pytest.mark.parametrize("parts", [(), ("x = ",)])
def test_fewer_than_two_parts_are_an_input_error(parts: tuple[str, ...]) -> None:
    with pytest.raises(InputError, match="two parts"):
        fill(tiny_engine(), *parts)


def test_text_between_gaps_that_fills_the_canvas_is_an_input_error() -> None:
    with pytest.raises(InputError, match="fewer gaps"):
        fill(tiny_engine(), "x = ", "y = call(a, b, c)\n" * 30, "\n")


@pytest.mark.parametrize("max_tokens", [-5, 0, 1, 10_000])
def test_a_gap_of_any_size_is_cut_to_what_the_canvas_holds(max_tokens: int) -> None:
    filled = fill(tiny_engine(), PREFIX, SUFFIX, max_tokens=max_tokens)
    assert filled.candidates
    assert filled.stats.n_canvas == 32


@pytest.mark.parametrize("order", ENGINES)
@pytest.mark.parametrize(
    ("prefix", "suffix"),
    [("", ""), ("", "import os\n"), (PREFIX, ""), ("a = 1\r\nb = ", "\r\nc = 2\r\n"), ("x", "x"), ("\n" * 3000, "\n")],
)
def test_empty_ends_and_foreign_line_breaks_are_filled(order: str, prefix: str, suffix: str) -> None:
    filled = fill(tiny_engine(ENGINES[order]), prefix, suffix)
    assert filled.candidates or filled.silence
    assert filled.stats.steps >= 1


def test_three_alternatives_are_three_texts() -> None:
    filled = fill(tiny_engine(), "", SUFFIX, n_candidates=3, max_tokens=4)
    assert len({candidate.text for candidate in filled.candidates}) == 3


def test_the_number_of_alternatives_is_bounded() -> None:
    filled = fill(tiny_engine(), "", SUFFIX, n_candidates=10**9, max_tokens=2)
    assert 1 <= len(filled.candidates) <= MAX_CANDIDATES


@pytest.mark.parametrize("order", ENGINES)
@pytest.mark.parametrize("deadline_ms", [0.0, -1000.0])
def test_a_deadline_that_has_passed_still_takes_one_step(order: str, deadline_ms: float) -> None:
    infill = msgspec.structs.replace(ENGINES[order], commit_confidence=1.1)
    filled = fill(tiny_engine(infill), PREFIX, SUFFIX, deadline_ms=deadline_ms)
    assert filled.stats.steps == 1
    assert filled.silence or not filled.candidates[0].complete
    assert all(0 <= candidate.confidence <= 1 for candidate in filled.candidates)


def test_a_draft_cut_off_shows_only_what_was_committed() -> None:
    engine = tiny_engine(msgspec.structs.replace(BLANKS, commit_confidence=1.1))  # one slot a step
    filled = fill(engine, "", SUFFIX, deadline_ms=0.0, n_candidates=3)
    assert filled.candidates
    assert all(candidate.text.encode() in engine.tokens.spellings for candidate in filled.candidates), "one token"


def test_a_draft_without_a_word_of_new_text_is_no_candidate() -> None:
    infill = msgspec.structs.replace(BLANKS, commit_confidence=1.1)  # the one committed slot writes healed text
    for seed in range(5):
        filled = fill(
            tiny_engine(infill), "x = self.some_long_name_of_mine\n        ", "\n", deadline_ms=0.0, seed=seed
        )
        assert all(candidate.text for candidate in filled.candidates)
        assert filled.candidates or filled.silence


@pytest.mark.parametrize("order", ENGINES)
def test_confidence_counts_every_slot_of_an_answer(order: str) -> None:
    engine = tiny_engine(ENGINES[order])
    found = [fill(engine, "", SUFFIX, max_tokens=4, seed=seed).candidates for seed in range(8)]
    confidences = [candidates[0].confidence for candidates in found if candidates]
    assert confidences
    assert all(0 < confidence < 0.99 for confidence in confidences), "random weights are sure of nothing"


def test_doubtful_candidates_are_held_back_with_both_numbers() -> None:
    filled = fill(tiny_engine(), PREFIX, SUFFIX, min_confidence=0.999)
    assert not filled.candidates
    assert "not confident enough" in (filled.silence or "")
    assert "1.00" in (filled.silence or "")


def test_the_number_of_a_fill_that_ended_early_is_told_as_a_bound() -> None:
    early = fill(tiny_engine(BLANKS), PREFIX, SUFFIX, min_confidence=0.999)
    assert "not confident enough: at most 0." in (early.silence or "")


def test_numbers_that_look_alike_are_told_with_more_digits() -> None:
    engine = tiny_engine(REFERENCE)
    found = fill(engine, PREFIX, SUFFIX).candidates[0].confidence
    silence = fill(engine, PREFIX, SUFFIX, min_confidence=found + 1e-4).silence or ""
    told, asked = silence.split(", asked for ")
    assert told.split()[-1] != asked


@pytest.mark.parametrize("order", ENGINES)
def test_one_step_is_enough_for_an_answer(order: str) -> None:
    filled = fill(tiny_engine(ENGINES[order], max_denoising_steps=1), PREFIX, SUFFIX)
    assert filled.stats.steps == 1
    assert filled.candidates or filled.silence


def test_a_cancelled_request_takes_no_further_step() -> None:
    engine = tiny_engine(msgspec.structs.replace(BLANKS, commit_confidence=1.1))
    drafts: list[Draft] = []
    request = Fill(id=7, document="a.py", parts=(PREFIX, SUFFIX), watch=True)
    with pytest.raises(Cancelled):
        engine.fill(
            request, received=time.perf_counter(), is_cancelled=lambda: len(drafts) == 2, on_draft=drafts.append
        )
    assert [draft.step for draft in drafts] == [1, 2]
    assert {draft.id for draft in drafts} == {7}


def test_a_cancel_that_comes_before_the_prompt_is_read_saves_the_reading() -> None:
    engine = tiny_engine()
    request = Fill(id=1, document="a.py", parts=("value = 1\n" * 20, SUFFIX))
    with pytest.raises(Cancelled):
        engine.fill(request, received=time.perf_counter(), is_cancelled=lambda: True)
    assert fill(engine, *request.parts).stats.n_encoded > 50


@pytest.mark.parametrize("seed", [-1, -(2**63) - 1, 2**63, 2**64, 10**30])
def test_any_number_is_a_seed(seed: int) -> None:
    assert fill(tiny_engine(REFERENCE), PREFIX, SUFFIX, max_tokens=2, seed=seed).stats.steps


@pytest.mark.parametrize("order", ENGINES)
def test_drafts_show_the_canvas_and_end_with_the_answer(order: str) -> None:
    engine = tiny_engine(ENGINES[order])
    drafts: list[Draft] = []
    request = Fill(id=1, document="a.py", parts=("x = f(", ")\ny = 2\n"), max_tokens=6)
    filled = engine.fill(request, received=time.perf_counter(), is_cancelled=lambda: False, on_draft=drafts.append)
    assert len(drafts) == filled.stats.steps + filled.stats.encoder_steps
    for draft in drafts:
        assert len(draft.slots) == filled.stats.n_canvas
        assert "".join(slot.text for slot in draft.slots if slot.pinned) == "x = f" + ")\ny = 2\n"
        assert all(slot.accepted and slot.entropy == 0 for slot in draft.slots if slot.pinned)
        assert all(slot.entropy >= 0 and math.isfinite(slot.entropy) for slot in draft.slots)
    last = "".join(slot.text for slot in drafts[-1].slots if not slot.pinned)
    if filled.candidates and "\ufffd" not in last:
        (best,) = filled.candidates
        assert last == "(" + best.text if best.complete else last.startswith("(" + best.text)


def test_the_next_key_encodes_only_what_is_new() -> None:
    engine = tiny_engine()
    text = "".join(f"value_{number} = {number}\n" for number in range(20))
    fill(engine, text + "x", "\n")
    filled = fill(engine, text + "xy", "\n")
    assert filled.stats.n_encoded <= 2
    assert filled.stats.n_prompt > 50
    assert engine.n_documents == 1
    engine.forget("a.py")
    assert engine.n_documents == 0


def test_the_same_request_gives_the_same_answer_with_a_cold_and_a_warm_cache() -> None:
    warm = tiny_engine(REFERENCE)
    fill(warm, PREFIX[:-9], SUFFIX)
    cold = tiny_engine(REFERENCE)
    for seed in range(4):
        cold.forget("a.py")
        first, second = (fill(engine, PREFIX, SUFFIX, max_tokens=4, seed=seed) for engine in (warm, cold))
        assert first.stats.n_encoded < second.stats.n_encoded or seed > 0
        assert [candidate.gaps for candidate in first.candidates] == [c.gaps for c in second.candidates]


def test_a_tokenizer_with_more_ids_than_the_model_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    small = msgspec.structs.replace(tiny_model().config, vocab_size=100)
    monkeypatch.setattr("midspan_engine.engine.load_model_config", lambda folder: small)
    with pytest.raises(CheckpointError, match="do not belong together"):
        Engine.load(CHECKPOINT)


@pytest.mark.parametrize("name", ["mask_token_id", "blank_token_id"])
def test_a_special_id_that_the_tokenizer_lacks_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    foreign = msgspec.structs.replace(BLANKS, **{name: 4096})
    monkeypatch.setattr("midspan_engine.engine.load_infill_config", lambda folder: foreign)
    with pytest.raises(CheckpointError, match=f"{name} 4096"):
        Engine.load(CHECKPOINT)


def test_an_embedding_with_rows_that_no_token_uses_is_fine() -> None:
    model = tiny_model(vocab_size=4096 + 64)
    for infill in ENGINES.values():
        filled = fill(tiny_engine(infill, model=model), "", SUFFIX, n_candidates=3)
        assert filled.candidates or filled.silence


def test_the_embedded_checkpoint_answers() -> None:
    torch.set_num_threads(1)
    engine = Engine.load(CHECKPOINT)
    filled = fill(engine, PREFIX, SUFFIX, max_tokens=16)
    assert filled.candidates or filled.silence
    assert filled.stats.n_encoded == filled.stats.n_prompt
    assert fill(engine, PREFIX, SUFFIX).stats.n_encoded == 0
    assert engine.n_parameters > 1_000_000
    assert engine.device == "cpu"
