"""Gap slots hold what the document requires, no line break where one line is asked for, and no special id."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from midspan_engine.healing import GapRules
from tiny_engine import embedded_tokens

BLANK = 5
N_SLOTS = 12
N_IDS = 4096

required_text = st.sampled_from(
    ["", "x", "self", " ", "\n    ", "\r\n\t", "__init", "é", "日本", "😀", '"""', "    ", "\n\n\n", "12", "zzqxjk"]
)


def rules() -> GapRules:
    return GapRules(embedded_tokens(), BLANK)


def random_logits(seed: int, n_ids: int = N_IDS) -> torch.Tensor:
    return 5 * torch.randn(N_SLOTS, n_ids, generator=torch.Generator().manual_seed(seed))


@settings(max_examples=40)
@given(required=required_text, single_line=st.booleans(), seed=st.integers(0, 999))
def test_the_best_tokens_spell_what_is_required(required: str, single_line: bool, seed: int) -> None:
    z_GV = rules().constrain(random_logits(seed), required.encode(), single_line)
    best = z_GV.argmax(-1).tolist()
    spelled = b"".join(embedded_tokens().spellings[token] for token in best)
    assert spelled.startswith(required.encode())
    if single_line:
        behind = spelled[len(required.encode()) :]
        assert b"\n" not in behind
        assert b"\r" not in behind


@settings(max_examples=40)
@given(single_line=st.booleans(), required=required_text, seed=st.integers(0, 999))
def test_only_the_blank_and_ids_that_spell_something_stay_possible(single_line: bool, required: str, seed: int) -> None:
    z_GV = rules().constrain(random_logits(seed), required.encode(), single_line)
    possible = z_GV > -torch.inf
    special = [index for index, spelling in enumerate(embedded_tokens().spellings) if not spelling]
    assert not possible[:, [index for index in special if index != BLANK]].any()
    assert possible.any(-1).all()
    assert not required or not possible[0, BLANK], "required text cannot be left out"


def test_logits_of_what_may_stand_are_left_alone() -> None:
    before = random_logits(0)
    z_GV = rules().constrain(before.clone(), b"self", single_line=False)
    possible = z_GV > -torch.inf
    assert torch.equal(z_GV[possible], before[possible])
    assert possible[4:].sum(-1).unique().tolist() == [N_IDS - 5], "all but five special ids behind it"


def test_a_required_line_break_is_chosen_by_its_logits() -> None:
    tokens = embedded_tokens()
    four, eight = (tokens.encode(blank)[0] for blank in ("\n    ", "\n        "))
    for wanted in (four, eight):
        z_GV = random_logits(0)
        z_GV[0, wanted] = 50.0
        assert int(rules().constrain(z_GV, b"\n    ", single_line=True)[0].argmax()) == wanted


def test_rows_of_the_embedding_without_a_token_are_never_chosen() -> None:
    z_GV = random_logits(0, N_IDS + 64)
    z_GV[:, N_IDS:] = 100.0
    assert int(rules().constrain(z_GV, b"se", single_line=True).argmax(-1).max()) < N_IDS


def test_text_that_no_token_spells_leaves_the_slot_to_the_other_rules() -> None:
    tokens = embedded_tokens()
    own = GapRules(tokens, BLANK)
    assert own.fitting(b"\xff\xfe", single_line=True).numel(), "byte-level tokens spell every byte"
    assert own.constrain(random_logits(0)[:0], b"self", single_line=True).shape == (0, N_IDS), "no slot is left for it"


@pytest.mark.parametrize("single_line", [True, False])
@pytest.mark.parametrize("required", [b" ", b"self", b"\n    ", b"\r\n\t", "é".encode(), b'"""', b"zzqxjk"])
def test_what_fits_spells_a_beginning_of_the_required_text_or_goes_on_behind_it(
    required: bytes, single_line: bool
) -> None:
    def fits(spelling: bytes) -> bool:
        more = spelling[len(required) :]
        if not spelling.startswith(required):
            return bool(spelling) and required.startswith(spelling)
        return not (single_line and (b"\n" in more or b"\r" in more))

    expected = [index for index, spelling in enumerate(embedded_tokens().spellings) if fits(spelling)]
    assert sorted(rules().fitting(required, single_line).tolist()) == expected
