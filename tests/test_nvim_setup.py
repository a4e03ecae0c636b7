"""The set-up that the README gives, line by line as it stands there, on the clean profile of a new user."""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path

import pytest

from nvim_editor import PROGRAMS, REPOSITORY, VERSIONS, WATCH_REQUESTS, Editor, nvim_executable, poll
from nvim_sample import LINE, go_to_gap, own_engine, split_sample, write_project

pytestmark = pytest.mark.e2e


_NAMED = re.compile(r"`(vim\.lsp\.config\(\"midspan\", \{ cmd = .*?\}\))`")


def set_up(is_on_path: bool) -> str:
    """Returns the Lua of the README with the paths of this checkout."""
    text = (REPOSITORY / "README.md").read_text(encoding="utf-8").partition("**Neovim")[2]
    lines = text.partition("```lua\n")[2].partition("```")[0]
    if not is_on_path:
        named = _NAMED.search(text)
        assert named, "the README says how to name the program"
        lines += named[1]
    return lines.replace("/path/to/midspan/.venv/bin", str(PROGRAMS)).replace("/path/to/midspan", str(REPOSITORY))


@pytest.mark.parametrize("is_on_path", [True, False], ids=["on the PATH", "named"])
@pytest.mark.parametrize("version", VERSIONS)
def test_the_lines_of_the_readme_are_all_that_a_new_user_needs(version: str, is_on_path: bool) -> None:
    with tempfile.TemporaryDirectory(prefix="midspan-", ignore_cleanup_errors=True) as name, own_engine():
        folder = Path(name)
        init = folder / "config" / "nvim" / "init.lua"
        init.parent.mkdir(parents=True)
        init.write_text(set_up(is_on_path))
        file, listening = write_project(folder / "shop"), folder / "nvim.sock"
        # The only word that is not the user's notes what was answered, so that the test need not guess.
        command = [nvim_executable(version), "--headless", "--listen", str(listening)]
        command += ["--cmd", f"lua {WATCH_REQUESTS}", str(file)]
        places = [str(PROGRAMS)] if is_on_path else []
        places += [each for each in os.environ["PATH"].split(os.pathsep) if not Path(each, "midspan").exists()]
        with Editor.run_by(command, listening, PATH=os.pathsep.join(places)) as opened:
            poll(lambda: not opened.left_alone, "the server was not configured")
            go_to_gap(opened)
            ghost = opened.type_until_ghost(LINE.strip())
            typed = opened.line
            opened.press("<M-l>")
            poll(lambda: opened.line != typed, "the key of the README accepted nothing")
            head, tail = split_sample()
            assert opened.text == f"{head}{typed}{ghost.text}\n{tail}"
