"""The command line with the shipped checkpoint behind it: answers, bad checkpoints, and an engine that dies."""

from __future__ import annotations

import os
import pty
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from command_line import SHOP, Environment, midspan, refused, write
from midspan_server.launch import Launch


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """A file whose second line ends after `return`."""
    return write(tmp_path, SHOP.replace(" price * quantity", " ").encode())


def answer_of(done: subprocess.CompletedProcess[bytes]) -> Any:
    assert done.returncode == 0, done.stderr.decode()
    return msgspec.json.decode(done.stdout)


def pid_of_engine(environment: Environment) -> int:
    engine = answer_of(midspan(environment, "status", "--json"))["engine"]
    return int(engine["pid"])


def test_json_has_a_candidate_on_one_line_and_its_cost(environment: Environment, shop: Path) -> None:
    answer = answer_of(midspan(environment, "fill", shop, "--at", "2:12", "--json"))
    assert answer["silence"] is None
    assert answer["stats"].keys() == {"ms", "steps", "encoder_steps", "carried_steps", "decoder_ms"}
    assert answer["stats"]["steps"] + answer["stats"]["encoder_steps"] >= 1
    (candidate,) = answer["candidates"]
    assert 0 <= candidate["confidence"] <= 1
    assert "\n" not in candidate["text"]


def test_the_same_seed_gives_the_same_answer(environment: Environment, shop: Path) -> None:
    call = ("fill", shop, "--at", "2:12", "--json", "-n", "3", "--seed", "7")
    first, second = (answer_of(midspan(environment, *call))["candidates"] for _ in range(2))
    assert first == second


def test_a_pipe_gets_the_text_alone(environment: Environment, shop: Path) -> None:
    answer = answer_of(midspan(environment, "fill", shop, "--at", "2:12", "--json"))
    done = midspan(environment, "fill", shop, "--at", "2:12")
    assert done.stdout.decode() == answer["candidates"][0]["text"] + "\n"


def test_a_bracket_that_is_closed_after_the_gap_is_not_printed_again(environment: Environment, tmp_path: Path) -> None:
    path = write(tmp_path, b"def size(path):\n    return len()\n")
    call = (path, "--at", "2:16")
    answer = answer_of(midspan(environment, "fill", *call, "--json"))
    assert [each["text"] for each in answer["candidates"]] == ["path"]
    assert midspan(environment, "fill", *call).stdout == b"path\n"
    holes = midspan(environment, "fill", path, "--holes", "--min-confidence", "0")
    assert b"\n+    return len(path)\n" in holes.stdout


def test_unsaved_text_comes_from_stdin(environment: Environment, shop: Path) -> None:
    missing = shop.with_name("unsaved.py")
    done = midspan(environment, "fill", missing, "--at", "2:12", "--stdin", stdin=shop.read_bytes())
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.strip()


def test_watch_tells_every_step_on_stderr(environment: Environment, shop: Path) -> None:
    done = midspan(environment, "fill", shop, "--at", "2:12", "--watch", "--json")
    stats = answer_of(done)["stats"]
    told = done.stderr.decode().splitlines()
    assert len(told) == stats["steps"] + stats["encoder_steps"]
    assert all(re.match(r"pass \d+, \d+ of \d+ settled: ", line) for line in told)


def test_a_terminal_shows_the_line_with_the_suggestion_highlighted(environment: Environment, shop: Path) -> None:
    terminal, end = pty.openpty()
    call = [sys.executable, "-m", "midspan_server", "fill", str(shop), "--at", "2:12"]
    colours = {**environment, "TERM": "xterm-256color", "COLUMNS": "100"}
    process = subprocess.Popen(call, env=colours, stdin=end, stdout=end, stderr=subprocess.DEVNULL)
    os.close(end)
    shown = b""
    try:
        while chunk := os.read(terminal, 4096):
            shown += chunk
    except OSError:  # Linux ends a terminal without writers with EIO
        pass
    os.close(terminal)
    assert process.wait(timeout=60) == 0
    assert re.search(rb"return \x1b\[[\d;]*42m", shown), shown
    assert b"in the decoder, confidence" in shown


def test_a_language_that_the_checkpoint_does_not_know_is_a_reasoned_silence(
    environment: Environment, tmp_path: Path
) -> None:
    path = write(tmp_path, b"fn main() {\n    let x = ;\n}\n", "main.rs")
    answer = answer_of(midspan(environment, "fill", path, "--at", "2:13", "--json"))
    assert answer["candidates"] == []
    assert "rust" in answer["silence"]
    piped = midspan(environment, "fill", path, "--at", "2:13")
    assert (piped.returncode, piped.stdout) == (0, b"")
    assert answer["silence"] in piped.stderr.decode()


def test_status_tells_of_the_engine_that_answered(environment: Environment, shop: Path) -> None:
    answer_of(midspan(environment, "fill", shop, "--at", "2:12", "--json"))
    told = midspan(environment, "status").stdout.decode()
    assert "ready" in told
    assert any(line.split()[-1] == str(Launch.resolve().checkpoint) for line in told.splitlines()), "lines stay whole"
    assert "python" in told


def test_a_killed_engine_is_replaced_by_the_next_fill(environment: Environment, shop: Path) -> None:
    answer_of(midspan(environment, "engine", "start", "--json"))
    killed = pid_of_engine(environment)
    os.kill(killed, signal.SIGKILL)
    assert answer_of(midspan(environment, "fill", shop, "--at", "2:12", "--json"))["candidates"]
    assert pid_of_engine(environment) != killed


def broken(tmp_path: Path, how: str) -> Path:
    """Return a checkpoint folder that cannot be used."""
    folder = tmp_path / how
    if how == "missing":
        return folder
    shutil.copytree(Launch.resolve().checkpoint, folder)
    if how == "truncated":
        weights = max(folder.glob("*.safetensors"), key=lambda path: path.stat().st_size)
        os.truncate(weights, weights.stat().st_size // 2)
    else:
        (folder / "config.json").write_text('{"model_type": "llama", "architectures": ["LlamaForCausalLM"]}')
    return folder


@pytest.mark.parametrize("how", ["missing", "truncated", "foreign"])
def test_an_unusable_checkpoint_is_one_clear_line_and_status_2(
    environment: Environment, shop: Path, tmp_path: Path, how: str
) -> None:
    checkpoint = broken(tmp_path, how)
    call = ("--checkpoint", checkpoint)
    told = refused(midspan(environment, "fill", shop, "--at", "2:12", *call))
    assert str(checkpoint) in told
    assert "internal error" not in told
    assert ("(--checkpoint, the setting `checkpoint` or MIDSPAN_CHECKPOINT)" in told) == (how == "missing")
    assert "failed" in midspan(environment, "status", *call).stdout.decode()
    assert midspan(environment, "engine", "stop", *call).returncode == 0


def test_the_demo_prints_gaps_latency_steps_and_where_to_go_next(environment: Environment, tmp_path: Path) -> None:
    settings = tmp_path / "config" / "midspan" / "settings.json"
    settings.parent.mkdir(parents=True)
    settings.write_text('{"min_confidence": 0}')  # whether the model is sure of itself is not the question here
    done = midspan({**environment, "TMPDIR": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path / "config")}, "demo")
    told = done.stdout.decode()
    assert done.returncode == 0, done.stderr.decode()
    assert "The first answer came after" in told
    assert len(re.findall(r"\d+ ms through the language server", told)) == 3
    assert re.search(r"\d+ ms through the language server, \d+ pass(es)?, ", told)
    assert "fill " in told
    assert list(tmp_path.glob("midspan-demo-*")) == []
