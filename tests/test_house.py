"""The rules of the house that no linter knows: who imports whom, what the front end never loads, how long a file is."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCE_ROOTS = {"midspan_server": "server", "midspan_engine": "engine", "midspan_kernels": "kernels"}

# What a client may know of the engine: the words on the wire, how they are framed, what can go wrong, and which
# commands there are.
CLIENT_SIDE = {f"midspan_engine.{leaf}" for leaf in ("protocol", "framing", "errors", "commands", "said_twice")}
LEAVES = CLIENT_SIDE | {"midspan_engine.config"}

# The engine from top to bottom; a module imports from its own layer or from those below. What serves requests stands
# below the commands that measure it, so it cannot lean on the oracle, the trainer or the benchmarks.
ENGINE_LAYERS = (
    ("__main__",),
    ("host", "bench", "verify"),
    ("worker", "connection", "watchdog", "endpoint", "footprint", "evaluation", "training", "generate", "causal"),
    ("edit", "rows"),
    ("likelihood",),
    ("engine",),
    ("unsettled", "probe"),
    ("echo",),
    ("length_policy", "side_by_side", "candidates"),
    ("prefix_cache", "denoise"),
    ("causal_vote", "passes"),
    ("prompt", "causal_reader", "repeats", "left_to_right", "entropy_order", "workspace"),
    ("rivals", "encoding"),
    (
        "order",
        "healing",
        "canvas",
        "noise",
        "sampler",
        "step_reports",
        "accept",
        "tokens",
        "chat",
        "said_twice",
        "segments",
        "slips",
        "texts",
    ),
    ("weights", "graphs"),  # the loader builds the model that it fills
    ("quantised_cache", "budget"),
    ("formats",),
    ("models",),
    ("kv_pool",),
    ("kv",),
    (
        "framing",
        "checkpoint_files",
        "job_queue",
        "lent_files",
        "withheld",
        "trouble",
        "vitals",
        "commands",
        "cpu",
        "device",
        "gone_clients",
    ),
    ("protocol", "config", "errors"),
)

SOURCE_SUFFIXES = {".py", ".lua", ".sh", ".ts", ".js", ".vim"}
TEXT_SUFFIXES = SOURCE_SUFFIXES | {".md", ".txt", ".toml", ".tsv", ".json", ".yml", ".yaml", ".cfg", ""}
GENERATED = {"node_modules", "__pycache__", "build", "dist", "artifacts"}
LONGEST_FILE = 400

# A tokenizer's words come from its training data, and samples from held-out files, not from us.
DATA_FILES = {"tokenizer.json", "SAMPLES.md"}
# Folders of build machines and hosts of package registries; written so that this file does not find itself.
OF_A_BUILD_MACHINE = re.compile(
    r"(?<![\w}])/(work/(main|shared|[.]library)|root/|opt/(pypi|wheels)|tmp/brief)"
    r"|\b(pypi|pythonhosted|download[.]pytorch|npmjs|deb[.]debian|debian)[.](org|com)\b"
)


@cache
def own_files() -> tuple[Path, ...]:
    """Return every file of the repository that people wrote, whether committed yet or not."""
    found: list[Path] = []
    for folder, subfolders, names in os.walk(ROOT):
        subfolders[:] = [n for n in subfolders if n == ".ci" or not (n.startswith(".") or n in GENERATED)]
        found += [Path(folder, name) for name in names]
    return tuple(sorted(path for path in found if path.suffix in TEXT_SUFFIXES and not path.is_symlink()))


@cache
def modules() -> dict[str, Path]:
    """Return our modules by dotted name."""
    found: dict[str, Path] = {}
    for package, root in SOURCE_ROOTS.items():
        for path in sorted((ROOT / root / package).rglob("*.py")):
            parts = path.relative_to(ROOT / root).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imported_names(module: str, tree: ast.AST) -> Iterator[str]:
    """Yield the dotted name of everything that `tree` imports, inside functions too; `from a import b` gives a.b."""
    is_package = modules()[module].name == "__init__.py"
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                own = module.split(".")
                package = own[: len(own) - node.level + is_package]
                base = ".".join([*package, *filter(None, [node.module])])
            yield from (f"{base}.{alias.name}" for alias in node.names)


@cache
def imports_of(module: str) -> frozenset[str]:
    """Return what `module` imports: our modules by their own name, everything else by its dotted name."""
    tree = ast.parse(modules()[module].read_text(encoding="utf-8"))
    own_or_parent = (
        name if name in modules() or name.rpartition(".")[0] not in modules() else name.rpartition(".")[0]
        for name in imported_names(module, tree)
    )
    return frozenset(own_or_parent) - {module}


def own_imports(module: str) -> set[str]:
    return {name for name in imports_of(module) if name.split(".")[0] in SOURCE_ROOTS}


def of_package(package: str) -> list[str]:
    return [name for name in modules() if name.split(".")[0] == package]


def engine_part(module: str) -> str:
    """Return the first name below the engine's package: a module, or a folder of them."""
    return module.split(".")[1]


def engine_modules() -> list[str]:
    return [name for name in of_package("midspan_engine") if name != "midspan_engine"]


