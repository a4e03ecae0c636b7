"""The benchmark measures what users wait for and what memory they give."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

import msgspec
import pytest
import torch
from click.testing import CliRunner

from midspan_engine.bench import twin
from midspan_engine.bench.beside import measure_beside, random_ids, step_of
from midspan_engine.bench.ceilings import Ceilings
from midspan_engine.bench.command import command
from midspan_engine.bench.kernels import KernelRow
from midspan_engine.bench.report import Report, print_report
from midspan_engine.bench.shapes import SMALL
from midspan_engine.bench.synthetic import synthetic_model
from midspan_engine.bench.twin import twin_of
from midspan_engine.engine import Engine
from midspan_engine.errors import InputError
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
def test_nothing_is_left_out_unless_it_is_asked_for(report: Report) -> None:
    assert None not in msgspec.structs.astuple(report)


@pytest.mark.slow
def test_latency_is_told_beside_the_same_weights_run_token_by_token(report: Report) -> None:
    assert report.cases == 3
    assert set(report.methods) == {"canvas", "canvas, as editors ask", "token by token"}
    for timing in report.methods.values():
        assert 0 < timing.p50_ms <= timing.p90_ms
    assert report.methods["canvas"].tokens_per_s > 0
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


@pytest.mark.slow
def test_the_engine_is_told_beside_transformers_on_the_same_weights(report: Report) -> None:
    beside = report.transformers
    assert beside is not None
    assert not beside.note
    assert [name.split(" of ")[0] for name in beside.ms] == ["prompt", "pass over 64 slots", "prompt and canvas"]
    assert beside.peak_mb is not None
    for pair in beside.ms.values():
        assert pair.own > 0
        assert pair.transformers > 0
    assert 0 < beside.peak_mb.own < beside.peak_mb.transformers


@pytest.mark.slow
@torch.inference_mode()
def test_a_pass_on_a_processor_takes_less_of_it_than_that_of_transformers() -> None:
    """What serves GPUs must not make it slower. Time of the processor, which others that use it too leave alone."""
    torch.set_num_threads(1)
    model = Engine.load(CHECKPOINT).model
    prompt_1L, canvas_1C = (random_ids(model.config, torch.device("cpu"), n) for n in (400, 64))
    cache = model.new_cache()
    model.encode(prompt_1L, cache)
    fed_back = model.logits(model.decode(canvas_1C, cache))
    runs = {
        "own": lambda: model.logits(model.decode(canvas_1C, cache, model.soften(fed_back))),
        "transformers": step_of(twin_of(model), prompt_1L, canvas_1C, fed_back),
    }
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(20):
        for name, run in runs.items():
            began = time.process_time()
            run()
            times[name].append(time.process_time() - began)
    assert statistics.median(times["own"]) < statistics.median(times["transformers"])


@pytest.mark.slow
def test_kernels_are_told_beside_what_the_machine_can_do_at_best(report: Report) -> None:
    assert report.ceilings is not None
    assert report.kernels
    for row in report.kernels:
        assert row.reference_ms > 0
        assert row.gb_per_s > 0
        assert row.triton_ms is None, "Triton's kernels run on a GPU"
        assert row.share_of_ceiling >= row.gb_per_s / report.ceilings.gb_per_s


def test_random_weights_serve_no_section_that_needs_a_tokenizer() -> None:
    done = CliRunner().invoke(command, ["--shape", "small", "--section", "kernels", "--section", "keys"])
    assert isinstance(done.exception, InputError)
    assert "--section keys: leave out --shape" in str(done.exception)


def test_without_transformers_it_is_told_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(twin.importlib.util, "find_spec", lambda _: None)
    beside = measure_beside(synthetic_model(SMALL, torch.float32, torch.device("cpu")), None)
    assert "pip install transformers==5.24.0" in beside.note


def test_packed_experts_are_not_compared_with_transformers() -> None:
    beside = measure_beside(synthetic_model(SMALL, torch.float32, torch.device("cpu"), "4bit"), None)
    assert "packed" in beside.note


def test_a_kernel_that_is_wrong_is_told_so(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    figures = {"reference_ms": 2.0, "triton_ms": 1.0, "gb_per_s": 5.0, "tflop_per_s": 0.0, "share_of_ceiling": 0.5}
    rows = [
        KernelRow(kernel=name, dtype="bfloat16", error=error, tolerance=1e-2, **figures)
        for name, error in (("norm", 1e-3), ("rotation", 1.0))
    ]
    about = {"device": "cuda", "threads": 1, "n_parameters": 1, "cases": 0}
    print_report(Report(kernels=rows, ceilings=Ceilings(10.0, 1.0), **about))
    told = capsys.readouterr().out.splitlines()
    assert ["WRONG" in line for line in told if "bfloat16" in line] == [False, True]
