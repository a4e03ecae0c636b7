"""What a canvas draws: as the reference does, in turn; on an accelerator counted, from the same distributions."""

from __future__ import annotations

import math

import pytest
import torch

from midspan_engine.sampler import Counted, InTurn, Sampler, sampler_for
from midspan_kernels.choice import VARIABLE
from midspan_kernels.row_logits import RowLogits
from tiny_engine import BLANKS, REFERENCE

CPU = torch.device("cpu")
N_ROWS, N_SLOTS = 3, 40
both = pytest.mark.parametrize("kind", [InTurn, Counted])


def chi_square(drawn: torch.Tensor, p_V: torch.Tensor) -> float:
    """Returns by how many standard deviations the counts of tokens are off, by Wilson and Hilferty's approximation."""
    expected_V = p_V * drawn.numel()
    assert expected_V.min() > 20, "too few draws to judge"
    counts_V = torch.bincount(drawn.flatten(), minlength=len(p_V))
    n_free = len(p_V) - 1
    square = float(((counts_V - expected_V) ** 2 / expected_V).sum())
    return ((square / n_free) ** (1 / 3) - 1 + 2 / (9 * n_free)) / math.sqrt(2 / (9 * n_free))


def drawn(sampler: Sampler, z_V: torch.Tensor, n_steps: int) -> torch.Tensor:
    logits = RowLogits(z_V.expand(N_ROWS, N_SLOTS, -1))
    return torch.stack([sampler.draw(logits, step)[1] for step in range(1, n_steps + 1)])


@both
@pytest.mark.parametrize("seed", [0, 1, 2**40 - 1])
def test_tokens_are_drawn_as_often_as_they_are_probable(kind: type[Sampler], seed: int) -> None:
    z_V = torch.tensor([1.5, -0.5, 0.0, 2.0, -1.0, 0.7, 1.0])
    tokens = drawn(kind(seed, REFERENCE, 7, CPU), z_V, 40)
    assert abs(chi_square(tokens, z_V.softmax(-1))) < 3.5


@both
@pytest.mark.parametrize("seed", [0, 1, 2**40 - 1])
def test_noise_is_uniform(kind: type[Sampler], seed: int) -> None:
    sampler = kind(seed, REFERENCE, 11, CPU)
    noise = torch.stack([sampler.noise((N_ROWS, N_SLOTS), step) for step in range(40)])
    assert abs(chi_square(noise, torch.full((11,), 1 / 11))) < 3.5


def test_counted_draws_of_neighbouring_seeds_steps_rows_and_slots_have_nothing_in_common() -> None:
    z_V, n_tokens = torch.zeros(6), 6
    samplers = [Counted(seed, REFERENCE, n_tokens, CPU) for seed in range(4)]
    tokens = torch.stack([drawn(sampler, z_V, 12) for sampler in samplers])
    noise = torch.stack(
        [torch.stack([sampler.noise((N_ROWS, N_SLOTS), step) for step in range(1, 13)]) for sampler in samplers]
    )
    pairs = {
        f"dimension {dim}": (tokens.narrow(dim, 1, n - 1), tokens.narrow(dim, 0, n - 1))
        for dim, n in enumerate(tokens.shape)
    }
    for between, (one, other) in {**pairs, "draw and noise": (tokens, noise)}.items():
        both_tokens = one * n_tokens + other
        assert abs(chi_square(both_tokens, torch.full((n_tokens**2,), n_tokens**-2))) < 3.5, between


def test_what_a_slot_draws_depends_neither_on_rows_beside_it_nor_on_how_many_slots_there_are() -> None:
    z_BGV = 2 * torch.randn(3, 12, 50, generator=torch.Generator().manual_seed(1))
    sampler = Counted(7, REFERENCE, 50, CPU)
    for step in (1, 2):
        statistics, sampled = sampler.draw(RowLogits(z_BGV), step)
        fewer, sampled_fewer = sampler.draw(RowLogits(z_BGV[:1, :5]), step)
        assert torch.equal(sampled[:1, :5], sampled_fewer)
        assert torch.equal(statistics.argmax[:1, :5], fewer.argmax)
        noise, noise_fewer = (sampler.noise(shape, step) for shape in ((3, 12), (1, 5)))
        assert torch.equal(noise[:1, :5], noise_fewer)


@both
def test_mask_noise_is_the_mask_token(kind: type[Sampler]) -> None:
    assert (kind(0, BLANKS, 4096, CPU).noise((2, 3), 1) == torch.full((2, 3), BLANKS.mask_token_id)).all()


@torch.inference_mode()
@pytest.mark.parametrize(("wish", "kind"), [("auto", InTurn), ("reference", InTurn), ("triton", Counted)])
def test_numbers_are_counted_where_kernels_run(wish: str, kind: type[Sampler], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, wish)
    assert type(sampler_for(0, REFERENCE, 4096, CPU)) is kind
