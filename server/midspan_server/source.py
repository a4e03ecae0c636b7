"""A source file as the command line reads it: UTF-8 from disk or stdin, checked, with LF line ends inside.

An editor hands over text that it has already decoded; the command line has to decode it, and every way in which that
can go wrong is an `InputError` that names the file, the place and what to do next.
"""

from __future__ import annotations

import codecs
import re
import stat
from pathlib import Path
from typing import BinaryIO

import msgspec

from midspan_engine.errors import InputError

MAX_BYTES = 50 * 10**6
"""Largest file read; the frame limit of the engine socket (`midspan_engine.framing`) lies above it."""

BYTE_ORDER_MARK = "\ufeff"

_POSITION = re.compile(r"([0-9]{1,9}):([0-9]{1,9})")
_WIDE_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


class LineColumn(msgspec.Struct, frozen=True):
    """A place between two characters: 1-based line, 1-based column in code points."""

    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.line}:{self.column}"


class Source(msgspec.Struct, frozen=True):
    """The text of a file and how it was written."""

    path: Path
    text: str
    """Without byte order mark; every line end is LF, which is what the engine is given."""
    newline: str
    """The line end of the file: LF, CRLF or CR; where they are mixed, the most frequent one."""
    written: str
    """The text as the file has it, byte order mark and line ends included."""

    def offset(self, position: LineColumn) -> int:
        """Returns the index in `text` of a position. Raises InputError if it lies outside the file."""
        lines = self.text.split("\n")
        if not 1 <= position.line <= len(lines):
            raise InputError(
                f"position {position} lies outside {self.path}, which has {_count(len(lines), 'line')}; "
                f"choose a line from 1 to {len(lines)}"
            )
        end = len(lines[position.line - 1]) + 1
        if not 1 <= position.column <= end:
            raise InputError(
                f"position {position} lies outside {self.path}, whose line {position.line} has "
                f"{_count(end - 1, 'character')}; choose a column from 1 to {end}"
            )
        return sum(len(line) + 1 for line in lines[: position.line - 1]) + position.column - 1

    def to_file(self, text: str) -> str:
        """Returns LF text with the line ends of this file, ready to be spliced into it."""
        return text.replace("\n", self.newline)


def parse_position(text: str) -> LineColumn:
    """Returns the position that LINE:COL names. Raises InputError for anything else."""
    match = _POSITION.fullmatch(text.strip())
    if match is None:
        raise InputError(f"{text!r} is no position; write LINE:COL, both counted from 1, such as 12:5")
    return LineColumn(int(match[1]), int(match[2]))


def parse_range(text: str) -> tuple[LineColumn, LineColumn]:
    """Returns the two positions that L:C-L:C names. Raises InputError for anything else."""
    first, dash, last = text.partition("-")
    if not dash:
        raise InputError(f"{text!r} is no range; write L:C-L:C, all counted from 1, such as 12:5-14:1")
    return parse_position(first), parse_position(last)


def read_source(path: Path) -> Source:
    """Reads a file. Raises InputError for a path that is not a readable UTF-8 text of at most 50 MB."""
    try:
        status = path.stat()
        if stat.S_ISDIR(status.st_mode):
            raise InputError(f"{path} is a directory; name a file in it")
        if not stat.S_ISREG(status.st_mode):
            raise InputError(f"{path} is not a regular file; pass its text with --stdin instead")
        if status.st_size > MAX_BYTES:
            raise InputError(_too_large(path))
        data = path.read_bytes()
    except FileNotFoundError:
        raise InputError(f"{path} does not exist; check the name, or pass unsaved text with --stdin") from None
    except PermissionError:
        raise InputError(f"{path} may not be read by this user; check its permissions") from None
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read ({error}); check the path and the disk it is on") from error
    return decode_source(path, data)


def read_stream(path: Path, stream: BinaryIO) -> Source:
    """Reads the unsaved text of `path`, which need not exist, from a stream. Raises InputError like `read_source`."""
    return decode_source(path, stream.read(MAX_BYTES + 1))


def decode_source(path: Path, data: bytes) -> Source:
    """Returns the source that the bytes of a file hold. Raises InputError if they are not usable text."""
    if len(data) > MAX_BYTES:
        raise InputError(_too_large(path))
    if data.startswith(_WIDE_MARKS):
        raise InputError(f"{path} is UTF-16 text; save it as UTF-8")
    if b"\0" in data:
        raise InputError(f"{path} is a binary file (it holds NUL bytes); name a text file")
    try:
        written = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise InputError(
            f"{path} is not valid UTF-8 (byte 0x{error.object[error.start]:02x} in line {line}); save it as UTF-8"
        ) from None
    text = written.removeprefix(BYTE_ORDER_MARK)
    if not text:
        raise InputError(f"{path} is empty, so nothing says what should stand in it; write a first line")
    return Source(path, text.replace("\r\n", "\n").replace("\r", "\n"), _newline_of(text), written)


def _newline_of(text: str) -> str:
    """Returns the most frequent line end of a text, LF if it has none."""
    n_crlf = text.count("\r\n")
    counts = {"\n": text.count("\n") - n_crlf, "\r\n": n_crlf, "\r": text.count("\r") - n_crlf}
    return max(counts, key=lambda newline: counts[newline])


def _too_large(path: Path) -> str:
    return f"{path} is larger than {MAX_BYTES // 10**6} MB; cut out the part around the gap and pass it with --stdin"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
