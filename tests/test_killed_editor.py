"""An editor that is killed takes its language server with it at once, and in the end nothing of it is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from host_process import PATIENCE_S, is_running, wait_until
from soak.measures import engines_of

pytestmark = pytest.mark.skipif(
    not Path("/proc").is_dir(), reason="only /proc tells what became of somebody else's child"
)

GONE_S = 1.0
"""What is claimed."""
NOISE = 5
"""Times as long it may take where others use the machine."""

EDITOR = """
import json, os, subprocess, sys, time
folder, moment, held = sys.argv[1:]
server = subprocess.Popen([sys.executable, "-P", "-m", "midspan_server", "lsp"], stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)

def send(method, params, **id):
    body = json.dumps({"jsonrpc": "2.0", "method": method, "params": params, **id}).encode()
    server.stdin.write(b"Content-Length: %d\\r\\n\\r\\n" % len(body) + body)
    server.stdin.flush()

def hear(id):
    message = {}
    while message.get("id") != id:
        n_body = 0
        while (line := server.stdout.readline()).strip():
            n_body = int(line.partition(b":")[2]) if line.lower().startswith(b"content-length") else n_body
        message = json.loads(server.stdout.read(n_body))

# Some other program of the editor keeps pipes open, so that their end never comes.
pipes = {"none": [], "stdin": [server.stdin], "both": [server.stdin, server.stdout]}[held]
child = subprocess.Popen(["sleep", "600"], stdout=subprocess.DEVNULL, pass_fds=[pipe.fileno() for pipe in pipes])
options = {"checkpoint": os.path.join(folder, "no-such-checkpoint"), "idle_minutes": 0.01}
send("initialize", {"processId": os.getpid(), "rootUri": None, "initializationOptions": options,
                    "capabilities": {"textDocument": {"inlineCompletion": {}}}}, id=1)
hear(1)
send("initialized", {})
document = {"uri": "file:///a.py", "languageId": "python", "version": 1, "text": "x = "}
send("textDocument/didOpen", {"textDocument": document})
send("textDocument/inlineCompletion", {"textDocument": {"uri": "file:///a.py"}, "context": {"triggerKind": 1},
                                       "position": {"line": 0, "character": 4}}, id=2)
if moment == "answered":
    hear(2)
if held == "both":  # what the server has to say fills the pipe, and nobody reads it
    for id in range(3, 1500):
        send("midspan/unknown", {}, id=id)
print(server.pid, child.pid, flush=True)
time.sleep(600)
"""


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable, name in (("MIDSPAN_RUNTIME_DIR", "run"), ("XDG_STATE_HOME", "state"), ("XDG_CONFIG_HOME", "config")):
        monkeypatch.setenv(variable, str(tmp_path / name))


@pytest.fixture(params=[("asked", "none"), ("asked", "stdin"), ("answered", "stdin"), ("answered", "both")])
def editor(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[tuple[int, int, int]]:
    """Starts an editor; yields the processes of itself, its language server and another child of it."""
    program = [sys.executable, "-c", EDITOR, str(tmp_path), *request.param]
    started = subprocess.Popen(program, stdout=subprocess.PIPE)
    assert started.stdout is not None
    with started.stdout:
        server, child = map(int, started.stdout.readline().split())
    yield started.pid, server, child
    for pid in filter(is_running, (server, child)):
        os.kill(pid, signal.SIGKILL)
    started.kill()
    started.wait(PATIENCE_S)


def watches(pid: int) -> list[int]:
    """Returns whose end a process is told of by the kernel."""
    found = [path.read_text() for path in Path(f"/proc/{pid}/fdinfo").iterdir()]
    return [int(line.split()[1]) for told in found for line in told.splitlines() if line.startswith("Pid:")]


def test_the_language_server_of_a_killed_editor_is_gone_within_a_second_and_the_engine_after_its_idle_time(
    tmp_path: Path, editor: tuple[int, int, int]
) -> None:
    pid, server, child = editor
    if hasattr(os, "pidfd_open"):
        wait_until(lambda: watches(server) == [pid])  # it is not looked for from time to time: its end is told
    os.kill(pid, signal.SIGKILL)
    killed = time.monotonic()
    wait_until(lambda: not is_running(server))
    took = time.monotonic() - killed
    assert is_running(child), "it holds the pipes open all along"
    wait_until(lambda: not list((tmp_path / "run").glob("*")) and not engines_of(tmp_path / "run"))
    print(f"gone after {took:.2f} s")
    assert took < NOISE * GONE_S
