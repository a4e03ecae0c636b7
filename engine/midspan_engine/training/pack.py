"""Packed token files: what the training loop reads.

A split is `NAME.bin`, all its documents as little-endian uint16 ids one after the other, each starting with `<bos>` and
nothing else between them; it is read with `np.memmap`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

import msgspec
import numpy as np
from rich.progress import Progress
from tokenizers import Tokenizer

from midspan_engine.training.vocabulary import SPECIAL_TOKENS

BOS = SPECIAL_TOKENS.index("<bos>")
BATCH_FILES = 256
"""Files a batch: enough to keep every core busy, few enough that memory stays in the tens of megabytes."""


class PackReport(msgspec.Struct, frozen=True):
    """Size of one packed split."""

    n_documents: int
    n_tokens: int
    n_characters: int


def pack(
    texts: Iterable[str], tokenizer: Tokenizer, folder: Path, name: str, *, total: int | None = None
) -> PackReport:
    """Write `folder/NAME.bin`; `total`, the number of texts, is for the progress bar only.

    It is written under a temporary name and renamed at the end, so a reader never sees half of a split.
    """
    assert tokenizer.get_vocab_size() <= 1 << 16, "ids are stored as uint16"
    folder.mkdir(parents=True, exist_ok=True)
    tokens_path = folder / f"{name}.bin"
    unfinished = tokens_path.with_suffix(".bin.part")
    n_documents = n_tokens = n_characters = 0
    with unfinished.open("wb") as target, Progress() as progress:
        task = progress.add_task(f"pack {name}", total=total)
        for batch in _batches(texts, BATCH_FILES):
            for encoding in tokenizer.encode_batch_fast(batch, add_special_tokens=False):
                document = np.array([BOS, *encoding.ids], dtype="<u2")
                n_documents += 1
                n_tokens += len(document)
                document.tofile(target)
            n_characters += sum(map(len, batch))
            progress.advance(task, len(batch))
    unfinished.replace(tokens_path)
    return PackReport(n_documents, n_tokens, n_characters)


def _batches(texts: Iterable[str], size: int) -> Iterator[list[str]]:
    iterator = iter(texts)
    while batch := list(islice(iterator, size)):
        yield batch
