"""`midspan verify` tells a faithful checkpoint from one that the two implementations read differently."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner

from midspan_engine.errors import CheckpointError, InputError
from midspan_engine.verify import TOLERANCE, Answers, command, compare, verify
from oracle import SHAPES, write_checkpoint

# transformers' generate() imports the compiler, which still uses what torch itself deprecates.
pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checkpoint")
    write_checkpoint(folder, SHAPES["one expert"])
    settings = {
        "max_denoising_steps": 6,
        "sampler_config": {"_cls_name": "EntropyBoundSamplerConfig", "entropy_bound": 0.2},
    }
    (folder / "generation_config.json").write_text(json.dumps({**settings, "eos_token_id": [1]}))
    return folder


def test_json_holds_the_largest_difference_and_whether_the_traces_are_identical(checkpoint: Path) -> None:
    done = CliRunner().invoke(command, [str(checkpoint), "--json", "--seed", "3"])
    assert done.exit_code == 0, done.output
    said = json.loads(done.stdout)
    assert said.keys() == {"max_abs_diff", "trace_identical"}
    assert 0 < said["max_abs_diff"] < TOLERANCE
    assert said["trace_identical"] is True


def test_table_names_every_output_that_was_compared(checkpoint: Path) -> None:
    done = CliRunner().invoke(command, [str(checkpoint), "--prompt-tokens", "3"])
    assert done.exit_code == 0, done.output
    for wanted in ("encoder logits", "decoder logits", "self-conditioned", "12 denoising steps", "identical"):
        assert wanted in done.output


def test_verification_leaves_the_global_random_state_alone(checkpoint: Path) -> None:
    before = torch.get_rng_state()
    verify(checkpoint, n_prompt_tokens=2)
    assert torch.equal(torch.get_rng_state(), before)


def test_command_is_reached_through_the_engine_and_a_foreign_folder_is_unusable_input(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "midspan_engine", "verify", str(tmp_path)], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 2
    assert "config.json is missing" in done.stderr
    assert "Traceback" not in done.stderr


def test_out_of_tolerance_exits_with_one(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("midspan_engine.verify.TOLERANCE", 0.0)
    done = CliRunner().invoke(command, [str(checkpoint)])
    assert done.exit_code == 1
    assert "over 0e+00" in done.output


def test_an_unusable_checkpoint_is_told_before_transformers_is_asked(checkpoint: Path, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes((checkpoint / "config.json").read_bytes())
    with pytest.raises(CheckpointError, match="download the weights"):
        verify(tmp_path)


def test_a_prompt_beyond_the_positions_is_refused(checkpoint: Path) -> None:
    with pytest.raises(InputError, match="--prompt-tokens of at most 992"):
        verify(checkpoint, n_prompt_tokens=993)


def test_without_transformers_the_message_says_what_to_install(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "transformers" else found(name))
    with pytest.raises(InputError, match="pip install transformers"):
        verify(checkpoint)


def test_traces_part_at_the_first_step_that_differs_or_is_missing() -> None:
    one, other = torch.tensor([[1, 2]]), torch.tensor([[1, 3]])
    outputs = {"logits": torch.zeros(2)}

    def first_step_apart(own: list[torch.Tensor], reference: list[torch.Tensor]) -> int | None:
        return compare(Answers(outputs, own), Answers(outputs, reference)).first_step_apart

    assert first_step_apart([one, one], [one, one]) is None
    assert first_step_apart([one, other], [one, one]) == 2
    assert first_step_apart([one], [one, one]) == 2
