"""Statistics and draws of rows of raw logits, by the reference."""

from __future__ import annotations

import torch

from midspan_kernels.row_samples import row_samples
from midspan_kernels.row_statistics import row_statistics

CAP = 30.0


def rows(n_rows: int, n_tokens: int) -> torch.Tensor:
    logits = torch.randn(n_rows, n_tokens, generator=torch.Generator().manual_seed(n_rows)) * 2
    logits[:, 1] = -torch.inf
    return logits


def test_tokens_are_drawn_as_often_as_they_are_probable() -> None:
    n_draws, n_tokens = 20_000, 6
    logits = rows(1, n_tokens)
    p = (torch.tanh(logits[0] / CAP) * CAP / 0.7).masked_fill(logits[0] == -torch.inf, -torch.inf).softmax(-1)
    drawn = row_samples(logits.expand(n_draws, -1), torch.full((n_draws,), 0.7), torch.arange(n_draws), CAP).sample
    share = torch.bincount(drawn, minlength=n_tokens) / n_draws
    assert share[1] == 0
    assert ((share - p).abs() <= 4 * (p * (1 - p) / n_draws).sqrt()).all()  # four standard deviations


def test_a_row_draws_the_same_beside_others_as_alone() -> None:
    logits, temperature, seed = rows(5, 300), torch.linspace(0.4, 0.8, 5), torch.tensor([7, -1, 3, 7, 2**40])
    together = row_samples(logits, temperature, seed, CAP)
    for row in range(5):
        alone = row_samples(*(of_rows[row : row + 1] for of_rows in (logits, temperature, seed)), CAP)
        assert alone.sample == together.sample[row]


def test_statistics_are_those_of_capped_and_divided_logits() -> None:
    logits, temperature = rows(3, 100), torch.tensor([0.4, 0.6, 0.8])
    z = (torch.tanh(logits / CAP) * CAP).masked_fill(logits == -torch.inf, -torch.inf) / temperature[:, None]
    found = row_samples(logits, temperature, torch.arange(3), CAP)
    for name, expected in row_statistics(z)._asdict().items():
        assert torch.equal(getattr(found, name), expected)
    assert torch.equal(found.log_sum_exp, z.logsumexp(-1))
