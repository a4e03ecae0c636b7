"""The encoder's vote on drafted tokens."""

from __future__ import annotations

import msgspec
import pytest
import torch

from midspan_engine.canvas import lay_out
from midspan_engine.causal_vote import MAX_DRAFT, CausalVote
from midspan_engine.healing import GapRules
from midspan_engine.kv import KVCache
from midspan_engine.left_to_right import LeftToRight
from midspan_engine.order import Task
from tiny_engine import BLANKS, embedded_tokens, fill, tiny_engine, tiny_model

WEIGHT = 0.6
VOTING = msgspec.structs.replace(BLANKS, causal_weight=WEIGHT)
BLANK = 5


class Scene:
    """One row of a canvas in front of a cache of three tokens, with random constrained logits."""

    def __init__(self, seed: int, *, weight: float = WEIGHT, head: int = 300) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.model = tiny_model()
        self.cache = KVCache(self.model.config.n_layers)
        self.model.encode(torch.tensor([[20, 21, 22]]), self.cache)
        canvas = lay_out([[30, 31], [head]], [10], 16, hole=4, pad=0)
        infill = msgspec.structs.replace(BLANKS, causal_weight=weight)
        noise = torch.full((1, 10), 4)
        self.order = LeftToRight(Task(canvas, (b"",)), noise, GapRules(embedded_tokens(), BLANK), infill)
        self.vote = CausalVote(self.model, embedded_tokens(), infill)
        self.canvas = torch.tensor([canvas.ids])
        logits = 3 * torch.randn(1, 10, self.model.config.vocab_size, generator=generator)
        self.z = self.order.constrain(logits)

    def mixed(self) -> torch.Tensor:
        return self.vote.mix(self.z, self.order, self.canvas, self.cache)

    def causal(self, ids: list[int]) -> torch.Tensor:
        """The encoder's distribution of the token behind `ids`, by a plain pass of its own."""
        cache = KVCache(self.model.config.n_layers)
        hidden = self.model.encode(torch.tensor([[20, 21, 22, *ids]]), cache)
        return self.model.logits(hidden[0, -1]).softmax(-1)


@torch.inference_mode()
@pytest.mark.parametrize("seed", range(3))
def test_the_next_slot_gets_the_weighted_mean_of_both_log_probabilities(seed: int) -> None:
    scene = Scene(seed)
    mixed = scene.mixed()[0, 0]
    causal = scene.causal([30, 31])
    causal[BLANK] = causal[300]
    expected = (1 - WEIGHT) * scene.z[0, 0].log_softmax(-1) + WEIGHT * causal.log()
    allowed = expected.isfinite()
    assert torch.allclose(mixed[allowed], expected[allowed], atol=1e-4)
    assert (mixed[~allowed] == -torch.inf).all()


@torch.inference_mode()
def test_in_front_of_a_line_break_the_blank_gets_what_the_encoder_gives_to_any_line_break() -> None:
    tokens = embedded_tokens()
    breaks = torch.tensor([spelling[:1] in (b"\n", b"\r") for spelling in tokens.spellings])
    scene = Scene(0, head=tokens.encode("\n")[0])
    causal = scene.causal([30, 31])
    expected = (1 - WEIGHT) * scene.z[0, 0].log_softmax(-1)[BLANK] + WEIGHT * causal[breaks].sum().log()
    assert float(scene.mixed()[0, 0, BLANK]) == pytest.approx(float(expected), abs=1e-4)


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
    assert torch.equal(first, scene.mixed())


@pytest.mark.parametrize("prefix", ["x = self.na", "def f(a):\n    return ", "items = ["])
def test_a_fill_with_a_vote_keeps_the_rules_of_its_gap(prefix: str) -> None:
    filled = fill(tiny_engine(VOTING), prefix, "\ny = 2\n", n_candidates=2)
    for candidate in filled.candidates:
        assert "\n" not in candidate.text
        assert 0 <= candidate.confidence <= 1
