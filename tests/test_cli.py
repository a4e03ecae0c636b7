"""The command line as a user calls it: real processes, their output and their exit status."""

from __future__ import annotations

import re
import signal
import socket
import struct
import subprocess
import sys
from pathlib import Path
from typing import BinaryIO

import msgspec
import pytest

from command_line import SHOP, Environment, environment_in, midspan, refused, write
from midspan_engine.framing import pack
from midspan_engine.protocol import Cancel, EngineStatus, Fill, Request, StatusRequest
from midspan_server.launch import Launch
from midspan_server.presets import MEANINGS, PRESETS

COMMANDS = ("lsp", "fill", "status", "engine", "demo")
READY = EngineStatus(id=0, version="0", pid=1, checkpoint="model", device="cpu", state="ready")


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    return environment_in(tmp_path)


def started(environment: Environment, *arguments: str | Path) -> subprocess.Popen[bytes]:
    pipe = subprocess.PIPE
    command = [sys.executable, "-m", "midspan_server", *map(str, arguments)]
    return subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe)


def decode(stream: BinaryIO) -> Request:
    """Return the next request on the engine's side of a connection."""
    (size,) = struct.unpack(">I", stream.read(4))
    return msgspec.msgpack.decode(stream.read(size), type=Request)


@pytest.mark.parametrize(
    ("data", "at", "told"),
    [
        (SHOP.encode(), "99:1", "choose a line from 1 to 3"),
        (SHOP.encode(), "1:99", "choose a column from 1 to 28"),
        (SHOP.encode(), "here", "write LINE:COL"),
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "1:1", "binary file"),
        (b"caf\xe9 = 1\n", "1:1", "not valid UTF-8"),
        (b"", "1:1", "is empty"),
    ],
)
def test_unusable_input_is_one_clear_line_and_status_2(
    environment: Environment, tmp_path: Path, data: bytes, at: str, told: str
) -> None:
    done = midspan(environment, "fill", write(tmp_path, data), "--at", at)
    assert told in refused(done)
    assert done.stdout == b""


def test_a_missing_file_is_one_clear_line_and_status_2(environment: Environment, tmp_path: Path) -> None:
    assert "does not exist" in refused(midspan(environment, "fill", tmp_path / "shop.py", "--at", "1:1"))


def test_a_line_of_5_megabytes_is_one_clear_line_and_status_2(environment: Environment, tmp_path: Path) -> None:
    path = write(tmp_path, b"x = '" + b"y" * 5_000_000 + b"'\n")
    assert "5,000,006 characters" in refused(midspan(environment, "fill", path, "--at", "1:2500000"))


def test_an_error_is_json_too_for_a_reader_of_json(environment: Environment, tmp_path: Path) -> None:
    done = midspan(environment, "fill", write(tmp_path, SHOP.encode()), "--at", "99:1", "--json")
    assert f"midspan: {msgspec.json.decode(done.stdout)['error']}\n" == refused(done)


@pytest.mark.parametrize(
    "arguments",
    [
        ("fill",),
        ("fill", "shop.py"),
        ("fill", "shop.py", "--at", "1:1", "-n", "0"),
        ("fill", "shop.py", "--at", "1:1", "--min-confidence", "2"),
        ("fill", "shop.py", "--at", "1:1", "--frobnicate"),
        ("frobnicate",),
        ("engine", "frobnicate"),
    ],
)
def test_a_wrong_call_is_one_clear_line_that_names_the_help(
    environment: Environment, arguments: tuple[str, ...]
) -> None:
    assert "--help`" in refused(midspan(environment, *arguments))


def test_a_file_of_secrets_is_refused_by_whatever_name(environment: Environment, tmp_path: Path) -> None:
    secret = write(tmp_path, b"TOKEN=1\n", ".env")
    link = tmp_path / "harmless.py"
    link.symlink_to(secret)
    for path in (secret, link):
        assert "'.env*'" in refused(midspan(environment, "fill", path, "--at", "1:1"))


def test_settings_that_cannot_be_read_refuse_every_fill(environment: Environment, tmp_path: Path) -> None:
    settings = Path(environment["XDG_CONFIG_HOME"], "midspan", "settings.json")
    settings.parent.mkdir(parents=True)
    settings.write_text('{"excluded_globs": ["[a"]}')
    done = midspan(environment, "fill", write(tmp_path, SHOP.encode()), "--at", "1:1")
    assert done.returncode == 2
    assert "nothing is completed until it is right" in done.stderr.decode()


