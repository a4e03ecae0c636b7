"""A checkpoint's tokenizer, seen as bytes: what each id spells, and where a prefix may safely be cut."""

from __future__ import annotations

import re
from array import array
from functools import lru_cache
from pathlib import Path

import msgspec
from tokenizers import Regex, Tokenizer
from tokenizers.pre_tokenizers import PreTokenizer, Split

from midspan_engine.errors import CheckpointError

_REACH = 32
"""Pieces looked at to find one that stays: more than a dunder name of ordinary code has words."""
_CONTINUATIONS = ("__", "a__", '"', '""', "'", "''", "a", "0", " ", "\n")
"""What may be typed next; each joins to the pieces before it in its own way, the quotes as those of a docstring."""
_STRETCH = 1024
"""Characters of a stretch of a long text at least: a key has so many tokenised, and a few lines more. Chosen."""
_N_STRETCHES = 512
"""Stretches whose tokens are kept, about 3 KB each: those of the longest prefixes of 32 documents."""
_END_OF_WORD = re.compile(r"(?<=[^\W_])(?=\r?\n)")
"""Where a line ends with a letter or a digit: splitters join line breaks to punctuation and blanks, never to words."""
_BYTE_FALLBACK = re.compile(r"<0x([0-9A-F]{2})>")


class Tokens:
    """Encodes and decodes text without ever turning user text into a special id."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        tokenizer.encode_special_tokens = True
        self._tokenizer = tokenizer
        layout = msgspec.json.decode(tokenizer.to_str())
        added = {token["id"]: token for token in layout["added_tokens"]}
        is_byte_level = (layout.get("decoder") or {}).get("type") == "ByteLevel"
        spell = _spell_byte_level if is_byte_level else _spell_metaspace
        vocabulary = tokenizer.get_vocab(with_added_tokens=True)
        self.spellings: list[bytes] = [b""] * (1 + max(vocabulary.values()))
        """The bytes of each id; empty for special ids."""
        for token, index in vocabulary.items():
            if index not in added:
                self.spellings[index] = spell(token)
            elif not added[index]["special"]:
                self.spellings[index] = token.encode()  # added tokens are written as they are
        self.specials = {token["content"]: index for index, token in added.items() if token["special"]}
        """Ids of the special tokens by what they are called."""
        self._pieces = _piece_splitter(layout.get("pre_tokenizer"))
        self._of_stretch = lru_cache(_N_STRETCHES)(lambda stretch: array("i", self.encode(stretch)))
        self.bos_token_id: int | None = vocabulary.get("<bos>")
        self.eos_token_id: int | None = vocabulary.get("<eos>")
        self.pad_token_id: int | None = vocabulary.get("<pad>")

    @classmethod
    def load(cls, path: Path) -> Tokens:
        """Reads a tokenizer.json. Raises CheckpointError when it is missing or unusable."""
        try:
            return cls(Tokenizer.from_file(str(path)))
        except Exception as error:  # the library raises bare Exception for any fault of the file
            raise CheckpointError(f"{path} is missing or no tokenizer: {error}") from error

    @property
    def n_ids(self) -> int:
        """The size of the vocabulary."""
        return len(self.spellings)

    def encode(self, text: str) -> list[int]:
        """Returns the ids of `text`; no special id is ever among them."""
        return list(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def encode_long(self, text: str) -> list[int]:
        """Returns what `encode` does, and keeps all but the end of it: a key costs the same in a text of any length.

        Merges never leave a piece, so a text may be cut where pieces meet.
        """
        if self._pieces is None:
            return self.encode(text)
        ids: list[int] = []
        start = 0
        while (end := _END_OF_WORD.search(text, start + _STRETCH)) is not None:
            ids += self._of_stretch(text[start : end.start()])
            start = end.start()
        return ids + self.encode(text[start:])

    def encode_markers(self, text: str) -> list[int]:
        """Returns the ids of text that is not a user's: the names of special tokens in it stand for them."""
        names = "|".join(map(re.escape, sorted(self.specials, key=len, reverse=True)))
        ids: list[int] = []
        for part in re.split(f"({names})", text) if names else [text]:
            ids += [self.specials[part]] if part in self.specials else self.encode(part)
        return ids

    def decode(self, ids: list[int]) -> str:
        """Returns the text of `ids`; special ids spell nothing, broken UTF-8 becomes U+FFFD."""
        return b"".join([self.spellings[index] for index in ids]).decode("utf-8", errors="replace")

    def piece_starts(self, text: str) -> list[int]:
        """Returns where the pieces of `text` start, in characters: places that merges never cross."""
        if self._pieces is None:
            return [start for start, _ in self._tokenizer.encode(text, add_special_tokens=False).offsets]
        return [span[0] for _, span in self._pieces.pre_tokenize_str(text)]

    def healing_point(self, prefix: str) -> int:
        """Returns where the last piece of `prefix` starts, in characters; trailing white space is such a piece too.

        The text before it keeps its tokens whatever is typed behind the prefix; the piece itself must be generated
        again. Source: token healing, without which exact match fell from 34 to 14 % on a public model.

        Mostly that is the last piece as it stands. A few joins reach further back (`__init` becomes one piece with the
        underscores that close it), so the cut is the last one that none of `_CONTINUATIONS` moves, nor the cut itself
        (a run of blanks leaves its last one to the word that follows).
        """
        if not prefix:
            return 0
        line = _line_break_before_text(prefix)
        starts = [line + start for start in self.piece_starts(prefix[line:])][-_REACH:]
        first = starts[0]
        n_kept = len(starts)
        for continuation in _CONTINUATIONS:
            n_kept = self._n_staying(starts[:n_kept], prefix[first:] + continuation)
        while n_kept > 1 and self._n_staying(starts[: n_kept - 1], prefix[first : starts[n_kept - 1]]) < n_kept - 1:
            n_kept -= 1
        return starts[n_kept - 1]

    def _n_staying(self, starts: list[int], text: str) -> int:
        """Returns how many leading pieces of `text`, which begins at starts[0], start where `starts` says."""
        found = self.piece_starts(text)
        stays = [start - starts[0] == own for start, own in zip(starts, found, strict=False)]
        return stays.index(False) if False in stays else len(stays)


def _line_break_before_text(prefix: str) -> int:
    """Returns where the line breaks before the last line with text begin: merges never cross that place."""
    line = prefix.rstrip().rfind("\n")
    while line > 0 and prefix[line - 1] in "\r\n":
        line -= 1
    return max(0, line)


def _piece_splitter(layout: dict[str, object] | None) -> PreTokenizer | None:
    """Rebuilds the splitting step of a byte-level pre-tokenizer, whose offsets are in characters of the text."""
    steps = layout.get("pretokenizers", [layout]) if layout else []
    assert isinstance(steps, list)
    for step in steps:
        if step and step.get("type") == "Split" and "Regex" in step["pattern"]:
            return Split(Regex(step["pattern"]["Regex"]), behavior=step["behavior"].lower(), invert=step["invert"])
    return None


def _byte_alphabet() -> dict[str, int]:
    """Returns the printable stand-ins that byte-level BPE writes for the 256 bytes."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + rank): byte for rank, byte in enumerate(others)}


_ALPHABET = _byte_alphabet()


def _spell_byte_level(token: str) -> bytes:
    return bytes(_ALPHABET[char] for char in token)


def _spell_metaspace(token: str) -> bytes:
    fallback = _BYTE_FALLBACK.fullmatch(token)
    return bytes([int(fallback[1], 16)]) if fallback else token.replace("\u2581", " ").encode()
