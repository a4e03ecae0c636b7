"""A file that is changed in its place: it stays the same file, and is never touched against somebody's wish."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import pytest

from midspan_engine.errors import InputError
from midspan_server.rewrite import rewrite

OLD, NEW = b"x = 1\n", b"x = 1234\n"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "shop.py"
    path.write_bytes(OLD)
    return path


def test_a_file_keeps_its_mode_and_leaves_nothing_beside_it(path: Path) -> None:
    path.chmod(0o750)
    rewrite(path, OLD, NEW)
    assert (path.read_bytes(), path.stat().st_mode & 0o777) == (NEW, 0o750)
    assert list(path.parent.iterdir()) == [path]


def test_a_read_only_file_is_refused(path: Path) -> None:
    path.chmod(0o444)
    with pytest.raises(InputError, match="read-only"):
        rewrite(path, OLD, NEW)
    assert path.read_bytes() == OLD


def test_a_file_that_changed_or_went_meanwhile_is_refused(path: Path) -> None:
    path.write_bytes(b"y = 1\n")
    with pytest.raises(InputError, match="changed meanwhile"):
        rewrite(path, OLD, NEW)
    path.unlink()
    with pytest.raises(InputError, match="cannot be written"):
        rewrite(path, OLD, NEW)


def test_hard_links_stay_one_file(path: Path) -> None:
    other = path.with_name("other.py")
    other.hardlink_to(path)
    rewrite(path, OLD, NEW)
    assert other.read_bytes() == NEW
    assert other.samefile(path)


def test_a_symbolic_link_stays_and_its_file_is_written_where_it_lies(path: Path) -> None:
    # Another file system where there is one: a file cannot be moved from the link's folder into it.
    elsewhere = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=elsewhere) as folder:
        target = Path(folder, "target.py")
        target.write_bytes(OLD)
        link = path.with_name("link.py")
        link.symlink_to(target)
        rewrite(link, OLD, NEW)
        assert link.is_symlink()
        assert target.read_bytes() == NEW


def test_a_name_may_be_as_long_as_the_disk_allows(tmp_path: Path) -> None:
    path = tmp_path / ("n" * 250 + ".py")
    path.write_bytes(OLD)
    rewrite(path, OLD, NEW)
    assert path.read_bytes() == NEW


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_file_keeps_its_owner(path: Path) -> None:
    os.chown(path, 1234, 4321)
    rewrite(path, OLD, NEW)
    assert (path.stat().st_uid, path.stat().st_gid) == (1234, 4321)


def test_where_no_file_can_be_made_or_given_away_the_file_itself_is_written(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def deny(*args: Any, **more: Any) -> None:
        raise PermissionError(1, "Operation not permitted")

    before = path.stat().st_ino
    for owner, function in ((os, "chown"), (tempfile, "mkstemp")):
        path.write_bytes(NEW)
        with monkeypatch.context() as denied:
            denied.setattr(owner, function, deny)
            rewrite(path, NEW, OLD)
        assert (path.read_bytes(), path.stat().st_ino) == (OLD, before)
        assert list(path.parent.iterdir()) == [path]
