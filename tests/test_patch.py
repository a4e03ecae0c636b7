"""A printed diff: `git apply` and `patch` make the changes in the file, whatever its line ends and its name."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from midspan_server.hunks import Hunk
from midspan_server.patch import base_of, changed, diff_of
from midspan_server.source import read_source

TEXT = b"one\ntwo\nthree\nfour\nfive\nsix\n"
PROGRAMS = [["git", "apply"], ["patch", "-p1", "--quiet"]]


def applies(program: list[str], path: Path, data: bytes) -> None:
    """Writes a file, applies the diff of a change of its fourth line, and of its end, and looks at what comes out."""
    if shutil.which(program[0]) is None:
        pytest.skip(f"there is no {program[0]} here")
    path.write_bytes(data)
    source = read_source(path)
    at = source.text.index("four")
    changes = [Hunk(at, at + 4, "vier\nviereinhalb"), Hunk(len(source.text) - 1, len(source.text) - 1, "!")]
    patch = "".join(diff_of(source, changes)).encode()
    done = subprocess.run(program, cwd=base_of(path), input=patch, capture_output=True)
    assert done.returncode == 0, (patch, done.stderr)
    newline = source.newline.encode()
    new = data.replace(b"four", b"vier" + newline + b"viereinhalb")
    n_kept = len(data) - len(data.rstrip(b"\r\n")) if source.text.endswith("\n") else 1
    assert path.read_bytes() == new[:-n_kept] + b"!" + new[-n_kept:] == changed(source, changes).encode()


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program[0])
@pytest.mark.parametrize(
    "data",
    [
        TEXT,
        TEXT.replace(b"\n", b"\r\n"),
        TEXT.replace(b"\n", b"\r"),
        TEXT.replace(b"two\n", b"two\r\n").replace(b"five\n", b"five\r"),
        b"\xef\xbb\xbf" + TEXT,
        b"\xef\xbb\xbf" + TEXT.replace(b"\n", b"\r\n"),
        TEXT.removesuffix(b"\n"),
    ],
    ids=["LF", "CRLF", "CR", "mixed", "mark", "mark and CRLF", "no end"],
)
def test_a_diff_applies_whatever_the_line_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: list[str], data: bytes
) -> None:
    monkeypatch.chdir(tmp_path)
    applies(program, Path("shop.py"), data)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program[0])
@pytest.mark.parametrize("name", ["my shop.py", "größe.py", 'a"b.py', "a\\b.py", "a\tb.py", "deep/er/shop.py"])
def test_a_diff_applies_whatever_the_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: list[str], name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    applies(program, Path(name), TEXT)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program[0])
def test_a_diff_applies_to_a_file_named_by_its_whole_path_or_outside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: list[str]
) -> None:
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    applies(program, here / "shop.py", TEXT)
    assert base_of(here / "shop.py") == here
    applies(program, Path("../shop.py"), TEXT)
    assert base_of(Path("../shop.py")) == tmp_path
