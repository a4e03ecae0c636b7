"""Text comes back to the byte, never turns into special ids, and is cut only where its tokens stay as they are."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tokenizers import AddedToken, Regex, Tokenizer, decoders, normalizers, pre_tokenizers
from tokenizers.models import BPE
from tokenizers.trainers import BpeTrainer

from midspan_engine.errors import CheckpointError
from midspan_engine.tokens import Tokens
from served_checkpoint import CHECKPOINT
from tiny_engine import embedded_tokens

SPECIAL = ("<pad>", "<eos>", "<bos>", "<unk>", "<mask>", "<blank>")
SOURCES = [path.read_text(encoding="utf-8") for path in sorted(Path(__file__).parent.glob("test_*.py"))]

any_text = st.text(st.characters(exclude_categories=["Cs"]))
_FRAGMENTS = (
    *("self", ".", "x", "_", "__", "init", "(", ")", "((", ")):", "=", "==", "====", "---", "#", ",", "{", "\\", "a_b"),
    *('"', "'", '"""', "'''", " ", "  ", "    ", "\t", "\n", "\r\n", "\r", "\n\n    ", "\x0c", "\u2028"),
    *("1", "23", "4567", "é", "日本", "😀", "A", "def ", "return", "<mask>"),
)
code = st.lists(st.sampled_from(_FRAGMENTS), max_size=14).map("".join)


