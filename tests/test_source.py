"""What the command line reads from disk: every unusable file is named, with what to do next."""

from __future__ import annotations

import codecs
import io
import os
from pathlib import Path, PurePath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from midspan_engine.errors import InputError
from midspan_server import source as source_module
from midspan_server.language import language_of
from midspan_server.source import LineColumn, Source, decode_source, parse_position, read_source, read_stream


def write(folder: Path, data: bytes) -> Path:
    path = folder / "shop.py"
    path.write_bytes(data)
    return path


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"", "is empty"),
        (codecs.BOM_UTF8, "is empty"),
        (b"\x7fELF\x02\x01\0\0\0", "binary file"),
        (b"x = 1\nname = '\xe9'\n", "not valid UTF-8 (byte 0xe9 in line 2)"),
        ("x = 1\n".encode("utf-16"), "UTF-16"),
    ],
)
def test_bytes_that_are_no_text_are_refused_with_the_reason(tmp_path: Path, data: bytes, told: str) -> None:
    path = write(tmp_path, data)
    with pytest.raises(InputError) as refused:
        read_source(path)
    assert told in str(refused.value)
    assert str(path) in str(refused.value)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist"):
        read_source(tmp_path / "missing.py")


def test_a_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is a directory"):
        read_source(tmp_path)


def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match="not a regular file"):
        read_source(tmp_path / "pipe")


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_an_unreadable_file_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, b"x = 1\n")
    path.chmod(0)
    with pytest.raises(InputError, match="permissions"):
        read_source(path)


def test_a_path_below_a_file_or_with_a_nul_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, b"x = 1\n")
    for impossible in (path / "below.py", Path("a\0b"), Path("n" * 5000)):
        with pytest.raises(InputError, match="cannot be read"):
            read_source(impossible)


def test_a_file_beyond_the_size_limit_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "huge.py"
    with path.open("wb") as file:
        file.truncate(source_module.MAX_BYTES + 1)
    with pytest.raises(InputError, match="larger than 50 MB"):
        read_source(path)


def test_a_stream_is_read_like_a_file_that_need_not_exist() -> None:
    read = read_stream(Path("unsaved.py"), io.BytesIO(b"x = 1\r\n"))
    assert read == Source(Path("unsaved.py"), "x = 1\n", "\r\n", "x = 1\r\n")


@pytest.mark.parametrize(
    ("at", "told"),
    [
        (LineColumn(0, 1), "choose a line from 1 to 3"),
        (LineColumn(4, 1), "choose a line from 1 to 3"),
        (LineColumn(1, 0), "choose a column from 1 to 4"),
        (LineColumn(1, 5), "choose a column from 1 to 4"),
        (LineColumn(3, 2), "choose a column from 1 to 1"),
    ],
)
def test_a_position_outside_the_file_is_refused_with_the_range(at: LineColumn, told: str) -> None:
    with pytest.raises(InputError) as refused:
        decode_source(Path("shop.py"), b"abc\ndef\n").offset(at)
    assert told in str(refused.value)


@pytest.mark.parametrize("text", ["", "7", "7:", "a:1", "-1:2", "1:2:3", "1.5:2", "9999999999:1"])
def test_what_is_no_position_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(InputError, match="such as 12:5"):
        parse_position(text)


def test_columns_count_code_points_after_the_byte_order_mark() -> None:
    source = decode_source(Path("shop.py"), codecs.BOM_UTF8 + "🐍é = x\n".encode())
    assert source.text == "🐍é = x\n"
    assert source.text[: source.offset(parse_position("1:6"))] == "🐍é = "


lines_of_any_kind = st.lists(st.text(alphabet="ab \t\f\v\x85\u2028🐍", max_size=6), min_size=1, max_size=6)


@given(lines=lines_of_any_kind, newline=st.sampled_from(["\n", "\r\n", "\r"]), data=st.data())
def test_a_position_is_found_whatever_the_line_ends(lines: list[str], newline: str, data: st.DataObject) -> None:
    written = newline.join(lines)
    if not written:
        return
    source = decode_source(Path("shop.py"), written.encode())
    line = data.draw(st.integers(1, len(lines)))
    column = data.draw(st.integers(1, len(lines[line - 1]) + 1))
    offset = source.offset(LineColumn(line, column))
    assert source.text[:offset] == "\n".join([*lines[: line - 1], lines[line - 1][: column - 1]])
    assert source.to_file(source.text) == written


def test_mixed_line_ends_give_the_most_frequent_one() -> None:
    assert decode_source(Path("shop.py"), b"a\r\nb\r\nc\nd").newline == "\r\n"
    assert decode_source(Path("shop.py"), b"no line end").newline == "\n"


@pytest.mark.parametrize(
    ("name", "text", "language"),
    [
        ("shop.py", "", "python"),
        ("shop.PYI", "", "python"),
        ("gui.pyw", "", "python"),
        ("run", "#!/usr/bin/env -S python3.11 -u\n", "python"),
        ("run", "#!/usr/bin/python\n", "python"),
        ("run", "#!/opt/python/bin/perl\n", "plaintext"),
        ("run", "import os\n#!/usr/bin/python\n", "plaintext"),
        ("run", "#!", "plaintext"),
        ("main.rs", "", "rust"),
        ("notes", "python\n", "plaintext"),
    ],
)
def test_a_file_name_or_a_first_line_tells_the_language(name: str, text: str, language: str) -> None:
    assert language_of(PurePath(name), text) == language
