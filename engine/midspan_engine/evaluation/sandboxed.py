"""The inside of `sandbox.py`: run as a script of its own, with nothing but the standard library.

Reads a word and, below it, a program from stdin; takes everything away from itself that a test does not need, runs
the program and writes the word back when it came to its end.
"""

from __future__ import annotations

import ctypes
import os
import resource
import sys

MEMORY_BYTES = 2**30
"""Address space: the interpreter takes 30 MB of it, a test a little more. Chosen."""
CPU_S = 5
"""Processor seconds: the tests of the data set take a few hundredths. Chosen."""

_CLONE_NEWUSER, _CLONE_NEWNET = 0x10000000, 0x40000000  # linux/sched.h
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_REFUSED = ("os.", "shutil.", "subprocess.", "socket.", "ctypes.", "pty.", "fcntl.", "signal.pthread_kill", "tempfile.")
_ALLOWED = ("os.listdir", "os.scandir", "os.walk", "os.fwalk", "os.putenv", "os.unsetenv")


def refuse(event: str, args: tuple[object, ...]) -> None:
    """Stops, as an audit hook, whatever writes files, starts processes, opens sockets or calls C."""
    is_write = event == "open" and isinstance(args[2], int) and bool(args[2] & _WRITING)
    if is_write or (event.startswith(_REFUSED) and event not in _ALLOWED):
        raise PermissionError(f"{event} is not allowed here")


def leave_network() -> None:
    """Moves this process into a network namespace without interfaces, where the system lets it."""
    unshare = getattr(ctypes.CDLL(None), "unshare", None)
    if unshare is not None and unshare(_CLONE_NEWNET) != 0:
        unshare(_CLONE_NEWUSER | _CLONE_NEWNET)


def confine() -> None:
    """Gives up files, processes, network and more than a little memory and time; there is no way back."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S + 1))
    leave_network()
    sys.addaudithook(refuse)


def main() -> None:
    """Runs the program of stdin."""
    word, _, program = sys.stdin.read().partition("\n")
    verdict = os.dup(1)
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    confine()
    exec(compile(program, "program", "exec"), {"__name__": "__main__"})
    os.write(verdict, word.encode())


if __name__ == "__main__":
    main()
