"""Whether the scales of a packed matrix fit it, told by the headers alone: before gigabytes are read, not after.

A matrix is [.., O, I], as in `midspan_kernels.packed`; the dimension in front is that of fused experts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from midspan_engine.formats.tensor_file import PLAIN_TYPES, Entry

_FP4_GROUP = 16
"""Weights that share a scale. Source: NVFP4's definition."""
_SHAPE_TYPES = {"I32", "I64"}
"""Of the shape that compressed-tensors writes beside its codes."""

Shape = tuple[int, ...]


def misfit(entries: Mapping[str, Entry], codes: str, shape: Shape) -> str | None:
    """Returns what does not fit among the tensors, by ending, of a packed matrix, None when all do."""
    if len(shape) not in (2, 3):
        return f"the shape {list(shape)}, which is no matrix's"
    n_outputs, n_inputs = shape[-2:]
    is_fp4 = entries[codes].dtype == "U8"
    for ending, entry in entries.items():
        own = _of_matrix(entry, shape)
        match ending:
            case "_scale" if is_fp4:
                fits = entry.dtype == "F8_E4M3" and own == (n_outputs, n_inputs / _FP4_GROUP)
            case "_scale":
                fits = entry.dtype in PLAIN_TYPES and n_groups(entry, shape) is not None
            case "_scale_2" | "_global_scale":
                fits = entry.dtype in PLAIN_TYPES and math.prod(own) == 1
            case "_zero_point":
                n_words = math.ceil(n_outputs * entries[codes].shape[-1] / n_inputs)  # as many codes to a word
                fits = entry.dtype == "I32" and own == (n_words, n_groups(entries["_scale"], shape))
            case "_shape":
                fits = entry.dtype in _SHAPE_TYPES
            case _:
                continue
        if not fits:
            what = "are no scales of rows or groups" if ending == "_scale" else "do not fit"
            return f"{ending} {entry.dtype} {list(entry.shape)}, which {what} of its {list(shape)}"
    return None


def n_groups(entry: Entry, shape: Shape) -> int | None:
    """Returns into how many groups scales cut a row of a matrix, None when they are not of its rows."""
    own = _of_matrix(entry, shape)
    if math.prod(own) == 1:
        return 1
    n_rows, n = (*own, 1) if len(own) == 1 else own if len(own) == 2 else (0, 0)
    return n if n_rows == shape[-2] and n and shape[-1] % n == 0 else None


def _of_matrix(entry: Entry, shape: Shape) -> Shape:
    """Returns the shape of what a tensor says of one matrix: of an expert where it has their dimension."""
    experts = shape[:-2]
    is_shared = math.prod(entry.shape) == 1 or entry.shape[: len(experts)] != experts
    return entry.shape if is_shared else entry.shape[len(experts) :]
