"""`make gpu-check`: whether Midspan does what it should on a GPU, and how fast, in a few minutes and with one command.

Every section runs in a process of its own, for a share of the time that is left, and writes down every figure as it
finds it. So nothing that breaks loses what others found: not a part that fails, nor a fault of the device, which ends
all work of its process (the next one goes on behind that part), nor a section that does not come to an end.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import click
import msgspec
import torch
from rich.console import Console

from midspan_engine.bench.findings import Begun, Failed, Finding, GpuCheck, Line, gathered, markdown
from midspan_engine.bench.gpu_sections import BF16, COMPILED, FOUR_BITS, SECTIONS, their_step
from midspan_engine.bench.model_sections import WIDE, Targets, on_gpu, step_over
from midspan_engine.bench.shapes import SHAPES
from midspan_engine.errors import InputError

_LEAST_S = 5.0
"""In which no process comes to its first part."""
_TOLD = 400
"""Characters of a failure."""


@click.command(name="gpu-check")
@click.option(
    "--device",
    type=click.Choice(("cuda", "cpu")),
    default="cuda",
    show_default=True,
    help="Where it runs; cpu tries the check itself.",
)
@click.option("--shape", type=click.Choice(tuple(SHAPES)), default="released", show_default=True, help="Of the model.")
@click.option("--minutes", type=click.FloatRange(min=1), default=7.5, show_default=True, help="Time for all of it.")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    default=Path("engine"),
    show_default=True,
    help="Folder of gpu-check.json and gpu-check.md.",
)
@click.option(
    "--section", "sections", type=click.Choice(tuple(SECTIONS)), multiple=True, help="This alone; may be repeated."
)
@click.option("--lines", type=click.Path(path_type=Path), hidden=True, help="Run one section, and write here.")
@click.option("--skip", default=0, hidden=True, help="So many parts of it.")
@click.pass_context
def command(
    ctx: click.Context,
    device: str,
    shape: str,
    minutes: float,
    out: Path,
    sections: tuple[str, ...],
    lines: Path | None,
    skip: int,
) -> None:
    """Check a GPU: kernels, captured passes, memory and speed of a model of the released shape with random weights.

    Nothing is downloaded. Writes JSON and a table; exits with 1 if something failed or gave wrong numbers.
    """
    where = torch.device(device)
    if where.type == "cuda" and not torch.cuda.is_available():
        raise InputError("torch finds no GPU here: run this on a machine with one, or try --device cpu --shape small")
    if lines is not None:
        ctx.exit(_run_section(sections[0], shape, where, lines, skip))
    if not out.is_dir():
        raise InputError(f"there is no folder {out}: give one with --out")
    check = _checked(shape, where, sections or tuple(SECTIONS), minutes * 60, out)
    Console().print(markdown(check), markup=False, soft_wrap=True)
    ctx.exit(0 if check.is_good else 1)


def _checked(shape: str, device: torch.device, sections: tuple[str, ...], budget_s: float, out: Path) -> GpuCheck:
    """Runs the sections in turn and writes the files anew after each."""
    began, lines = time.monotonic(), list[Line]()
    with tempfile.TemporaryDirectory(prefix="midspan-") as folder:
        for section in sections:
            left_s = budget_s - (time.monotonic() - began)
            lines += _section_lines(section, shape, device, left_s * SECTIONS[section].share, Path(folder))
            check = gathered(shape, time.monotonic() - began, [*lines, *_across(lines, device)])
            (out / "gpu-check.json").write_bytes(msgspec.json.format(msgspec.json.encode(check)) + b"\n")
            (out / "gpu-check.md").write_text(markdown(check), encoding="utf-8")
    return check


def _section_lines(section: str, shape: str, device: torch.device, budget_s: float, folder: Path) -> list[Line]:
    """Runs a section, in one process or, where that dies, in several, and returns what they wrote."""
    path, said, until = folder / f"{section}.jsonl", folder / f"{section}.txt", time.monotonic() + budget_s
    lines: list[Line] = []
    while (left_s := until - time.monotonic()) > _LEAST_S:
        n_begun = sum(isinstance(line, Begun) for line in lines)
        command = [sys.executable, "-m", "midspan_engine", "gpu-check", "--device", str(device), "--shape", shape]
        command += ["--section", section, "--lines", str(path), "--skip", str(n_begun)]
        try:
            with said.open("wb") as errors:  # no pipe: processes of a compiler may outlive it and hold that open
                done = subprocess.run(command, stderr=errors, timeout=left_s)
        except subprocess.TimeoutExpired:
            return [
                *_read(path),
                _failure(section, _read(path), f"stopped after {budget_s:.0f} s, its share of the time"),
            ]
        lines = _read(path)
        if done.returncode == 0:
            return lines
        if not (lines and isinstance(lines[-1], Failed)):
            with path.open("ab") as file:
                last_words = said.read_text(encoding="utf-8", errors="replace")[-_TOLD:]
                failure = _failure(section, lines, f"its process ended with {done.returncode}: {last_words}")
                file.write(msgspec.json.encode(failure) + b"\n")
            lines = _read(path)
        if sum(isinstance(line, Begun) for line in lines) == n_begun:
            return lines  # it does not even come to a part
    return [*lines, _failure(section, lines, "no time was left")]


def _failure(section: str, lines: list[Line], message: str) -> Failed:
    begun = [line for line in lines if isinstance(line, Begun)]
    return Failed(section, begun[-1].part if begun else "", message)


def _read(path: Path) -> list[Line]:
    """Returns what was written; of a process that was ended, the last line may be cut."""
    decoder, lines = msgspec.json.Decoder(Line), list[Line]()
    for raw in path.read_bytes().split(b"\n") if path.exists() else ():
        try:
            lines.append(decoder.decode(raw))
        except msgspec.DecodeError:
            break
    return lines


def _run_section(section: str, shape: str, device: torch.device, path: Path, n_skipped: int) -> int:
    """Runs the parts of a section in this process; returns 1 when the device is of no use any more."""
    with path.open("ab", buffering=0) as file, torch.no_grad():

        def tell(line: Line) -> None:
            file.write(msgspec.json.encode(line) + b"\n")

        for name, part in list(SECTIONS[section].parts(SHAPES[shape], device).items())[n_skipped:]:
            tell(Begun(section, name))
            try:
                for line in part():
                    tell(line)
            except Exception as error:  # whatever it is, the other parts still count
                tell(Failed(section, name, f"{type(error).__name__}: {error}"[:_TOLD]))
                if not _works(device):
                    return 1
    return 0


def _works(device: torch.device) -> bool:
    """Tells whether a device still computes: after some faults every call fails."""
    try:
        return bool((torch.ones(2, device=device) + 1).sum() == 4)
    except RuntimeError:
        return False


def _across(lines: list[Line], device: torch.device) -> list[Finding]:
    """Returns what two sections say together: a step in 4 bits beside that of transformers in bf16."""
    found = {(line.section, line.name): line.value for line in lines if isinstance(line, Finding)}
    own = found.get((FOUR_BITS, step_over(WIDE, WIDE)))
    theirs = found.get((BF16, their_step(COMPILED)))
    if own is None or theirs is None:
        return []
    bound = on_gpu(Targets.TIMES_TRANSFORMERS, device)
    name, note = "transformers compiled in bf16, over this", "of two sections of this run"
    return [Finding(section=FOUR_BITS, name=name, value=theirs / own, unit="times", at_least=bound, note=note)]
