"""The reference sampler equals a seeded generate() of transformers, token for token and step for step."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest
import torch

from midspan_engine.accept import entropy_bound, is_settled, temperature
from midspan_engine.config import GenerationConfig
from midspan_engine.generate import generate
from midspan_kernels.row_statistics import row_statistics
from oracle import SHAPES, Pair, build_pair, reference_generate

# transformers' generate() imports the compiler, which still uses what torch itself deprecates.
pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")

GENERATION = GenerationConfig(max_denoising_steps=24, eos_token_ids=())
N_PROMPT = 11

# One that hardly ever settles, one that settles within a few steps, one whose window is narrower than its canvas.
SAMPLED = {
    "restless": SHAPES["plain"],
    "settling": replace(SHAPES["plain"], branch_gain=0.5),
    "narrow": replace(SHAPES["narrow window"], branch_gain=0.4),
}


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Pair]:
    return {name: build_pair(tmp_path_factory.mktemp("checkpoint"), shape) for name, shape in SAMPLED.items()}


def sample_both(
    pair: Pair, generation: GenerationConfig, n_canvases: int, seed: int
) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """Returns new ids and drafts after asserting that both implementations agree on them and draw as many numbers."""
    prompt = torch.randint(pair.shape.vocab - 3, (1, N_PROMPT), generator=torch.Generator().manual_seed(seed))
    n_tokens = n_canvases * pair.shape.canvas
    expected, their_drafts = reference_generate(pair.reference, prompt, generation, n_tokens, seed)
    their_state = torch.get_rng_state()
    drafts: list[torch.Tensor] = []
    generator = torch.Generator().manual_seed(seed)
    ids = generate(pair.own, prompt, generation, n_tokens, generator, drafts.append)
    assert torch.equal(ids, expected)
    assert len(drafts) == len(their_drafts)
    assert all(torch.equal(own, theirs) for own, theirs in zip(drafts, their_drafts, strict=True))
    # Compared by the next number: the global generator's state is laid out differently.
    again = torch.Generator()
    again.set_state(their_state)
    assert torch.equal(torch.rand(1, generator=generator), torch.rand(1, generator=again))
    return ids[:, N_PROMPT:], drafts


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", SAMPLED)
def test_seeded_sampling_of_two_canvases_is_token_identical(pairs: dict[str, Pair], name: str, seed: int) -> None:
    new, drafts = sample_both(pairs[name], GENERATION, n_canvases=2, seed=seed)
    assert new.shape[1] == 2 * pairs[name].shape.canvas
    assert len(drafts) > 2, "several steps a canvas, or this proves little"


@pytest.mark.parametrize("stability", [0, 1, 2])
def test_the_stop_rule_fires_as_early_as_in_the_reference(pairs: dict[str, Pair], stability: int) -> None:
    generation = msgspec.structs.replace(GENERATION, stability_threshold=stability)
    _, drafts = sample_both(pairs["settling"], generation, n_canvases=1, seed=0)
    assert stability < len(drafts) < generation.max_denoising_steps, "the rule really fired"
    assert all(torch.equal(draft, drafts[-1]) for draft in drafts[-1 - stability :])


def test_without_settling_all_steps_are_taken(pairs: dict[str, Pair]) -> None:
    generation = msgspec.structs.replace(GENERATION, max_denoising_steps=5)
    _, drafts = sample_both(pairs["restless"], generation, n_canvases=1, seed=0)
    assert len(drafts) == generation.max_denoising_steps


@pytest.mark.parametrize("canvas", [0, 1])
def test_an_end_token_ends_the_text_and_pads_the_rest_of_its_canvas(pairs: dict[str, Pair], canvas: int) -> None:
    pair = pairs["settling"]
    size = pair.shape.canvas
    free, _ = sample_both(pair, GENERATION, n_canvases=3, seed=1)
    # An end token that this seed is known to write in the middle of the wanted canvas, and nowhere before.
    slot = next(i for i in range(canvas * size + 3, (canvas + 1) * size - 3) if free[0, i] not in free[0, :i])
    generation = msgspec.structs.replace(
        GENERATION, eos_token_ids=(int(free[0, slot]), pair.shape.vocab), pad_token_id=7
    )
    new, _ = sample_both(pair, generation, n_canvases=3, seed=1)
    assert new.shape[1] == (canvas + 1) * size, "no canvas follows the one that holds the end"
    assert torch.equal(new[0, : slot + 1], free[0, : slot + 1])
    assert (new[0, slot + 1 :] == generation.pad_token_id).all()


def test_length_is_rounded_up_to_whole_canvases(pairs: dict[str, Pair]) -> None:
    pair = pairs["settling"]
    prompt = torch.arange(N_PROMPT)[None]
    ids = generate(pair.own, prompt, GENERATION, pair.shape.canvas + 1, torch.Generator().manual_seed(0))
    assert ids.shape[1] == N_PROMPT + 2 * pair.shape.canvas


def test_the_same_seed_gives_the_same_text_and_another_seed_another(pairs: dict[str, Pair]) -> None:
    pair, prompt = pairs["restless"], torch.arange(N_PROMPT)[None]
    one, same, other = (
        generate(pair.own, prompt, GENERATION, 1, torch.Generator().manual_seed(seed)) for seed in (5, 5, 6)
    )
    assert torch.equal(one, same)
    assert not torch.equal(one, other)


def test_entropy_bound_accepts_while_the_more_certain_slots_stay_within_it() -> None:
    entropy = torch.tensor([[0.05, 0.001, 2.0, 0.04, 0.02], [3.0, 4.0, 5.0, 6.0, 7.0]])
    # Ascending in the first row 0.001, 0.02, 0.04, 0.05, 2: the sums before each are 0, 0.001, 0.021, 0.061, 0.111.
    assert entropy_bound(entropy, 0.1).tolist() == [
        [True, True, False, True, True],
        [True, False, False, False, False],
    ]
    assert entropy_bound(torch.zeros(1, 3), 0.1).all()


def test_temperature_falls_in_a_line_that_ends_above_its_minimum() -> None:
    generation = GenerationConfig(max_denoising_steps=48)
    assert temperature(generation, 48).item() == pytest.approx(0.8)
    assert temperature(generation, 1).item() == pytest.approx(0.4 + 0.4 / 48)


def test_a_canvas_settles_only_when_stable_and_certain() -> None:
    one, other = torch.tensor([[1, 2]]), torch.tensor([[1, 3]])
    certain, doubtful = torch.tensor([[0.001, 0.002]]), torch.tensor([[0.001, 0.02]])
    generation = GenerationConfig(stability_threshold=1)
    assert is_settled([other, one, one], certain, generation)
    assert not is_settled([one, one, other], certain, generation)
    assert not is_settled([one, one], doubtful, generation)
    assert not is_settled([one], certain, generation)
    assert is_settled([one], certain, msgspec.structs.replace(generation, stability_threshold=0))


def test_row_statistics_equal_those_of_a_categorical_distribution() -> None:
    logits = torch.randn(3, 70, 40_000, generator=torch.Generator().manual_seed(0)) * 8
    logits[0, 0, 1:] = -torch.inf
    expected = torch.distributions.Categorical(logits=logits.view(-1, 40_000)[::7])
    statistics = row_statistics(logits.view(-1, 40_000)[::7])
    assert torch.equal(statistics.entropy, expected.entropy())
    assert torch.equal(statistics.argmax, expected.logits.argmax(-1))
    assert torch.allclose(statistics.confidence, expected.probs.amax(-1), atol=1e-6)


def test_row_statistics_keep_the_shape_of_the_rows_however_they_are_tiled(monkeypatch: pytest.MonkeyPatch) -> None:
    logits = torch.randn(2, 5, 33, generator=torch.Generator().manual_seed(0))
    whole = row_statistics(logits)
    monkeypatch.setattr("midspan_kernels.row_statistics._TILE_ELEMENTS", 70)
    tiled = row_statistics(logits)
    for one, other in zip(whole, tiled, strict=True):
        assert one.shape == (2, 5)
        assert torch.equal(one, other)


def test_bf16_logits_get_fp32_statistics() -> None:
    logits = torch.randn(4, 100, generator=torch.Generator().manual_seed(0)).bfloat16()
    statistics = row_statistics(logits)
    assert statistics.entropy.dtype == statistics.confidence.dtype == torch.float32
    assert torch.equal(statistics.entropy, row_statistics(logits.float()).entropy)
