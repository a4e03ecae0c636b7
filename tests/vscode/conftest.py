"""One workbench for all tests in VS Code, an engine of their own, and a project to type in."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from sample import split_sample
from window import Window
from workbench import REPOSITORY, Workbench, run_midspan

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext, Playwright

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def vsix() -> Path:
    """The extension as it is given to users."""
    found = sorted((REPOSITORY / "editors" / "vscode").glob("midspan-*.vsix"))
    if not found:
        pytest.fail("there is no midspan-*.vsix in editors/vscode; `make vscode` builds it")
    return found[-1]


@pytest.fixture(scope="session")
def playwright() -> Iterator[Playwright]:
    """The driver of browsers, of which a process has one."""
    # Here, so that the ordinary tests are collected without it.
    from playwright.sync_api import sync_playwright

    with sync_playwright() as running:
        yield running


@pytest.fixture(scope="session")
def workbench(playwright: Playwright, vsix: Path) -> Iterator[Workbench]:
    """A workbench with an empty profile; its folder has a short name because sockets lie in it."""
    with (
        tempfile.TemporaryDirectory(prefix="ms-", ignore_cleanup_errors=True) as home,
        Workbench.running(playwright, Path(home), vsix) as running,
    ):
        # Loaded before the first key: VS Code waits less than a second for an answer.
        run_midspan(running, "engine", "start")
        yield running
        run_midspan(running, "engine", "stop")


@pytest.fixture(scope="session")
def context(workbench: Workbench) -> BrowserContext:
    """A browser profile."""
    return workbench.context()


@pytest.fixture(scope="session")
def shared_window(
    workbench: Workbench, context: BrowserContext, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Window]:
    """The window of most tests: opening one takes seconds."""
    with Window.on(workbench, context, tmp_path_factory.mktemp("shop")) as opened:
        yield opened


@pytest.fixture
def project(shared_window: Window) -> Path:
    """A copy of a real file, with one line taken out, under a name that no test has used."""
    head, tail = split_sample()
    file = shared_window.folder / f"inventory_{next(_numbers)}.py"
    file.write_text(f"{head}            \n{tail}")
    return file


@pytest.fixture
def bare_window(shared_window: Window) -> Iterator[Window]:
    """A window without an open file."""
    yield shared_window
    shared_window.clear()


@pytest.fixture
def window(bare_window: Window, project: Path) -> Window:
    """A window with the cursor at the end of the emptied line of the project's file."""
    head, _ = split_sample()
    bare_window.open(project, head.count("\n"))
    return bare_window
