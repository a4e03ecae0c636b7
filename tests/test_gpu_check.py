"""The check of a GPU, tried on a CPU: it knows the released shape, misses no kernel, and loses nothing to a failure."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

import msgspec
import pytest
import torch

from midspan_engine.bench import gpu_check
from midspan_engine.bench.findings import Begun, Failed, Finding, GpuCheck, Line, gathered, markdown
from midspan_engine.bench.floors import step_bytes
from midspan_engine.bench.gpu_sections import SECTIONS, Part, Section, error_of_slots
from midspan_engine.bench.kernel_cases import NO_NUMBER, kernel_cases, largest_error
from midspan_engine.bench.shapes import RELEASED, SMALL
from midspan_engine.bench.synthetic import synthetic_model
from midspan_engine.bench.twin import twin_of
from midspan_engine.kv import KVCache
from midspan_engine.models.diffusion_gemma import DiffusionGemma
from test_house import run_python

META, CPU = torch.device("meta"), torch.device("cpu")
FEW = msgspec.structs.replace(SMALL, layers=SMALL.layers[-2:])
"""A sliding layer and a full one."""


def n_bytes(model: DiffusionGemma) -> int:
    return sum(tensor.nbytes for tensor in [*model.parameters(), *model.buffers()])


def test_the_released_shape_has_the_released_weights_and_fits_in_20_gb_with_experts_of_4_bits() -> None:
    plain = synthetic_model(RELEASED, torch.bfloat16, META)
    layer_scalars = 2 * 30  # buffers there, no parameters
    assert plain.n_weights == 25_250_986_752 + layer_scalars
    assert n_bytes(plain) == 2 * plain.n_weights
    assert n_bytes(synthetic_model(RELEASED, torch.bfloat16, META, "4bit")) < 20e9


def test_the_small_shape_has_every_part_of_the_released_one() -> None:
    assert SMALL.n_experts > SMALL.top_k_experts > 1
    assert {layer.is_sliding for layer in SMALL.layers} == {layer.is_sliding for layer in RELEASED.layers}
    assert [layer.is_sliding for layer in RELEASED.layers[:6]] == [layer.is_sliding for layer in SMALL.layers]


@pytest.mark.parametrize("held", ["plain", "4bit"])
@torch.no_grad()
def test_a_synthetic_model_computes_and_is_the_same_for_the_same_seed(held: str) -> None:
    found = []
    for seed in (0, 0, 1):
        model = synthetic_model(FEW, torch.float32, CPU, held, seed)  # type: ignore[arg-type]
        cache = KVCache(FEW.n_layers)
        model.encode(torch.arange(60)[None], cache)
        found.append(model.logits(model.decode(torch.arange(16)[None], cache)))
    assert found[0].isfinite().all()
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])


@torch.no_grad()
def test_the_twin_in_transformers_gives_the_same_logits_and_holds_no_weights_of_its_own() -> None:
    model = synthetic_model(FEW, torch.float32, CPU)
    twin, prompt, canvas = twin_of(model), torch.arange(60)[None], torch.arange(16)[None]
    cache = KVCache(FEW.n_layers)
    model.encode(prompt, cache)
    expected = model.logits(model.decode(canvas, cache))
    found = twin(input_ids=prompt, decoder_input_ids=canvas).logits
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)
    own = {parameter.data_ptr() for parameter in model.parameters()}
    assert {parameter.data_ptr() for parameter in twin.parameters()} <= own


def test_every_kernel_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("triton")
    from ahead_of_time import launches
    from test_kernels_compile import kernels

    monkeypatch.setenv("MIDSPAN_KERNELS", "triton")
    with torch.no_grad():
        cases = kernel_cases(RELEASED, torch.bfloat16, META).values()
        launched = set().union(*(launches(lambda make=make: make().run()) for make in cases))  # type: ignore[misc]
    assert {launch.kernel.fn for launch in launched} == {kernel.fn for kernel in kernels()}


def test_what_is_no_number_is_as_wrong_as_can_be() -> None:
    right, wrong = torch.tensor([1.0, 2.0]), torch.tensor([1.0, torch.nan])
    assert largest_error(right, right) == 0
    assert largest_error(wrong, right) == largest_error(right, wrong) == NO_NUMBER
    with pytest.raises(ValueError, match="step is nan"):
        Finding(section="4bit", name="step", value=torch.nan, unit="ms")
    assert largest_error((right, torch.tensor([1, 2])), (right, torch.tensor([1, 3]))) == 0.5


def test_a_token_that_went_to_another_expert_is_no_error_of_a_pass_and_what_all_slots_have_is() -> None:
    expected = torch.ones(1, 40, 5)
    found = expected.clone()
    found[0, :3] = 2.0
    assert error_of_slots(found, expected) == 0
    found[0, 3:] = 1.01
    assert error_of_slots(found, expected) == pytest.approx(0.01, rel=1e-3)
    found[0, 7, 2] = torch.nan
    assert error_of_slots(found, expected) == NO_NUMBER


def test_a_wide_step_reads_every_weight_but_those_of_the_encoder_and_the_embedding_twice() -> None:
    model = synthetic_model(SMALL, torch.float32, CPU)
    embedding = model.embed_tokens.weight.nbytes
    expected = n_bytes(model) + embedding - 4 * len(SMALL.layers)
    assert step_bytes(model, 10_000, 0) == expected
    assert step_bytes(model, 1, 0) < expected
    assert step_bytes(model, 10_000, 100, softens=False) == expected - embedding + 4 * sum(
        2 * layer.n_kv_heads * layer.head_dim * (47 if layer.is_sliding else 100) for layer in SMALL.layers
    )


def finding(**about: object) -> Finding:
    return Finding(section="4bit", name="step", value=5.0, unit="ms", **about)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("line", "is_good", "told"),
    [
        (finding(at_most=6.0), True, "met"),
        (finding(at_most=4.0), True, "missed"),  # too slow is not wrong
        (finding(at_most=4.0, is_check=True), False, "WRONG"),
        (finding(at_least=3.0, at_most=6.0, is_check=True), True, "right"),
        (Failed("4bit", "step", "RuntimeError: a | b\nc"), False, "a / b c"),
    ],
)
def test_a_failure_and_a_wrong_number_fail_the_check_and_a_missed_target_does_not(
    line: Line, is_good: bool, told: str
) -> None:
    check = gathered("small", 1.0, [line])
    assert check.is_good == is_good
    assert told in markdown(check)


def broken_parts(*_: object) -> dict[str, Part]:
    def broken() -> Iterable[Line]:
        yield finding()
        raise RuntimeError("out of order")

    return {"first": lambda: [finding()], "second": broken, "third": lambda: [finding()]}


def test_a_part_that_fails_is_recorded_and_the_next_ones_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(SECTIONS, "4bit", Section(1.0, broken_parts))
    path = tmp_path / "lines"
    assert gpu_check._run_section("4bit", "small", CPU, path, n_skipped=0) == 0
    lines = gpu_check._read(path)
    assert [line.part for line in lines if isinstance(line, Begun)] == ["first", "second", "third"]
    assert sum(isinstance(line, Finding) for line in lines) == 3, "what was found before it failed counts"
    assert [line for line in lines if isinstance(line, Failed)] == [
        Failed("4bit", "second", "RuntimeError: out of order")
    ]


def test_a_process_that_dies_is_followed_by_one_that_goes_on_behind_the_part_in_which_it_died(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    dying = tmp_path / "python"
    dying.write_text(
        '#!/bin/sh\nfor lines; do [ "$last" = --lines ] && break; last=$lines; done\n'
        "for skip; do :; done\n"
        'echo "{\\"type\\":\\"Begun\\",\\"section\\":\\"4bit\\",\\"part\\":\\"part $skip\\"}" >> "$lines"\n'
        '[ "$skip" = 2 ] || { echo "a fault of the device" >&2; kill -9 $$; }\n'
    )
    dying.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(dying))
    lines = gpu_check._section_lines("4bit", "small", CPU, 60.0, tmp_path)
    assert [line.part for line in lines if isinstance(line, Begun)] == ["part 0", "part 1", "part 2"]
    failed = [line for line in lines if isinstance(line, Failed)]
    assert [each.part for each in failed] == ["part 0", "part 1"]
    assert all("a fault of the device" in each.message for each in failed)


def test_a_section_that_takes_longer_than_its_share_is_stopped_and_what_it_found_counts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    found = msgspec.json.encode(finding()).decode()
    endless = tmp_path / "python"
    endless.write_text(
        '#!/bin/sh\nfor lines; do [ "$last" = --lines ] && break; last=$lines; done\n'
        f"echo '{found}' >> \"$lines\"\nsleep 15 &\nexec sleep 15\n"  # one process outlives it
    )
    endless.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(endless))
    monkeypatch.setattr(gpu_check, "_LEAST_S", 0.1)
    began = time.monotonic()
    lines = gpu_check._section_lines("4bit", "small", CPU, 2.0, tmp_path)
    assert time.monotonic() - began < 60
    assert lines == [finding(), Failed("4bit", "", "stopped after 2 s, its share of the time")]


def test_no_section_gets_more_than_what_is_left_of_the_time() -> None:
    assert all(0 < section.share < 1 for section in SECTIONS.values())


def test_a_section_without_time_is_told(tmp_path: Path) -> None:
    (line,) = gpu_check._section_lines("4bit", "small", CPU, 1.0, tmp_path)
    assert line == Failed("4bit", "", "no time was left")


def test_it_needs_no_package_that_a_machine_for_training_lacks() -> None:
    found = run_python(
        "import sys, midspan_engine.bench.gpu_check\n"
        "print(sorted({'lsprotocol', 'platformdirs', 'pygls', 'transformers'} & sys.modules.keys()))"
    )
    assert found.strip() == "[]"


@pytest.mark.slow
def test_on_a_cpu_the_whole_check_runs_and_writes_json_and_a_table(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "midspan_engine", "gpu-check", "--device", "cpu", "--shape", "small"]
    command += ["--minutes", "60", "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    check = msgspec.json.decode((tmp_path / "gpu-check.json").read_bytes(), type=GpuCheck)
    assert check.is_good
    assert {finding.section for finding in check.findings} == set(SECTIONS) - {"kernels"}
    assert check.kernels
    assert "transformers compiled in bf16, over this" in {finding.name for finding in check.findings}
    assert "GPU check: good" in (tmp_path / "gpu-check.md").read_text()
