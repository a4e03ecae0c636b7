"""Muon (or AdamW) on the layers' matrices, AdamW on everything else, over several processes.

Muon's orthogonalisation costs about a tenth of a step here, so each process owns a share of the matrices and sends
the result to the others. Gradients are averaged in one flat message.
"""

from __future__ import annotations

import torch
from torch import nn

from midspan_engine.models.diffusion_gemma import DiffusionGemma
from midspan_engine.training.peers import Peers
from midspan_engine.training.recipe import Schedule

_BETAS = (0.9, 0.95)
_OTHERS = "adam"
"""Marks states that are not those of matrices in a saved state."""


class Optimiser:
    """One optimiser over all trainable parameters of a model; every process holds the same weights after a step."""

    def __init__(self, model: DiffusionGemma, schedule: Schedule, peers: Peers) -> None:
        self._peers, self._world, self._rank = peers, peers.n, peers.rank
        self._parameters = [p for p in model.parameters() if p.requires_grad]
        matrices = [p for name, p in model.named_parameters() if p.requires_grad and _is_matrix(name, p)]
        chosen = {id(p) for p in matrices}
        others = [p for p in self._parameters if id(p) not in chosen]
        # Muon takes 2-D parameters; a stack of experts is seen as its matrices, which share the storage.
        self._views = [(p, [nn.Parameter(m) for m in p.data.view(-1, *p.shape[-2:])]) for p in matrices]
        flat = [view for _, views in self._views for view in views]
        self._owned = [flat[start :: self._world] for start in range(self._world)]
        self._of_matrices = _matrix_optimiser(self._owned[self._rank], schedule)
        self._matrix_kind = schedule.matrix_optimiser
        self._of_others = torch.optim.AdamW(others, lr=schedule.other_lr, betas=_BETAS, weight_decay=0.0)
        self._base = [(self._of_matrices, schedule.matrix_lr), (self._of_others, schedule.other_lr)]

    def step(self, lr_factor: float, max_norm: float) -> None:
        """Averages the gradients, clips their norm, updates, clears the gradients."""
        gradients = [p.grad if p.grad is not None else torch.zeros_like(p) for p in self._parameters]
        flat = torch.cat([g.flatten() for g in gradients])
        self._peers.add_up(flat)
        flat /= self._world
        flat *= min(1.0, max_norm / (float(flat.norm()) + 1e-6))
        for parameter, piece in zip(self._parameters, _split(flat, self._parameters), strict=True):
            parameter.grad = piece.view_as(parameter)
        for parameter, views in self._views:
            assert parameter.grad is not None, "every parameter was just given a gradient"
            for view, gradient in zip(views, parameter.grad.view(-1, *parameter.shape[-2:]), strict=True):
                view.grad = gradient
        for optimiser, lr in self._base:
            for group in optimiser.param_groups:
                group["lr"] = lr * lr_factor
            optimiser.step()
        self._share_matrices()
        for parameter in self._parameters:
            parameter.grad = None

    def _share_matrices(self) -> None:
        if self._world == 1:
            return
        with torch.no_grad():
            for owner, views in enumerate(self._owned):
                flat = torch.cat([view.flatten() for view in views])
                self._peers.send(flat, owner)
                for view, piece in zip(views, _split(flat, views), strict=True):
                    view.copy_(piece.view_as(view))

    def state(self) -> dict[str, torch.Tensor]:
        """Returns this process' state as flat named tensors."""
        return {
            f"{kind}.{index}.{key}": torch.as_tensor(value).cpu()
            for kind, optimiser in ((self._matrix_kind, self._of_matrices), (_OTHERS, self._of_others))
            for index, entries in optimiser.state_dict()["state"].items()
            for key, value in entries.items()
        }

    def load_states(self, states: list[dict[str, torch.Tensor]]) -> None:
        """Takes over what `state` returned in each process of an earlier run, in rank order; their number may differ.

        Matrix i of all belongs to process i modulo their number, so the i-th state of rank r is matrix r + i * number.
        """
        of_matrices: dict[int, dict[str, torch.Tensor]] = {}
        of_others: dict[int, dict[str, torch.Tensor]] = {}
        for rank, tensors in enumerate(states):
            for name, tensor in tensors.items():
                kind, index, key = name.split(".", 2)
                matrix = rank + int(index) * len(states)
                if kind == _OTHERS:
                    of_others.setdefault(int(index), {})[key] = tensor
                elif matrix % self._world == self._rank:
                    of_matrices.setdefault(matrix // self._world, {})[key] = tensor
        for optimiser, state in ((self._of_matrices, of_matrices), (self._of_others, of_others)):
            optimiser.load_state_dict({**optimiser.state_dict(), "state": state})


def _matrix_optimiser(matrices: list[nn.Parameter], schedule: Schedule) -> torch.optim.Optimizer:
    lr, decay = schedule.matrix_lr, schedule.weight_decay
    if schedule.matrix_optimiser == "adamw":
        return torch.optim.AdamW(matrices, lr=lr, betas=_BETAS, weight_decay=decay)
    return torch.optim.Muon(matrices, lr=lr, weight_decay=decay, momentum=0.95, adjust_lr_fn="match_rms_adamw")


def _split(flat: torch.Tensor, like: list[nn.Parameter]) -> list[torch.Tensor]:
    return list(torch.split_with_sizes(flat, [parameter.numel() for parameter in like]))


def _is_matrix(name: str, parameter: torch.Tensor) -> bool:
    return parameter.ndim >= 2 and not name.startswith("embed_tokens") and "router" not in name