def run_python(program: str) -> str:
    roots = os.pathsep.join(str(ROOT / root) for root in SOURCE_ROOTS.values())
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": roots},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("package", SOURCE_ROOTS)
def test_every_package_is_typed_and_present(package: str) -> None:
    folder = ROOT / SOURCE_ROOTS[package] / package
    assert (folder / "py.typed").is_file()
    assert (folder / "__init__.py").is_file()


def test_the_server_knows_only_the_wire_of_the_engine() -> None:
    strangers = {
        module: beyond
        for module in of_package("midspan_server")
        if (beyond := {n for n in own_imports(module) if not n.startswith("midspan_server")} - CLIENT_SIDE)
    }
    assert not strangers, f"the server may import only {sorted(CLIENT_SIDE)}: {strangers}"


def test_kernels_import_only_torch_and_triton() -> None:
    allowed = {"torch", "triton", "midspan_kernels", "__future__"} | sys.stdlib_module_names
    strangers = {
        module: beyond
        for module in of_package("midspan_kernels")
        if (beyond := {name for name in imports_of(module) if name.split(".")[0] not in allowed})
    }
    assert not strangers, f"kernels stand alone: {strangers}"


def test_the_engine_never_imports_the_server() -> None:
    assert not [m for m in of_package("midspan_engine") if any(n.startswith("midspan_server") for n in imports_of(m))]


def test_leaf_modules_import_only_each_other() -> None:
    strangers = {leaf: beyond for leaf in sorted(LEAVES & modules().keys()) if (beyond := own_imports(leaf) - LEAVES)}
    assert not strangers, f"leaves must stay leaves: {strangers}"


def test_every_engine_module_has_one_layer() -> None:
    named = sorted(part for layer in ENGINE_LAYERS for part in layer)
    assert named == sorted({engine_part(module) for module in engine_modules()})


def test_no_import_goes_up_a_layer() -> None:
    rank = {part: rank for rank, layer in enumerate(ENGINE_LAYERS) for part in layer}
    upward = [
        f"{module} imports {name}"
        for module in engine_modules()
        for name in own_imports(module)
        if name in engine_modules() and rank[engine_part(name)] < rank[engine_part(module)]
    ]
    assert not upward, f"imports go down only: {upward}"


def serving() -> set[str]:
    """Return the modules that a request passes through, the client's and the engine's."""
    asked = {"midspan_engine.host", *of_package("midspan_server")}
    while more := {name for module in asked for name in own_imports(module)} - asked:
        asked |= more
    return asked


def test_what_serves_requests_never_leans_on_the_oracle_the_trainer_or_a_benchmark() -> None:
    beside = {"generate", "causal", "training", "evaluation"}
    assert not [name for name in serving() if name.startswith("midspan_engine.") and engine_part(name) in beside]


def test_what_serves_requests_sends_nothing_beyond_this_machine() -> None:
    networked = {"aiohttp", "ftplib", "http", "httpx", "requests", "smtplib", "urllib.request", "urllib3", "websockets"}
    speaking = {
        module: found
        for module in serving()
        if (found := {name for name in imports_of(module) for other in networked if f"{name}.".startswith(f"{other}.")})
        or re.search(r"AF_INET|\b(open|create)_connection\(|\bstart_server\(", modules()[module].read_text("utf-8"))
    }
    assert not speaking, f"no telemetry, and sockets of this machine only: {speaking}"


def test_our_modules_import_each_other_without_a_cycle() -> None:
    try:
        TopologicalSorter({module: own_imports(module) for module in modules()}).prepare()
    except CycleError as error:
        pytest.fail("a cycle of imports: " + " -> ".join(error.args[1]))


def test_transformers_is_imported_only_inside_functions() -> None:
    at_start = [
        module
        for module, path in modules().items()
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.Import | ast.ImportFrom) and "transformers" in ast.unparse(node)
    ]
    assert not at_start, f"transformers is a test dependency: {at_start}"


def test_front_end_and_protocol_never_load_torch() -> None:
    clients = [m for m in of_package("midspan_server") if not m.endswith("__main__")]
    wanted = [*clients, *sorted(CLIENT_SIDE & modules().keys())]
    told = run_python(
        "import importlib, sys\n"
        f"for name in {wanted!r}:\n"
        "    importlib.import_module(name)\n"
        "    heavy = sorted({'torch', 'triton', 'transformers', 'midspan_kernels'} & sys.modules.keys())\n"
        "    if heavy:\n"
        "        sys.exit(f'importing {name} loads {heavy}')\n"
        "print('light')"
    )
    assert told.strip() == "light"


def test_no_file_speaks_of_a_build_machine_or_a_registry() -> None:
    found = [
        f"{path.relative_to(ROOT)} holds {match[0]}"
        for path in own_files()
        if path.name not in DATA_FILES
        for match in OF_A_BUILD_MACHINE.finditer(path.read_text(encoding="utf-8", errors="replace"))
    ]
    assert not found, found


def test_no_source_file_outgrows_its_noun() -> None:
    too_long = []
    for path in (path for path in own_files() if path.suffix in SOURCE_SUFFIXES):
        name = path.relative_to(ROOT).as_posix()
        n_lines = len(path.read_text(encoding="utf-8").splitlines())
        if n_lines > LONGEST_FILE:
            too_long.append(f"{name}: {n_lines} lines")
    assert not too_long, f"at most {LONGEST_FILE} lines a file; split by noun: {too_long}"