@pytest.fixture(scope="module")
def metaspace() -> Tokens:
    """A tokenizer in the manner of SentencePiece: blanks are letters, unknown characters fall back to bytes."""
    tokenizer = Tokenizer(BPE(byte_fallback=True, unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never")
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    specials = [*SPECIAL, *(f"<0x{byte:02X}>" for byte in range(256))]
    trainer = BpeTrainer(vocab_size=900, special_tokens=specials, limit_alphabet=100, show_progress=False)
    tokenizer.train_from_iterator(SOURCES, trainer)
    layout = json.loads(tokenizer.to_str())
    # The bytes are ordinary ids, which the trainer knows no other way to reserve.
    layout["added_tokens"] = layout["added_tokens"][: len(SPECIAL)]
    return Tokens(Tokenizer.from_str(json.dumps(layout)))


@given(text=any_text | code)
@example(text="a\rb\r\n\r\n \t\x00\x1c\x7f\x85\u2028😀e\u0301<mask><bos>")
def test_text_comes_back_to_the_byte(text: str) -> None:
    tokens = embedded_tokens()
    ids = tokens.encode(text)
    assert tokens.decode(ids) == text
    assert b"".join(tokens.spellings[index] for index in ids) == text.encode()


@given(parts=st.lists(st.sampled_from([*SPECIAL, "x", " ", "\n", "<", ">"])))
def test_the_name_of_a_special_token_stays_text(parts: list[str]) -> None:
    tokens = embedded_tokens()
    ids = tokens.encode("".join(parts))
    assert all(tokens.spellings[index] for index in ids)
    assert not {tokens.bos_token_id, tokens.eos_token_id, tokens.pad_token_id} & set(ids)


def test_special_ids_spell_nothing() -> None:
    tokens = embedded_tokens()
    assert [tokens.spellings[index] for index in range(len(SPECIAL))] == [b""] * len(SPECIAL)
    assert (tokens.pad_token_id, tokens.eos_token_id, tokens.bos_token_id) == (0, 1, 2)


@given(prefix=code | any_text, typed=code | any_text)
@example(prefix="def __ini", typed="t__(self)")
@example(prefix="x = __a_b_c", typed="__")
@example(prefix='f((""', typed='"doc"""')
@example(prefix="x = [1,  ", typed="2]")
@example(prefix="\n" + " " * 300, typed="    x")
@example(prefix="1" * 400, typed="2")
@example(prefix="a" * 700, typed="b")
@example(prefix="x\n \n\n  \n", typed="\n  y")
@example(prefix="x = 1    😀", typed="")
def test_text_before_the_healing_point_keeps_its_tokens_whatever_is_typed(prefix: str, typed: str) -> None:
    tokens = embedded_tokens()
    point = tokens.healing_point(prefix)
    before = tokens.encode(prefix[:point])
    assert tokens.encode(prefix + typed)[: len(before)] == before


_LINES = (
    *("x = 1\n", "    return é\n", "\n", "  \n", "if a:\n", '"""doc"""\n', "a_\n", "b\r\n", "c\r"),
    *("#" * 60 + "\n", "long " * 40),
)


@given(text=st.lists(st.sampled_from(_LINES), max_size=60).map(lambda lines: "".join(lines * 8)), typed=code)
@example(text=SOURCES[0], typed="")
@example(text="a" * 3000, typed="\n")
def test_a_long_text_has_the_same_tokens_in_stretches(text: str, typed: str) -> None:
    tokens = embedded_tokens()
    for each in (text, text + typed, typed + text):
        assert tokens.encode_long(each) == tokens.encode(each)


def test_a_sentencepiece_like_tokenizer_takes_a_long_text_whole(metaspace: Tokens) -> None:
    assert metaspace.encode_long(SOURCES[0]) == metaspace.encode(SOURCES[0])


def test_a_key_in_a_long_text_has_only_its_end_tokenised() -> None:
    class Counting(Tokens):
        n_characters = 0

        def encode(self, text: str) -> list[int]:
            self.n_characters += len(text)
            return super().encode(text)

    tokens = Counting.load(CHECKPOINT / "tokenizer.json")
    text = "".join(f"value_{number} = call({number}, size)\nother = {number}\n" for number in range(400))
    tokens.encode_long(text)
    assert tokens.n_characters == len(text) > 12_000
    for n_typed, _ in enumerate(typed := "    result = value_1 + 2", start=1):
        tokens.n_characters = 0
        tokens.encode_long(text + typed[:n_typed])
        assert tokens.n_characters < 1200


@given(prefix=(code | any_text).filter(bool))
def test_something_is_always_healed(prefix: str) -> None:
    assert 0 <= embedded_tokens().healing_point(prefix) < len(prefix)


@pytest.mark.parametrize(
    ("prefix", "healed"),
    [
        ("", ""),
        ("import os\nprint", "print"),
        ("x = ", " "),
        ("def f(x):\n    ", "\n    "),
        ("return self.max_val", "_val"),
        ("    def __init", " __init"),
        ('f((""', '(("' + '"'),
        ("a\n" * 500 + "foo.bar", "bar"),
        ("x" * 10_000 + " = 12", " 12"),
    ],
)
def test_what_is_healed_is_the_last_piece(prefix: str, healed: str) -> None:
    point = embedded_tokens().healing_point(prefix)
    assert prefix[point:] == healed


def test_broken_utf8_is_shown_as_a_replacement_character() -> None:
    tokens = embedded_tokens()
    first_byte = next(index for index, spelling in enumerate(tokens.spellings) if spelling == "é".encode()[:1])
    assert tokens.decode([first_byte]) == "\ufffd"


@given(text=any_text | code)
def test_a_sentencepiece_like_tokenizer_gives_text_back_too(metaspace: Tokens, text: str) -> None:
    text = text.replace("▁", "")  # its own stand-in for a blank is the one character that it cannot spell
    assert metaspace.decode(metaspace.encode(text)) == text


@pytest.mark.parametrize("prefix", ["x", "x = ", "def f(self):\n    return sel", "日本 = 😀", "a  "])
def test_a_sentencepiece_like_tokenizer_is_healed_at_a_token(metaspace: Tokens, prefix: str) -> None:
    point = metaspace.healing_point(prefix)
    assert point < len(prefix)
    before = metaspace.encode(prefix[:point])
    for typed in ("", "f", " 1", "\n", "é"):
        assert metaspace.encode(prefix + typed)[: len(before)] == before


def test_an_added_token_that_is_not_special_spells_itself() -> None:
    tokenizer = Tokenizer(BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(r"\S+|\s+"), "isolated"), pre_tokenizers.ByteLevel(False, use_regex=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = BpeTrainer(special_tokens=["<pad>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(["some text"], trainer)
    tokenizer.add_tokens([AddedToken("\n\n é", normalized=False)])
    tokens = Tokens(tokenizer)
    ids = tokens.encode("a\n\n éb")
    assert len(ids) == 3
    assert tokens.decode(ids) == "a\n\n éb"


def test_a_missing_or_foreign_tokenizer_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    with pytest.raises(CheckpointError, match=r"tokenizer\.json"):
        Tokens.load(path)
    path.write_text("{}")
    with pytest.raises(CheckpointError, match=r"tokenizer\.json"):
        Tokens.load(path)