def test_an_interrupt_withdraws_the_fill_and_leaves_quietly(
    environment: Environment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MIDSPAN_RUNTIME_DIR", environment["MIDSPAN_RUNTIME_DIR"])
    address = Launch.resolve(tmp_path / "model").socket
    address.parent.mkdir(mode=0o700)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(address))
        listener.listen()
        listener.settimeout(60)
        arguments = ("fill", write(tmp_path, SHOP.encode()), "--at", "2:12", "--checkpoint", tmp_path / "model")
        with started(environment, *arguments) as process:
            silent_engine = listener.accept()[0]
            with silent_engine, silent_engine.makefile("rb") as stream:
                greeted = decode(stream)
                assert isinstance(greeted, StatusRequest)
                silent_engine.sendall(pack(msgspec.structs.replace(READY, id=greeted.id)))
                asked = decode(stream)
                process.send_signal(signal.SIGINT)
                withdrawn = decode(stream)
            output, told = process.communicate(timeout=60)
    assert isinstance(asked, Fill)
    assert withdrawn == Cancel(id=asked.id)
    assert (process.returncode, output, told.strip()) == (130, b"", b"")


@pytest.mark.parametrize("call", [("status", "--json"), ("demo", "--help"), ("verify", "--help"), ("bench", "--help")])
def test_modules_of_the_project_are_never_imported(environment: Environment, tmp_path: Path, call: list[str]) -> None:
    project = tmp_path / "project"
    project.mkdir()
    for name in ("torch", "json", "msgspec"):
        (project / f"{name}.py").write_text("raise SystemExit('a module of the project was imported')\n")
    command = [sys.executable, "-P", "-m", "midspan_server", *call]  # as the script `midspan`, which has its own path
    done = subprocess.run(command, cwd=project, env=environment, capture_output=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_demo_without_a_suggestion_fails_with_the_reason_and_leaves_nothing(
    environment: Environment, tmp_path: Path
) -> None:
    settings = Path(environment["XDG_CONFIG_HOME"], "midspan", "settings.json")
    settings.parent.mkdir(parents=True)
    settings.write_text('{"enabled": false}')
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    done = midspan({**environment, "TMPDIR": str(temporary)}, "demo")
    assert "completion is switched off" in refused(done, status=1)
    assert not re.search(r"\d pass", done.stdout.decode())
    assert list(temporary.iterdir()) == []


def test_an_error_about_a_path_that_is_not_unicode_is_told(environment: Environment, tmp_path: Path) -> None:
    done = midspan(environment, "fill", tmp_path / "a\udcff.py", "--at", "1:1", "--json")
    assert "a?.py does not exist" in refused(done)
    assert "a?.py does not exist" in msgspec.json.decode(done.stdout)["error"]


def test_no_engine_is_a_normal_answer(environment: Environment) -> None:
    done = midspan(environment, "status")
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"No engine is running" in done.stdout
    assert msgspec.json.decode(midspan(environment, "status", "--json").stdout)["engine"] is None
    assert midspan(environment, "engine", "stop").returncode == 0


def test_help_is_told_without_torch(environment: Environment) -> None:
    commands = ["", *COMMANDS, "engine start", "engine stop"]
    program = (
        "import sys; from midspan_server.cli import main\n"
        f"for command in {commands!r}:\n"
        "    if main([*command.split(), '--help']) or 'torch' in sys.modules:\n"
        "        sys.exit(f'midspan {command} --help fails or loads torch')"
    )
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.count(b"Usage: midspan") == len(commands)


def test_help_says_what_each_preset_does_and_what_a_range_holds(environment: Environment) -> None:
    told = " ".join(midspan(environment, "edit", "--help").stdout.decode().split())
    assert all(f"{preset.id}: {MEANINGS[preset.id]}" in told for preset in PRESETS)
    assert "without the character at its end" in told
    told = " ".join(midspan(environment, "fill", "--help").stdout.decode().split())
    assert "Prints every answer, however doubtful" in told
    assert "counts as a hole even where it is right; narrow with --range" in told


def test_the_list_of_commands_imports_none_of_them(environment: Environment) -> None:
    program = (
        "import sys; from midspan_server.cli import main; main(['--help']); "
        "sys.exit(' '.join(sorted(name for name in sys.modules if name.endswith('_command') or name == 'asyncio')))"
    )
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, timeout=120)
    assert done.stderr.strip() == b""
    for command in (*COMMANDS, "verify", "eval", "bench", "train"):
        assert f"  {command} ".encode() in done.stdout


def test_engine_commands_answer_for_themselves(environment: Environment) -> None:
    """`--help` and unknown options reach the engine's own command line."""
    done = midspan(environment, "verify", "--help")
    assert done.returncode == 0, done.stderr.decode()
    assert b"Usage: midspan verify" in done.stdout
    done = midspan(environment, "verify", "--frobnicate", "--json")
    assert f"midspan: {msgspec.json.decode(done.stdout)['error']}\n" == refused(done)
