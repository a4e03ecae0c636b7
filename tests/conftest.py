"""What holds for every test: property tests repeat the same examples and have no clock; torch takes one thread."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from hypothesis import settings

from command_line import Environment, environment_in, midspan
from midspan_server.launch import Launch

# Two OpenMP threads on a machine with other work wait for each other: the parity tests took 391 s instead of 30.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# A busy two-core machine stalls for longer than hypothesis' default deadline of 200 ms; a failure must repeat.
settings.register_profile("midspan", deadline=None, derandomize=True)
settings.load_profile("midspan")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--regenerate", action="store_true", help="write what is compared with files into these files")


@pytest.fixture
def launch(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Launch:
    """Gives servers a home of their own, and returns the launch that they will use."""
    home = tmp_path_factory.mktemp("h")  # short: the path of a socket is
    monkeypatch.setenv("MIDSPAN_RUNTIME_DIR", str(home / "run"))
    monkeypatch.setenv("MIDSPAN_CHECKPOINT", str(home / "checkpoint"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home))
    monkeypatch.setenv("XDG_STATE_HOME", str(home))
    return Launch.resolve()


@pytest.fixture(scope="session")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Environment]:
    """Gives command lines an environment with one resident engine for all of them: importing torch takes seconds."""
    made = environment_in(tmp_path_factory.mktemp("engine"))
    yield made
    midspan(made, "engine", "stop")
