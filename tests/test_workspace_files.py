"""Which files of a folder are read beside a document."""

from __future__ import annotations

from pathlib import Path

import pytest

from midspan_server.workspace_files import MAX_ALL_BYTES, MAX_BYTES, look_through


def write(folder: Path, *names: str, text: str = "x = 1\n") -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def found(folder: Path, near: str = "pkg/main.py") -> list[str]:
    _, changed = look_through(str(folder), str(folder / near), lambda path: "secret" in path, {}, lambda: False)
    return [str(Path(file.path).relative_to(folder)) for file in changed]


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
    write(tmp_path, "large.py", text="#" * (MAX_BYTES + 1))
    (tmp_path / "latin.py").write_bytes(b"name = '\xff'")
    (tmp_path / "folder.py").mkdir()
    assert found(tmp_path, "main.py") == ["main.py"]


def test_no_more_is_read_than_the_engine_takes(tmp_path: Path) -> None:
    n_files = MAX_ALL_BYTES // MAX_BYTES + 3
    for n in range(n_files):
        write(tmp_path, f"f{n}.py", text="#" * MAX_BYTES)
    assert len(found(tmp_path, "f0.py")) == MAX_ALL_BYTES // MAX_BYTES


def test_what_has_not_changed_is_not_read_again(tmp_path: Path) -> None:
    write(tmp_path, "a.py", "b.py")
    kept, changed = look_through(str(tmp_path), str(tmp_path / "a.py"), lambda _: False, {}, lambda: False)
    known = {file.path: file.stamp for file in changed}
    write(tmp_path, "b.py", text="x = 1000\n")
    again, changed = look_through(str(tmp_path), str(tmp_path / "a.py"), lambda _: False, known, lambda: False)
    assert again == kept
    assert [file.text for file in changed] == ["x = 1000\n"]


def test_a_search_that_is_stopped_ends(tmp_path: Path) -> None:
    write(tmp_path, "a.py")
    assert look_through(str(tmp_path), str(tmp_path / "a.py"), lambda _: False, {}, lambda: True) == (set(), [])
