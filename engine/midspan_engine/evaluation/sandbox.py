"""Runs what a model wrote, together with its tests.

The program runs in a process of its own, in an empty folder that is removed afterwards, without environment variables
and with limits on processor time, waiting time, memory and file size (no byte can be written to a file). Where the
system allows it the process is in a network namespace without interfaces; everywhere an audit hook of the interpreter
refuses sockets, files opened for writing, changes of folders, new processes and calls of C. That holds honest mistakes
of a model. It is no jail for an attacker: files of the user can be read, and code that sets out to defeat the
interpreter from inside gets past the hook, though not past the limits.
"""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

SCRIPT = Path(__file__).with_name("sandboxed.py")
PATIENCE_S = 30.0
"""Waiting time: many times the processor time, for busy machines. Chosen."""


def runs_through(program: str, patience_s: float = PATIENCE_S) -> bool:
    """Says whether a program runs to its end without an error, within the limits.

    The end is told by a word that the program does not know, so leaving early is no success.
    """
    word = secrets.token_hex(16)
    try:
        sent = f"{word}\n{program}".encode()
    except UnicodeEncodeError:  # half a character is no Python
        return False
    with tempfile.TemporaryDirectory(prefix="midspan-eval-") as folder:
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-B", str(SCRIPT)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=folder,
            env={"PYTHONHASHSEED": "0"},
            start_new_session=True,
        )
        try:
            told, _ = process.communicate(sent, timeout=patience_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            told, _ = process.communicate()
    return told == word.encode()
