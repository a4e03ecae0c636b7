"""A checkpoint is read again when its files are others, and not while they are being written."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from midspan_engine.checkpoint_files import CheckpointFiles


@pytest.fixture
def files(tmp_path: Path) -> CheckpointFiles:
    (tmp_path / "config.json").write_text("{}")
    files = CheckpointFiles(tmp_path)
    files.use()
    return files


def test_files_that_nobody_touched_have_not_changed(files: CheckpointFiles, tmp_path: Path) -> None:
    (tmp_path / "log.txt").write_text("a step of a training run")
    assert not files.have_changed(is_urgent=True)


def test_files_have_changed_once_two_looks_agree(files: CheckpointFiles, tmp_path: Path) -> None:
    for size in (1, 2):
        (tmp_path / "model.safetensors").write_bytes(bytes(size))
        assert not files.have_changed(is_urgent=False), "they may still be growing"
    assert files.have_changed(is_urgent=False)
    files.use()
    assert not files.have_changed(is_urgent=False)


def test_whoever_has_nothing_loaded_does_not_wait_for_a_second_look(files: CheckpointFiles, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{ }")
    assert files.have_changed(is_urgent=True)


def test_a_folder_that_is_gone_has_not_changed(files: CheckpointFiles, tmp_path: Path) -> None:
    shutil.rmtree(tmp_path)
    assert not any(files.have_changed(is_urgent=is_urgent) for is_urgent in (False, True))


def test_a_look_is_due_again_after_a_while(files: CheckpointFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    assert files.is_look_due
    files.have_changed(is_urgent=False)
    monkeypatch.setattr(CheckpointFiles, "LOOK_S", 3600.0)
    assert not files.is_look_due
    monkeypatch.setattr(CheckpointFiles, "LOOK_S", -1.0)
    assert files.is_look_due
