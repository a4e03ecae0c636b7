"""The processes that share a run, as one of them sees them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.distributed as dist


@dataclass(frozen=True, slots=True)
class Peers:
    """Rank of this process among `n`; a process alone meets nobody, and its device may be an accelerator."""

    rank: int = 0
    n: int = 1

    def add_up(self, tensor: torch.Tensor) -> None:
        """Replaces a tensor by the sum over all processes."""
        if self.n > 1:
            dist.all_reduce(tensor)

    def send(self, tensor: torch.Tensor, owner: int) -> None:
        """Replaces a tensor by that of one process."""
        if self.n > 1:
            dist.broadcast(tensor, owner)

    def wait(self) -> None:
        """Returns when all processes are here."""
        if self.n > 1:
            dist.barrier()


@contextmanager
def meet(rank: int, n_processes: int, port: int) -> Iterator[Peers]:
    """Meets the other processes at a local port and leaves them at the end."""
    if n_processes == 1:
        yield Peers()
        return
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=n_processes)
    yield Peers(rank, n_processes)
    dist.destroy_process_group()
