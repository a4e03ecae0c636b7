"""The byte-level BPE vocabulary, cut so that an edit disturbs few pieces.

Text is first cut into pieces and merges never cross a cut:

- a run of line breaks together with the indentation after it, so a line's last token never depends on the next line;
- a dunder name, or one word with at most one leading space and one leading underscore (`snake`, `_case`);
- up to three digits; the quotes of a docstring; up to three ASCII punctuation marks (`):`, `()`, ` ==`), or a longer
  run of one mark;
- a run of blanks, which leaves its last space to the word that follows.

There is no normaliser and every byte is in the alphabet: decoding gives back the text exactly.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from rich.progress import Progress, TaskID
from tokenizers import Regex, Tokenizer
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel, Sequence, Split
from tokenizers.trainers import BpeTrainer

N_IDS = 4096
"""Size of the vocabulary: 3.59 characters a token on held-out packages; twice the ids would give about 10 % more."""

SPECIAL_TOKENS = ("<pad>", "<eos>", "<bos>", "<unk>", "<mask>", "<blank>")
"""Special tokens in id order, from 0. The first five are at the ids of the Gemma tokenizer, `<blank>` is ours."""

SAMPLE_CHARACTERS = 80_000_000
"""Characters of source that the merges are learned from: 20 million give 3.57 characters a token, 80 million 3.59."""

_QUOTES = r"""(?:"{3}|'{3})"""
_MARK = r"!-/:-@\[-\^`{-~"
_PIECE = "|".join(
    (
        r"[\r\n]+[ \t]*",
        r" ?__[a-z]+(?:_[a-z]+)*__",
        r" ?_?\p{L}+",
        r" ?\p{N}{1,3}",
        r" ?([=\-#*~.])\1{3,}",
        rf" ?{_QUOTES}",
        rf" ?(?:(?!{_QUOTES})[{_MARK}]){{1,3}}",
        r" ?_+",
        r"[^\S\r\n]+(?!\S)",
        r"[^\S\r\n]+",
        rf"[^\s\p{{L}}\p{{N}}_{_MARK}]+",
    )
)


def untrained_tokenizer() -> Tokenizer:
    """Return a tokenizer with the pieces of this module and no vocabulary."""
    tokenizer = Tokenizer(BPE())
    tokenizer.pre_tokenizer = Sequence(
        [Split(Regex(_PIECE), behavior="isolated"), ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    tokenizer.decoder = ByteLevelDecoder()
    return tokenizer


def train_vocabulary(
    texts: Iterable[str], target: Path, *, n_ids: int = N_IDS, max_characters: int = SAMPLE_CHARACTERS
) -> Tokenizer:
    """Learn the merges from the first `max_characters` of `texts` and write `tokenizer.json` to the path `target`.

    The texts should come shuffled. Raises ValueError where they are too few for `n_ids` different tokens.
    """
    tokenizer = untrained_tokenizer()
    trainer = BpeTrainer(
        vocab_size=n_ids,
        min_frequency=2,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=sorted(ByteLevel.alphabet()),
        show_progress=False,
    )
    with Progress(transient=True) as progress:
        task = progress.add_task("vocabulary", total=max_characters)
        tokenizer.train_from_iterator(_sample(texts, max_characters, progress, task), trainer)
    if tokenizer.get_vocab_size() != n_ids:
        raise ValueError(
            f"The corpus is too small for {n_ids} tokens (it gives {tokenizer.get_vocab_size()}); add packages to it."
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(target))
    return load_vocabulary(target)


def load_vocabulary(path: Path) -> Tokenizer:
    """Load a `tokenizer.json` so that text such as `<mask>` in a file stays text and never becomes a special token."""
    tokenizer = Tokenizer.from_file(str(path))
    tokenizer.encode_special_tokens = True
    return tokenizer


def _sample(texts: Iterable[str], max_characters: int, progress: Progress, task: TaskID) -> Iterator[str]:
    n_characters = 0
    for text in texts:
        if n_characters >= max_characters:
            return
        n_characters += len(text)
        progress.advance(task, len(text))
        yield text
