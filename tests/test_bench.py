"""The benchmark measures what users wait for and what memory they give."""

from __future__ import annotations

import subprocess
import sys

import msgspec
import pytest

from midspan_engine.bench import Report
from served_checkpoint import CHECKPOINT


@pytest.fixture(scope="module")
def report() -> Report:
    command = [
        sys.executable,
        "-m",
        "midspan_engine",
        "bench",
        "--cases",
        "3",
        "--json",
        "--checkpoint",
        str(CHECKPOINT),
    ]
    done = subprocess.run(command, capture_output=True, check=True, timeout=600)
    return msgspec.json.decode(done.stdout, type=Report)


@pytest.mark.slow
def test_latency_is_told_beside_the_same_weights_run_token_by_token(report: Report) -> None:
    assert report.cases == 3
    assert set(report.methods) == {"canvas", "canvas, as editors ask", "token by token"}
    for timing in report.methods.values():
        assert 0 < timing.p50_ms <= timing.p90_ms
    assert report.methods["token by token"].ratio == 1
    assert report.canvas.steps + report.canvas.encoder_steps >= 1
    assert 0 < report.canvas.decoder_share < 1
    assert report.canvas.n_encoded < 10, "the prefix is warm"


@pytest.mark.slow
def test_keys_are_timed_through_the_server_in_every_situation(report: Report) -> None:
    situations = ["cold start", "warm prefix", "typed through", "after an edit above", "carried on"]
    assert list(report.keys) == situations
    for name in ("cold start", "warm prefix", "after an edit above"):
        timing = report.keys[name]
        assert timing.n
        assert 0 < timing.p50_ms <= timing.p90_ms
    assert report.keys["typed through"].p50_ms < report.keys["warm prefix"].p50_ms < report.keys["cold start"].p50_ms
    assert report.rows[1] == 1
    assert 0 <= report.carried_on.n_carried <= report.carried_on.n_keys


@pytest.mark.slow
def test_engine_and_front_end_stay_within_600_and_80_mb(report: Report) -> None:
    assert 0 < report.memory_mb.engine < 600
    assert 0 < report.memory_mb.front_end < 80
