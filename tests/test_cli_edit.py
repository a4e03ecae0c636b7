"""`midspan edit` and `midspan fill --holes` with the shipped checkpoint: a diff, JSON, or the file changed."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest

from command_line import Environment, midspan, refused, write
from midspan_server.patch import base_of

STOCK = """class Stock:
    def __init__(self, ___):
        self.counts = ___
        self.name = "é"

    def remove(self, name, count):
        if name not in self.counts:
            raise KeyError(name)
        self.counts[nmae] = self.counts.get(name, 0) - count
"""
MENDED = STOCK.replace("nmae", "name")
LINE = ("--range", "9:1-9:61")


def touched_up(environment: Environment, path: Path, *more: str) -> subprocess.CompletedProcess[bytes]:
    done = midspan(environment, "edit", path, *LINE, "--preset", "touch_up", *more)
    assert done.returncode == 0, done.stderr.decode()
    return done


def test_the_answer_is_a_diff_that_patch_takes(environment: Environment, tmp_path: Path) -> None:
    path = write(tmp_path, STOCK.encode(), "stock.py")
    told = touched_up(environment, path).stdout.decode()
    name = path.relative_to(base_of(path)).as_posix()
    assert f"--- a/{name}\n+++ b/{name}\n@@ -6,4 +6,4 @@\n" in told
    changed = [line for line in told.splitlines()[2:] if line[0] in "+-"]
    assert [line[1:] for line in changed] == [STOCK.splitlines()[8], MENDED.splitlines()[8]]
    assert path.read_bytes() == STOCK.encode()


def test_json_has_the_changes_and_where_they_go(environment: Environment, tmp_path: Path) -> None:
    answer: Any = msgspec.json.decode(touched_up(environment, write(tmp_path, STOCK.encode()), "--json").stdout)
    assert answer["changes"] == [{"start": [9, 21], "end": [9, 25], "text": "name"}]
    assert 0 < answer["confidence"] <= 1
    assert answer["silence"] is None


def test_applied_changes_leave_all_else_byte_for_byte(environment: Environment, tmp_path: Path) -> None:
    before = b"\xef\xbb\xbf" + STOCK.replace("\n", "\r\n").replace("Stock:\r\n", "Stock:\n").encode()
    path = write(tmp_path, before)
    path.chmod(0o750)
    told = touched_up(environment, path, "--apply").stderr.decode()
    assert told == f"midspan: made 1 change in {path}\n"
    assert path.read_bytes() == before.replace(b"nmae", b"name")
    assert path.stat().st_mode & 0o777 == 0o750
    assert [each.name for each in path.parent.iterdir() if "midspan" in each.name] == []


def test_nothing_to_change_is_said_with_its_reason(environment: Environment, tmp_path: Path) -> None:
    done = touched_up(environment, write(tmp_path, MENDED.encode()))
    assert done.stdout == b""
    assert done.stderr.startswith(b"midspan: no change: ")


def test_an_instruction_is_declined_honestly(environment: Environment, tmp_path: Path) -> None:
    path = write(tmp_path, STOCK.encode())
    done = midspan(environment, "edit", path, *LINE, "--instruction", "use a Counter")
    assert done.returncode == 0
    assert b"follows no instructions" in done.stderr


def test_every_pass_of_an_edit_can_be_watched(environment: Environment, tmp_path: Path) -> None:
    path = write(tmp_path, MENDED.encode())  # a slip is mended without a pass over a canvas
    told = touched_up(environment, path, "--watch").stderr.decode()
    assert "pass 1, " in told
    assert "pass 2, " in told


def test_holes_are_filled_or_keep_what_they_hold(environment: Environment, tmp_path: Path) -> None:
    path = write(tmp_path, STOCK.encode())
    done = midspan(environment, "fill", path, "--holes", "--range", "1:1-4:1", "--json", "--watch")
    assert done.returncode == 0, done.stderr.decode()
    answer: Any = msgspec.json.decode(done.stdout)
    places = [[2, 24], [3, 23]]
    assert all(change["start"] in places and "___" not in change["text"] for change in answer["changes"])
    assert bool(answer["changes"]) != bool(answer["silence"])
    assert b"pass 1, " in done.stderr


def test_the_options_of_a_fill_count_for_holes_too(environment: Environment, tmp_path: Path) -> None:
    path = write(tmp_path, STOCK.encode())
    for option, reason in ((("--min-confidence", "1"), b"asked for 1.00"), (("--deadline-ms", "1"), b"deadline")):
        done = midspan(environment, "fill", path, "--holes", "--apply", *option)
        assert done.returncode == 0, done.stderr.decode()
        assert reason in done.stderr
        assert path.read_bytes() == STOCK.encode()
    short, again, long = (
        midspan(environment, "fill", path, "--holes", "--json", "--min-confidence", "0", *more).stdout
        for more in (("--max-tokens", "1"), ("--max-tokens", "1"), ())
    )
    changes: list[Any] = [msgspec.json.decode(each)["changes"] for each in (short, again, long)]
    assert changes[0] == changes[1] != changes[2]
    assert all(len(change["text"].split()) <= 1 for change in changes[0])


def test_a_hole_too_long_for_a_request_is_one_clear_line(environment: Environment, tmp_path: Path) -> None:
    path = write(tmp_path, b"f(" + b" " * 16_500 + b")\n")
    assert "make the hole shorter" in refused(midspan(environment, "fill", path, "--holes"))


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("edit", *LINE), "give either --preset or --instruction"),
        (("edit", *LINE, "--instruction", " "), "give either --preset or --instruction"),
        (("edit", *LINE, "--preset", "refill", "--strength", "0"), "0<x<=1"),
        (("fill", "--holes", "-n", "2"), "leave out -n, --multi-line"),
        (("fill", "--holes", "--multi-line"), "leave out -n, --multi-line"),
        (("edit", "--range", "9", "--preset", "tail"), "write L:C-L:C"),
        (("edit", "--range", "9:1-99:1", "--preset", "tail"), "choose a line from 1 to 10"),
        (("edit", "--range", "1:1-1:1", "--preset", "refill"), "nothing is selected"),
        (("edit", *LINE, "--preset", "tail", "--apply", "--stdin"), "leave out --apply or --stdin"),
        (("fill",), "give --at, or --holes"),
        (("fill", "--at", "1:1", "--apply"), "give --at, or --holes"),
        (("fill", "--holes", "--range", "4:1-5:1"), "there is no hole here"),
    ],
)
def test_unusable_input_is_one_clear_line(
    environment: Environment, tmp_path: Path, arguments: tuple[str, ...], told: str
) -> None:
    path = write(tmp_path, STOCK.encode())
    assert told in refused(midspan(environment, arguments[0], path, *arguments[1:]))


def test_files_that_hold_secrets_are_not_edited(environment: Environment, tmp_path: Path) -> None:
    secret = write(tmp_path, b"KEY = ___\n", ".env")
    for arguments in (("edit", secret, "--range", "1:1-1:4", "--preset", "refill"), ("fill", secret, "--holes")):
        assert "hold secrets" in refused(midspan(environment, *arguments))
