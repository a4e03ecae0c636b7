"""The canvas: pinned tokens with gaps between them, laid out in a fixed number of slots."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from midspan_engine.errors import InputError


@dataclass(frozen=True, slots=True)
class Canvas:
    """One row of slots. `ids` holds pinned tokens, and `hole` in the slots of the gaps."""

    ids: tuple[int, ...]
    gaps: tuple[range, ...]
    """The slots of each gap, from left to right; all other slots are pinned."""

    @property
    def gap_slots(self) -> list[int]:
        """All slots that are denoised."""
        return [slot for gap in self.gaps for slot in gap]


def lay_out(parts: Sequence[Sequence[int]], gap_sizes: Sequence[int], n_slots: int, *, hole: int, pad: int) -> Canvas:
    """Lays pinned token parts and the gaps between them from slot 0 on, cuts the last part to fit, pads the rest.

    `parts` holds one part more than `gap_sizes`. Raises InputError when the gaps and the parts before the last do not
    fit into `n_slots`.
    """
    assert len(parts) == len(gap_sizes) + 1, "one gap lies between each two parts"
    ids: list[int] = list(parts[0])
    gaps: list[range] = []
    for size, part in zip(gap_sizes, parts[1:], strict=True):
        gaps.append(range(len(ids), len(ids) + size))
        ids += [hole] * size
        ids += part
    if gaps and gaps[-1].stop > n_slots:
        raise InputError(
            f"the gaps and the text between them need {gaps[-1].stop} slots, the canvas has {n_slots}: "
            "ask for fewer tokens or fewer gaps at once"
        )
    ids = ids[:n_slots]
    return Canvas(tuple(ids + [pad] * (n_slots - len(ids))), tuple(gaps))
