"""Which files of a folder are read beside a document."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from midspan_server.git_ignore import is_ignored, rules_above, rules_in
from midspan_server.workspace_files import MAX_ALL_BYTES, MAX_FILE_BYTES, Look, Stamp, look_through


def write(folder: Path, *names: str, text: str = "x = 1\n") -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def look(
    folder: Path, near: str = "pkg/main.py", known: dict[str, Stamp] | None = None, language: str = "python"
) -> Look:
    return look_through(
        str(folder), str(folder / near), language, lambda path: "secret" in path, known or {}, lambda: False
    )


def found(folder: Path, near: str = "pkg/main.py") -> list[str]:
    return [str(Path(file.path).relative_to(folder)) for file in look(folder, near).changed]


def test_files_in_the_same_language_come_the_nearest_first(tmp_path: Path) -> None:
    write(tmp_path, "pkg/main.py", "pkg/b.py", "top.py", "pkg/deep/c.py", "other/d.py", "pkg/notes.md")
    assert found(tmp_path) == ["pkg/b.py", "pkg/main.py", "pkg/deep/c.py", "top.py", "other/d.py"]


@pytest.mark.parametrize(
    "name",
    [
        ".hidden/a.py",
        "pkg/.a.py",
        "node_modules/a.py",
        "build/lib/a.py",
        "lib/site-packages/a.py",
        "pkg/secret.py",
        "pkg/ignored.py",
        "pkg/generated/a.py",
        "out/a.py",
        "env/lib/a.py",
    ],
)
def test_what_nobody_wrote_or_is_meant_to_see_is_left_out(tmp_path: Path, name: str) -> None:
    write(tmp_path, name, "pkg/main.py")
    write(tmp_path, "env/pyvenv.cfg")
    (tmp_path / ".gitignore").write_text("/out/\nignored.py\n")
    (tmp_path / "pkg/.gitignore").write_text("generated/\n!main.py\n")
    assert found(tmp_path) == ["pkg/main.py"]


def test_links_are_not_followed(tmp_path: Path) -> None:
    write(tmp_path / "outside", "a.py")
    write(tmp_path / "folder", "main.py")
    (tmp_path / "folder/link").symlink_to(tmp_path / "outside")
    (tmp_path / "folder/b.py").symlink_to(tmp_path / "outside/a.py")
    assert found(tmp_path / "folder", "main.py") == ["main.py"]


def test_large_and_broken_files_are_passed_over(tmp_path: Path) -> None:
    write(tmp_path, "main.py")
    write(tmp_path, "large.py", text="#" * (MAX_FILE_BYTES + 1))
    (tmp_path / "latin.py").write_bytes(b"name = '\xff'")
    (tmp_path / "folder.py").mkdir()
    assert found(tmp_path, "main.py") == ["main.py"]


def test_no_more_is_read_than_the_engine_takes_and_what_is_left_out_counts_as_gone(tmp_path: Path) -> None:
    for n in range(MAX_ALL_BYTES // MAX_FILE_BYTES + 3):
        write(tmp_path, f"f{n}.py", text="#" * MAX_FILE_BYTES)
    seen = look(tmp_path, "f0.py")
    assert len(seen.paths) == len(seen.changed) == MAX_ALL_BYTES // MAX_FILE_BYTES
    assert not seen.is_cut_short


def test_what_has_not_changed_is_not_read_again(tmp_path: Path) -> None:
    write(tmp_path, "a.py", "b.py")
    first = look(tmp_path, "a.py")
    write(tmp_path, "b.py", text="x = 1000\n")
    again = look(tmp_path, "a.py", {file.path: file.stamp for file in first.changed})
    assert again.paths == first.paths
    assert [file.text for file in again.changed] == ["x = 1000\n"]


def test_a_search_that_is_stopped_or_late_is_cut_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, *(f"{n}.py" for n in range(9)))
    left = iter([False] * 15)
    stopped = look_through(
        str(tmp_path), str(tmp_path / "0.py"), "python", lambda _: False, {}, lambda: next(left, True)
    )
    assert stopped.is_cut_short
    assert len(stopped.paths) < 9
    monkeypatch.setattr("midspan_server.workspace_files.LOOK_S", 0.0)
    assert look(tmp_path, "0.py") == Look(set(), [], True)


def test_a_pipe_holds_nobody_up(tmp_path: Path) -> None:
    write(tmp_path, "main.py")
    os.mkfifo(tmp_path / "pipe.py")
    os.mkfifo(tmp_path / ".gitignore")
    assert found(tmp_path, "main.py") == ["main.py"]


def test_names_that_are_no_unicode_are_passed_over(tmp_path: Path) -> None:
    write(tmp_path, "main.py", "caf\udce9.py")
    assert found(tmp_path, "main.py") == ["main.py"]


def test_files_of_a_language_are_known_by_their_names(tmp_path: Path) -> None:
    write(tmp_path, "run", "a.py", "b.pyi", "c.js", "data.json", "notes")
    assert found(tmp_path, "run") == ["a.py", "b.pyi"]
    assert [Path(file.path).name for file in look(tmp_path, "run", language="javascript").changed] == ["c.js"]
    assert look(tmp_path, "run", language="plaintext").paths == set()


def test_line_breaks_stay_as_they_are_and_what_is_no_text_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_bytes(b"\xef\xbb\xbfx = 1\r\ny = 2\r")
    (tmp_path / "b.py").write_bytes(b"x = 1\0")
    assert [file.text for file in look(tmp_path, "a.py").changed] == ["x = 1\r\ny = 2\r"]


def test_a_document_in_an_ignored_folder_is_told_of_the_files_above(tmp_path: Path) -> None:
    write(tmp_path, "top.py", "out/a.py", "out/deep/b.py", ".hidden/c.py")
    (tmp_path / ".gitignore").write_text("/out/\n")
    assert found(tmp_path, "out/deep/b.py") == ["top.py"]
    assert found(tmp_path, ".hidden/c.py") == ["top.py"]


def git(folder: Path, *arguments: str) -> str:
    return subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=False).stdout


@pytest.mark.skipif(shutil.which("git") is None, reason="git is the oracle")
@pytest.mark.parametrize(
    "rules",
    ["secret.py", "\ufeffsecret.py", "!\nsecret.py", "\\\nsecret.py", "[z-a]\nsecret.py", "*\n!main.py", "s*t.py"],
)
def test_what_git_ignores_is_left_out_whatever_else_the_rules_say(
    tmp_path: Path, rules: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "repository"
    write(folder, "main.py", "secret.py")
    # the pattern of a private file must not be what leaves it out
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    git(tmp_path, "init", "-q", str(folder))
    (folder / ".gitignore").write_text(rules + "\n", encoding="utf-8")
    assert git(folder, "check-ignore", "secret.py").strip() == "secret.py"
    rules_here = rules_in(str(folder), rules_above(str(folder)))
    assert is_ignored(str(folder / "secret.py"), rules_here)
    assert not is_ignored(str(folder / "main.py"), rules_here)


@pytest.mark.skipif(shutil.which("git") is None, reason="git is the oracle")
def test_the_rules_of_the_repository_and_of_the_user_hold_in_a_folder_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    folder = tmp_path / "repository"
    names = ("above.py", "excluded.py", "users.py", "main.py")
    write(folder, *(f"sub/{name}" for name in names))
    git(tmp_path, "init", "-q", str(folder))
    write(folder, ".gitignore", text="above.py\n")
    write(folder, ".git/info/exclude", text="excluded.py\n")
    write(tmp_path / "config", "git/ignore", text="users.py\n")
    assert found(folder / "sub", "main.py") == ["main.py"]
    ignored = git(folder, "check-ignore", *(f"sub/{name}" for name in names)).split()
    assert [Path(name).name for name in ignored] == list(names[:3])
