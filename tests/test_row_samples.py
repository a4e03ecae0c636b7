"""Statistics and draws of rows of logits, by the reference."""

from __future__ import annotations

import torch

from midspan_kernels.row_logits import RowLogits
from midspan_kernels.row_samples import row_samples
from midspan_kernels.row_statistics import row_statistics


def rows(n_rows: int, n_tokens: int) -> torch.Tensor:
    z = torch.randn(n_rows, n_tokens, generator=torch.Generator().manual_seed(n_rows)) * 3
    z[:, 1] = -torch.inf
    return z


def test_tokens_are_drawn_as_often_as_they_are_probable() -> None:
    n_draws, n_tokens = 20_000, 6
    z = rows(1, n_tokens)
    p = z[0].softmax(-1)
    drawn = row_samples(RowLogits(z.expand(n_draws, -1)), torch.arange(n_draws)).sample
    share = torch.bincount(drawn, minlength=n_tokens) / n_draws
    assert share[1] == 0
    assert ((share - p).abs() <= 4 * (p * (1 - p) / n_draws).sqrt()).all()  # four standard deviations


def test_a_row_draws_the_same_beside_others_as_alone() -> None:
    z, seed = rows(5, 300), torch.tensor([7, -1, 3, 7, 2**40])
    together = row_samples(RowLogits(z), seed)
    for row in range(5):
        alone = row_samples(RowLogits(z[row : row + 1]), seed[row : row + 1])
        assert alone.sample == together.sample[row]


def test_statistics_are_those_of_the_rows() -> None:
    logits = RowLogits(rows(3, 100), cap=2.0, temperature=0.4)
    found = row_samples(logits, torch.arange(3))
    for name, expected in row_statistics(logits.values())._asdict().items():
        assert torch.equal(getattr(found, name), expected)
