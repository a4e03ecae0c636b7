"""The vocabulary gives every text back, keeps its special ids to itself and cuts pieces where edits happen."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from midspan_engine.training.vocabulary import SPECIAL_TOKENS, load_vocabulary, train_vocabulary, untrained_tokenizer

SOURCES = [path.read_text(encoding="utf-8") for path in sorted(Path(__file__).parent.glob("test_*.py"))]
N_IDS = 600


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    path = tmp_path_factory.mktemp("vocabulary") / "tokenizer.json"
    train_vocabulary(SOURCES, path, n_ids=N_IDS)
    return load_vocabulary(path)


def pieces(text: str) -> list[str]:
    pre_tokenizer = untrained_tokenizer().pre_tokenizer
    assert pre_tokenizer is not None
    return [text[start:end] for _, (start, end) in pre_tokenizer.pre_tokenize_str(text)]


@given(text=st.text(st.characters(exclude_categories=["Cs"])) | st.text(" \t\r\n_.=\"'(){}<>ab01é😀\x00\x0c\u2028"))
@example(text="a\rb\r\n\r\n \t\x00\x1c\x7f\x85\u2028😀e\u0301<mask><bos>")
def test_decoding_gives_every_text_back(tokenizer: Tokenizer, text: str) -> None:
    ids = tokenizer.encode(text).ids
    assert tokenizer.decode(ids, skip_special_tokens=False) == text
    assert tokenizer.decode(ids) == text


def test_special_tokens_have_the_first_ids(tokenizer: Tokenizer) -> None:
    assert [tokenizer.token_to_id(token) for token in SPECIAL_TOKENS] == list(range(6))
    assert tokenizer.get_vocab_size() == N_IDS


@given(parts=st.lists(st.sampled_from([*SPECIAL_TOKENS, "x", " ", "\n"])))
def test_the_name_of_a_special_token_in_a_file_stays_text(tokenizer: Tokenizer, parts: list[str]) -> None:
    text = "".join(parts)
    for encoding in (tokenizer.encode(text), *tokenizer.encode_batch_fast([text])):
        assert all(token >= len(SPECIAL_TOKENS) for token in encoding.ids)


def test_special_tokens_are_left_out_of_decoded_text(tokenizer: Tokenizer) -> None:
    assert tokenizer.decode([2, *tokenizer.encode("x = 1").ids, 5, 5, 1]) == "x = 1"


def test_a_line_break_is_never_in_one_piece_with_what_stands_before_it() -> None:
    text = "def f(x):\n    if x == 10:  \n\n        return [\n"
    first_line = ["def", " f", "(", "x", "):", "\n    "]
    second_line = ["if", " x", " ==", " 10", ":", "  ", "\n\n        "]
    assert pieces(text) == [*first_line, *second_line, "return", " [", "\n"]


def test_snake_case_words_share_their_pieces() -> None:
    assert pieces("self.max_value_count = max") == ["self", ".", "max", "_value", "_count", " =", " max"]
    assert pieces("def __init__(self)") == ["def", " __init__", "(", "self", ")"]


def test_digits_come_in_threes_and_docstring_quotes_stay_whole() -> None:
    assert pieces('x("""a 12345.""")') == ["x", "(", '"""', "a", " 123", "45", ".", '"""', ")"]


def test_a_corpus_too_small_for_the_vocabulary_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="too small"):
        train_vocabulary(["x = 1\n"], tmp_path / "tokenizer.json", n_ids=4096)
    assert not (tmp_path / "tokenizer.json").exists()
