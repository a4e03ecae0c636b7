"""A packed corpus of this project's own files, for the tests of training."""

from __future__ import annotations

from pathlib import Path

import msgspec

from command_line import SOURCE_ROOTS
from midspan_engine.training.pack import pack
from midspan_engine.training.vocabulary import load_vocabulary, train_vocabulary
from tiny_engine import BLANKS

ROOT = Path(__file__).parent.parent
SOURCES = [
    text
    for root in SOURCE_ROOTS
    for path in sorted((ROOT / root).rglob("*.py"))
    if len(text := path.read_text(encoding="utf-8")) > 500 and text.isascii()
]
N_IDS = 600
N_TOKENS, N_SLOTS = 256, 64
INFILL = msgspec.structs.replace(
    BLANKS, prompt_tokens=192, tail_tokens=8, head_tokens=40, gap_tokens=40, quote_tokens=12
)


def pack_own_sources(folder: Path) -> Path:
    """Writes tokenizer.json, train.bin and held.bin into a folder and returns it."""
    train_vocabulary(SOURCES, folder / "tokenizer.json", n_ids=N_IDS)
    tokenizer = load_vocabulary(folder / "tokenizer.json")
    pack(SOURCES[4:], tokenizer, folder, "train")
    pack(SOURCES[:4], tokenizer, folder, "held")
    return folder
