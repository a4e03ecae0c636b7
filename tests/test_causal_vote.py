"""The encoder's vote on what stands in a gap."""

from __future__ import annotations

import dataclasses
import time

import msgspec
import pytest
import torch

from midspan_engine.canvas import lay_out
from midspan_engine.causal_reader import CausalReader
from midspan_engine.causal_vote import MAX_DRAFT, CausalVote
from midspan_engine.config import InfillConfig
from midspan_engine.errors import EngineError
from midspan_engine.healing import GapRules
from midspan_engine.kv import KVCache
from midspan_engine.left_to_right import LeftToRight
from midspan_engine.order import Task
from midspan_engine.protocol import Draft, Fill
from midspan_engine.repeats import Repeats
from midspan_kernels.row_logits import RowLogits
from tiny_engine import BLANKS, embedded_tokens, fill, tiny_engine, tiny_model

WEIGHT = 0.6
MASK, BLANK, PAD = 4, 5, 0
VOTING = msgspec.structs.replace(BLANKS, causal_weight=WEIGHT, quote_tokens=2)
HEAD = [300, 301, 302]
QUOTED = [MASK, 300, 301, MASK, 30, 31]


class Scene:
    """One row of a canvas in front of a cache of three tokens, with random constrained logits."""

    def __init__(self, seed: int = 0, infill: InfillConfig = VOTING) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.model = tiny_model()
        self.cache = KVCache(self.model.config.n_layers)
        self.model.encode(torch.tensor([[20, 21, 22]]), self.cache)
        self.reader = CausalReader(self.model, self.cache)
        canvas = lay_out([[30, 31], HEAD], [10], 16, hole=MASK, pad=PAD)
        rules = GapRules(embedded_tokens(), BLANK)
        self.order = LeftToRight(Task(canvas, (b"",)), torch.full((1, 10), MASK), rules, infill)
        self.vote = CausalVote(infill, rules, self.reader, None, lambda tokens: True, PAD)
        z_1GV = 3 * torch.randn(1, 10, self.model.config.vocab_size, generator=generator)
        self.z = self.order.constrain(RowLogits(z_1GV)).z

    def mixed(self) -> torch.Tensor:
        return self.vote.mix(self.z, self.order)

    def causal(self, ids: list[int]) -> torch.Tensor:
        """The encoder's logits of the token behind `ids`, by a plain pass of its own."""
        cache = KVCache(self.model.config.n_layers)
        hidden = self.model.encode(torch.tensor([[20, 21, 22, *ids]]), cache)
        return self.model.logits(hidden[0, -1])


@torch.inference_mode()
@pytest.mark.parametrize("seed", range(3))
def test_the_next_slot_gets_the_weighted_mean_of_both_log_probabilities(seed: int) -> None:
    scene = Scene(seed)
    mixed = scene.mixed()[0, 0]
    expected = (1 - WEIGHT) * scene.z[0, 0].log_softmax(-1) + WEIGHT * scene.causal(QUOTED).log_softmax(-1)
    allowed = expected.isfinite()
    assert torch.allclose(mixed[allowed], expected[allowed], atol=1e-4)
    assert (mixed[~allowed] == -torch.inf).all()


@torch.inference_mode()
@pytest.mark.parametrize("seed", range(5))
def test_no_slot_behind_a_disagreement_is_certain_enough_to_be_committed(seed: int) -> None:
    scene = Scene(seed)
    mixed = scene.mixed()[0]
    draft, voted = scene.z[0].argmax(-1).tolist(), mixed.argmax(-1).tolist()
    parted = next((slot for slot, (a, b) in enumerate(zip(draft, voted, strict=True)) if a != b), MAX_DRAFT)
    confidence = mixed.softmax(-1).amax(-1)
    assert (confidence[parted + 1 :] < BLANKS.commit_confidence).all()


@torch.inference_mode()
def test_a_vote_leaves_the_context_as_it_was() -> None:
    scene = Scene(1)
    first = scene.mixed()
    assert scene.cache.length == 3
    assert torch.allclose(first, scene.mixed(), atol=1e-5)


@torch.inference_mode()
@pytest.mark.parametrize("start", [1, 3])
def test_a_list_read_after_another_gives_what_a_reader_of_its_own_gives(start: int) -> None:
    scene, fresh = Scene(), Scene()
    for ids in ([40, 41, 42, 43], [40, 41, 50, 51, 52], [40, 41, 50, 51], [60, 61, 62, 63]):
        assert torch.allclose(scene.reader.logits(ids, start), Scene().reader.logits(ids, start), atol=1e-4)
    assert scene.cache.length == fresh.cache.length


@torch.inference_mode()
def test_the_encoder_alone_commits_what_it_is_sure_of_and_stops_in_doubt() -> None:
    sure = Scene(infill=msgspec.structs.replace(VOTING, sure_confidence=1e-9))
    sure.vote.run_ahead(sure.order, lambda: False)
    assert sure.order.is_done
    first = sure.order.slots_BG[0, 0]
    allowed = sure.vote._rules.constrain(sure.causal(QUOTED)[None], b"", True)[0]
    assert first == allowed.argmax()
    assert float(sure.order.confidence_BG[0, 0]) == pytest.approx(float(allowed.softmax(-1).max()), abs=1e-4)
    doubtful = Scene(infill=msgspec.structs.replace(VOTING, sure_confidence=1.0))
    doubtful.vote.run_ahead(doubtful.order, lambda: False)
    assert not doubtful.order.known_BG.any()


