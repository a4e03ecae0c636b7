"""The long runs of tests/soak, shortened: what they show must hold from the first second."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from soak import bars, storm, type_along

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/proc").is_dir(), reason="memory and processes are looked up in /proc"),
]


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MIDSPAN_RUNTIME_DIR", str(tmp_path / "run"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


def typed(folder: Path, n_editors: int, seconds: float, troubles: list[type_along.Trouble]) -> type_along.Report:
    report = asyncio.run(
        type_along.run(
            folder, n_editors=n_editors, seconds=seconds, keys_per_s=8.0, troubles=troubles, pause_s=2.0, seed=1
        )
    )
    assert [str(bar) for bar in bars.of_chaos(report) if not bar.is_met] == []
    assert report.answered + report.withdrawn >= report.keys
    return report


def test_eight_editors_that_type_on_one_engine_see_no_wrong_suggestion_and_memory_stays(tmp_path: Path) -> None:
    report = typed(tmp_path, 8, 4.0, [])
    assert report.suggested > 0
    assert report.n_engines == 1
    assert len(report.loop_wait_ms) == 8
    # in the first seconds it meets lengths that it has no kernels for yet; the long run shows what stays
    assert report.engine_mb.mb < 40
    assert report.front_end_mb.mb < 5


def test_editors_whose_engine_is_killed_frozen_and_hidden_go_on_and_leave_nothing_behind(tmp_path: Path) -> None:
    report = typed(tmp_path, 2, 3.0 * len(type_along.TROUBLES), type_along.TROUBLES)
    assert len(report.troubles) >= len(type_along.TROUBLES), "each of them befell it"


def test_clients_that_come_go_and_are_cut_off_leave_no_trace_in_the_engine(tmp_path: Path) -> None:
    report = asyncio.run(storm.run(tmp_path, n_connects=100, n_cuts=10, seed=1))
    assert [str(bar) for bar in bars.of_storm(report) if not bar.is_met] == []
    assert report.documents_after == 1
