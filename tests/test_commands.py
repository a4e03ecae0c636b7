"""Errors of a command, whichever of the two command lines it belongs to: one line on stderr and an exit status."""

from __future__ import annotations

import sys
from types import ModuleType

import click
import msgspec
import pytest

from midspan_engine.commands import LazyGroup, run
from midspan_engine.errors import EngineError, InputError

RAISED = {
    "input": InputError("no such place; choose another"),
    "engine": EngineError("the engine died; start it again"),
    "internal": ZeroDivisionError("division by zero"),
    "interrupt": KeyboardInterrupt(),
}


@click.command("fail")
@click.argument("what")
@click.option("--json", "as_json", is_flag=True)
def fail(what: str, as_json: bool) -> None:
    raise RAISED[what]


@pytest.fixture
def group(monkeypatch: pytest.MonkeyPatch) -> click.Group:
    """A command line whose one command lives in a module of its own."""
    module = ModuleType("midspan_fail")
    module.command = fail  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return LazyGroup("midspan", table={"fail": (module.__name__, "Fails."), "absent": ("midspan_absent", "Is gone.")})


@pytest.mark.parametrize(
    ("arguments", "status", "told"),
    [
        (("fail", "input"), 2, "no such place; choose another"),
        (("fail", "engine"), 1, "the engine died; start it again"),
        (("fail",), 2, "missing argument 'WHAT'; see `midspan fail --help`"),
        (("frobnicate",), 2, "no such command 'frobnicate'; see `midspan --help`"),
    ],
)
def test_an_error_is_one_line_and_a_status(
    group: click.Group, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], status: int, told: str
) -> None:
    assert run(group, arguments) == status
    assert capsys.readouterr() == ("", f"midspan: {told}\n")


def test_an_error_of_our_own_names_its_place_and_no_stack_trace(
    group: click.Group, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(group, ["fail", "internal", "--json"]) == 1
    told = capsys.readouterr()
    assert told.err.startswith("midspan: internal error at ")
    assert told.err.endswith(": ZeroDivisionError: division by zero; please report it\n")
    assert told.err.count("\n") == 1
    assert f"midspan: {msgspec.json.decode(told.out)['error']}\n" == told.err


def test_an_interrupt_leaves_quietly(group: click.Group, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(group, ["fail", "interrupt"]) == 130
    assert capsys.readouterr().err.strip() == ""


def test_help_lists_commands_in_their_order_without_importing_them(
    group: click.Group, capsys: pytest.CaptureFixture[str]
) -> None:
    for arguments in (["--help"], []):
        assert run(group, arguments) == 0
        told = capsys.readouterr().out
        assert told.index("Fails.") < told.index("Is gone.")
