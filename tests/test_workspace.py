"""The other files of a workspace, in the engine."""

from __future__ import annotations

import time

import pytest

from midspan_engine.engine import Engine
from midspan_engine.protocol import WORKSPACE_TOKENS, Fill, Lend
from midspan_engine.texts import NOTHING
from midspan_engine.workspace import Workspace
from served_checkpoint import CHECKPOINT

HELPER = """def launch_rockets(pad_number, countdown_seconds):
    return pad_number * countdown_seconds


first = launch_rockets(pad_number=4, countdown_seconds=60)
"""
PREFIX, SUFFIX = "from helper import launch_rockets\n\nsecond = launch_rockets(pad_number=4, coun", "\n"


@pytest.fixture(scope="module")
def engine() -> Engine:
    return Engine.load(CHECKPOINT)


def lend(engine: Engine, workspace: str, text: str, language: str = "python") -> None:
    engine.lend(Lend(workspace=workspace, file="helper.py", language=language, text=text))


def filled(engine: Engine, workspace: str, file: str = "main.py") -> str:
    request = Fill(id=1, document="main", parts=(PREFIX, SUFFIX), workspace=workspace, file=file)
    candidates = engine.fill(request, received=time.perf_counter(), is_cancelled=lambda: False).candidates
    return candidates[0].text if candidates else ""


def test_what_another_file_says_is_suggested_and_not_what_this_one_said(engine: Engine) -> None:
    lend(engine, "rockets", HELPER)
    assert filled(engine, "rockets") == "tdown_seconds=60)"
    assert filled(engine, "rockets", file="helper.py") != "tdown_seconds=60)", "a file is not told its own text"
    assert filled(engine, "another") != "tdown_seconds=60)", "nor that of another workspace"


def test_a_file_that_is_taken_back_is_looked_at_no_more(engine: Engine) -> None:
    lend(engine, "taken", HELPER)
    assert engine.workspaces["taken"].besides("")[0].matches(engine.tokens.encode("launch_rockets"))[0]
    lend(engine, "taken", "")
    assert "taken" not in engine.workspaces


def test_a_file_lent_again_takes_the_place_of_the_old_one(engine: Engine) -> None:
    workspace = Workspace()
    workspace.lend("a.py", "old_name = 1\n", engine.tokens)
    workspace.lend("a.py", "new_name = 1\n", engine.tokens)
    ids = workspace.besides("")[0].ids
    assert engine.tokens.decode([token for token in ids.tolist() if token >= 0]) == "new_name = 1\n"


def test_what_there_is_no_room_for_is_left_out(engine: Engine) -> None:
    workspace, line = Workspace(), "name = value\n"
    n_lines = WORKSPACE_TOKENS // len(engine.tokens.encode(line))
    workspace.lend("first.py", line * (n_lines // 2), engine.tokens)
    workspace.lend("large.py", line * n_lines, engine.tokens)
    workspace.lend("last.py", line, engine.tokens)
    assert len(workspace) == 2
    assert workspace.besides("large.py")[1] == range(0)


def test_a_language_that_the_checkpoint_does_not_know_is_left_out(engine: Engine) -> None:
    lend(engine, "script", "let x = 1\n", language="javascript")
    assert "script" not in engine.workspaces


def test_a_search_sees_what_is_new_once_the_workspace_is_settled_and_never_what_was_taken_back(engine: Engine) -> None:
    workspace = Workspace()

    def knows(name: str) -> bool:
        return workspace.besides("")[0].matches(engine.tokens.encode(f"{name} ="))[0] > 1

    workspace.lend("a.py", "alpha = 1\n", engine.tokens)
    assert knows("alpha")
    workspace.lend("b.py", "omega = 1\n", engine.tokens)
    assert not workspace.is_settled
    assert workspace.settle()
    assert knows("omega")
    assert not workspace.settle(), "there is nothing more to do"
    workspace.lend("b.py", "", engine.tokens)
    assert not knows("omega")


def test_a_file_is_told_neither_its_first_nor_its_last_token(engine: Engine) -> None:
    workspace = Workspace()
    for name in ("a.py", "b.py", "c.py"):
        workspace.lend(name, f"{name[0]}x = {name[0]}y\n", engine.tokens)
    texts, span = workspace.besides("b.py")
    own = texts.ids[span.start : span.stop - 1].tolist()
    assert engine.tokens.decode(own) == "bx = by\n"
    assert texts.ids[span.stop - 1] == texts.ids[span.start - 1] == NOTHING
