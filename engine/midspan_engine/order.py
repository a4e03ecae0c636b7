"""What is denoised, and the order in which its slots are accepted: the part that all orders share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch

from midspan_engine.canvas import Canvas
from midspan_kernels.row_logits import RowLogits


@dataclass(frozen=True, slots=True)
class Task:
    """One canvas to denoise."""

    canvas: Canvas
    required: tuple[bytes, ...]
    """What each gap's text must begin with (token healing)."""
    single_line: bool = True
    n_rows: int = 1
    """Alternatives, denoised side by side."""
    deadline: float = float("inf")
    """`time.perf_counter()` seconds after which no further step begins."""
    seed: int = 0
    min_probability: float = 0.0
    """Product of its tokens' probabilities below which an alternative is of no use to anybody."""


class Order(ABC):
    """The gap slots of B rows on their way; G counts the slots of all gaps. Subclasses decide what a step accepts."""

    def __init__(self, task: Task, noise_BG: torch.Tensor) -> None:
        self.task = task
        self.slots_BG = noise_BG.clone()
        """What the canvas holds in the gap slots."""
        self.known_BG = torch.zeros_like(noise_BG, dtype=torch.bool)
        """Which of them condition on their own token."""
        self.accepted_BG = self.known_BG
        """Which of them belong to the answer if no further step is taken."""
        self.draft_BG = noise_BG.clone()
        """The best guess of each slot."""
        self.confidence_BG = torch.ones_like(noise_BG, dtype=torch.float32)
        """Probability of each slot's token."""
        self.entropy_BG = torch.zeros_like(self.confidence_BG)
        """Nats."""

    @property
    @abstractmethod
    def is_done(self) -> bool:
        """Tells whether no further step is needed."""

    @property
    def is_hopeless(self) -> bool:
        """Tells whether no row can reach the probability asked for any more."""
        return False

    def conclude(self) -> None:  # noqa: B027 - most orders know at once what came of a step
        """Takes what is still under way of the last step, behind which none follows."""

    def go_on(self, task: Task) -> None:
        """Takes a task of the same canvas; what is accepted by now must agree with the text that it requires."""
        self.task = task

    @abstractmethod
    def constrain(self, logits: RowLogits) -> RowLogits:
        """Returns logits [B, G, V] at this step's temperature, forbidden tokens at -inf; may change them in place."""

    @abstractmethod
    def advance(self, logits: RowLogits) -> None:
        """Takes one step's constrained logits."""