@torch.inference_mode()
def test_typed_text_is_certain_and_the_token_in_which_it_ends_is_weighed_anew_given_that() -> None:
    scene = Scene(infill=msgspec.structs.replace(VOTING, sure_confidence=1e-9))
    spellings = embedded_tokens().spellings
    given, half, behind = map(spellings.index, (b"self", b"append", b"("))
    for token in (given, half, behind):
        scene.order.commit(0, 0, token, 0.01)
    required = b"selfapp"
    scene.order.go_on(dataclasses.replace(scene.order.task, required=(required,)))
    assert scene.order.confidence_BG[0, 0] == 1
    assert scene.order.committed(0, 0) == [given, half, behind]
    expected = scene.vote._rules.constrain(scene.causal([*QUOTED, given])[None], b"app", True).softmax(-1)[0, half]
    scene.vote.run_ahead(scene.order, lambda: False)
    assert float(scene.order.confidence_BG[0, 1]) == pytest.approx(float(expected), abs=1e-4)
    assert float(scene.order.confidence_BG[0, 2]) == pytest.approx(0.01)


@torch.inference_mode()
def test_a_cancelled_fill_commits_nothing_more() -> None:
    scene = Scene(infill=msgspec.structs.replace(VOTING, sure_confidence=1e-9))
    scene.vote.run_ahead(scene.order, lambda: True)
    assert not scene.order.known_BG.any()


@pytest.mark.parametrize("prefix", ["x = self.na", "def f(a):\n    return ", "items = ["])
@pytest.mark.parametrize("sure", [1e-9, None])
def test_a_fill_with_a_vote_keeps_the_rules_of_its_gap(prefix: str, sure: float | None) -> None:
    infill = msgspec.structs.replace(VOTING, sure_confidence=sure)
    filled = fill(tiny_engine(infill), prefix, "\ny = 2\n", n_candidates=2)
    for candidate in filled.candidates:
        assert "\n" not in candidate.text
        assert 0 <= candidate.confidence <= 1


@torch.inference_mode()
def test_what_the_document_repeats_is_mixed_into_the_vote() -> None:
    infill = msgspec.structs.replace(VOTING, sure_confidence=0.5)
    scene = Scene(infill=infill)
    repeats = Repeats([31, 200, 201, 20, 31], [300, 301], end=BLANK, breaks=frozenset(), weights=(0.9,))
    rules = GapRules(embedded_tokens(), BLANK)
    CausalVote(infill, rules, scene.reader, lambda between, following: repeats, lambda tokens: True, PAD).run_ahead(
        scene.order, lambda: False
    )
    assert scene.order.slots_BG[0, :2].tolist() == [200, 201]


def test_two_gaps_are_filled_with_the_vote_too() -> None:
    infill = msgspec.structs.replace(VOTING, sure_confidence=1e-9, gap_tokens=6)
    filled = fill(tiny_engine(infill), "x = foo(", ", b=", ")\n", n_candidates=1)
    assert all(len(candidate.gaps) == 2 for candidate in filled.candidates)


def test_every_pass_of_the_encoder_is_shown_and_a_passed_deadline_ends_it() -> None:
    engine = tiny_engine(msgspec.structs.replace(VOTING, sure_confidence=1e-9))
    drafts: list[Draft] = []
    request = Fill(id=1, document="a.py", parts=("x = f(", ")\ny = 2\n"), max_tokens=6)
    filled = engine.fill(request, received=time.perf_counter(), is_cancelled=lambda: False, on_draft=drafts.append)
    assert len(drafts) == filled.stats.encoder_steps > 0
    assert filled.stats.steps == 0
    late = fill(engine, "x = f(", ")\ny = 2\n", deadline_ms=0.0)
    assert (late.stats.encoder_steps, late.stats.steps) == (0, 1)


def test_weights_without_numbers_are_told_of() -> None:
    model = tiny_model.__wrapped__(seed=3)
    model.norm.weight.fill_(torch.nan)
    with pytest.raises(EngineError, match="damaged"):
        fill(tiny_engine(msgspec.structs.replace(VOTING, sure_confidence=0.5), model=model), "x = f(", ")\n")


@torch.inference_mode()
@pytest.mark.parametrize(("least", "is_read"), [(0.0, True), (0.9999, False)])
def test_rivals_that_nobody_would_be_shown_are_not_read(least: float, is_read: bool) -> None:
    scene = Scene(infill=msgspec.structs.replace(VOTING, sure_confidence=1e-9, rival_passes=8))
    scene.vote.run_ahead(scene.order, lambda: False)
    scene.order.go_on(dataclasses.replace(scene.order.task, min_probability=least))
    passes: list[None] = []
    scene.vote.seek_rival(scene.order, lambda: False, lambda: passes.append(None))
    assert bool(passes) == is_read


def test_a_text_that_would_add_nothing_is_no_rival() -> None:
    vote, p_V = Scene().vote, torch.full((4096,), 0.5)
    token = embedded_tokens().spellings.index(b"self")
    assert vote._going_on(p_V.clone(), [], b"")[BLANK] == 0
    assert vote._going_on(p_V.clone(), [token], b"self")[BLANK] == 0
    assert vote._going_on(p_V.clone(), [token], b"sel")[BLANK] == 0.5
