"""What the adapters promise in their own files: everything a user can press or set is in the help and in a test."""

from __future__ import annotations

import json
import re
from pathlib import Path

from midspan_server.settings import Settings

ROOT = Path(__file__).parent.parent
NVIM = ROOT / "editors" / "nvim"
HELP = (NVIM / "doc" / "midspan.txt").read_text(encoding="utf-8")
NVIM_TESTS = "".join(path.read_text(encoding="utf-8") for path in sorted(ROOT.glob("tests/*nvim_*.py")))


def actions() -> set[str]:
    source = (NVIM / "lua" / "midspan" / "command.lua").read_text(encoding="utf-8")
    table = source.partition("local actions = {\n")[2].partition("\n}")[0]
    return set(re.findall(r"^  (\w+) = ", table, re.MULTILINE))


def maps() -> set[str]:
    source = (NVIM / "plugin" / "midspan.lua").read_text(encoding="utf-8")
    found = re.findall(r'<Plug>\(midspan-([a-z-]+)\)|^plug\(.*?, "([a-z-]+)", "midspan', source, re.MULTILINE)
    return {name for pair in found for name in pair if name}


def test_every_action_of_the_command_is_in_the_help_and_run_in_a_real_neovim() -> None:
    assert {"status", "edit", "holes", "watch"} < actions()
    assert {name for name in actions() if not re.search(rf":\S*Midspan \[?{name}\b", HELP)} == set()
    assert {name for name in actions() if not re.search(rf'[("%.\d]Midspan {name}\b', NVIM_TESTS)} == set()


def test_every_map_is_in_the_help_and_pressed_in_a_real_neovim() -> None:
    assert {"accept", "accept-line", "edit", "hunk-reject-all"} < maps()
    assert {name for name in maps() if f"*<Plug>(midspan-{name})*" not in HELP} == set()
    assert {name for name in maps() if f'"{name}"' not in NVIM_TESTS} == set()


def test_every_setting_is_in_the_help_of_neovim() -> None:
    told = HELP.partition("*midspan-settings*")[2].partition("=====")[0]
    assert set(Settings.__struct_fields__) == set(re.findall(r"^([a-z_]+)\s{2,}\S", told, re.MULTILINE))


def test_every_colour_is_in_the_help_of_neovim() -> None:
    sources = "".join(path.read_text(encoding="utf-8") for path in NVIM.rglob("*.lua"))
    colours = set(re.findall(r'"(Midspan[A-Z]\w+|ComplHint\w*)"', sources))
    assert len(colours) == 9
    assert {name for name in colours if not re.search(rf"^    {name} ", HELP, re.MULTILINE)} == set()


def test_the_extension_runs_where_the_files_are_and_starts_no_program_of_a_stranger() -> None:
    manifest = json.loads((ROOT / "editors" / "vscode" / "package.json").read_text(encoding="utf-8"))
    assert manifest["extensionKind"] == ["workspace"], "in a remote or WSL window: on the remote side"
    untrusted = manifest["capabilities"]["untrustedWorkspaces"]
    assert untrusted["supported"] == "limited"
    settings = manifest["contributes"]["configuration"]["properties"]
    of_the_machine = [name for name, each in settings.items() if each.get("scope") == "machine-overridable"]
    assert of_the_machine == untrusted["restrictedConfigurations"] == ["midspan.path", "midspan.checkpoint"]
