"""`midspan bench`: what completion costs on this machine, beside baselines that are run in turn with it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import click
import msgspec
import torch
from rich.console import Console
from rich.progress import track

from midspan_engine.bench.beside import measure_beside
from midspan_engine.bench.ceilings import measure_ceilings
from midspan_engine.bench.fills import measure_carried_on, measure_fills, measure_rows, own_cases
from midspan_engine.bench.kernels import measure_kernels
from midspan_engine.bench.keys import measure_keys
from midspan_engine.bench.report import Report, print_report
from midspan_engine.bench.shapes import SHAPES
from midspan_engine.bench.synthetic import capture_passes, synthetic_model
from midspan_engine.config import embedded_checkpoint
from midspan_engine.cpu import cpu_dtype, cpu_threads
from midspan_engine.device import serving_device
from midspan_engine.engine import Engine
from midspan_engine.errors import InputError
from midspan_engine.evaluation.cases import Case
from midspan_engine.footprint import measure_memory
from midspan_engine.models.diffusion_gemma import DiffusionGemma

OF_A_MODEL = ("transformers", "kernels")
"""Sections that need no tokenizer, so that random weights serve too."""
_N_TOKENS = 1024
"""Of a document in the pool of captured passes; more than any section reads."""
SECTIONS = ("fills", "keys", "memory", *OF_A_MODEL)


@click.command(name="bench")
@click.option("--checkpoint", type=click.Path(path_type=Path), help="Checkpoint folder.  [default: the one that ships]")
@click.option(
    "--shape",
    type=click.Choice(tuple(SHAPES)),
    help="Random weights of this shape, made on the device, instead of a checkpoint; for the last two sections.",
)
@click.option(
    "--section",
    "sections",
    type=click.Choice(SECTIONS),
    multiple=True,
    help="Measure this alone; may be given several times.  [default: all]",
)
@click.option("--cases", "n_cases", type=click.IntRange(min=1), default=60, show_default=True, help="Number of gaps.")
@click.option("--threads", type=click.IntRange(min=1), help="CPU threads; default: as the resident engine takes.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of tables.")
def command(
    checkpoint: Path | None,
    shape: str | None,
    sections: tuple[str, ...],
    n_cases: int,
    threads: int | None,
    as_json: bool,
) -> None:
    """Measure what completion costs on this machine.

    \b
    fills         one-line fills with a warm prefix, beside the same weights run token by token
    keys          from a key to its suggestion, through a real language server
    memory        what engine and language server take
    transformers  this engine beside transformers on the same weights: a pass, a canvas, peak memory
    kernels       each kernel beside its reference, and how near to a copy's or a matrix product's speed
    """
    torch.set_num_threads(threads or cpu_threads())
    cases: list[Case] = []
    found: dict[str, Any] = {}
    if shape is None:
        checkpoint = checkpoint or embedded_checkpoint()
        engine = Engine.load(checkpoint)
        model, cases = engine.model, own_cases(n_cases)
        found |= _of_engine(engine, checkpoint, cases, sections or SECTIONS)
    else:
        if checkpoint is not None:
            raise InputError(
                "--checkpoint and --shape exclude each other: weights are read or random, give one of them"
            )
        if beyond := set(sections) - set(OF_A_MODEL):
            raise InputError(f"random weights cannot serve --section {min(beyond)}: leave out --shape, or the section")
        device = serving_device(SHAPES[shape])
        dtype = torch.bfloat16 if device.type == "cuda" else cpu_dtype()
        model = synthetic_model(SHAPES[shape], dtype, device)
        if device.type == "cuda" and model.has_fixed_shapes:
            capture_passes(model, _N_TOKENS, [(1, model.config.canvas_length)])
    found |= _of_model(model, checkpoint, sections or SECTIONS)
    report = Report(
        device=str(model.embed_tokens.weight.device),
        threads=torch.get_num_threads(),
        n_parameters=model.n_weights,
        cases=len(cases),
        **found,
    )
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(report)))
    else:
        print_report(report)


def _of_engine(engine: Engine, checkpoint: Path, cases: Sequence[Case], sections: Sequence[str]) -> dict[str, Any]:
    console = Console(stderr=True)

    def progress(cases: Sequence[Case]) -> Iterable[Case]:
        return track(cases, "measuring", console=console, transient=True)

    found: dict[str, Any] = {}
    if "fills" in sections:
        found["methods"], found["canvas"] = measure_fills(engine, cases, progress)
        found["carried_on"], found["rows"] = measure_carried_on(engine, cases), measure_rows(engine, cases[0])
    if "keys" in sections:
        found["keys"] = measure_keys(checkpoint, cases, progress)
    if "memory" in sections:
        found["memory_mb"] = measure_memory(checkpoint, (cases[0].prefix, cases[0].suffix))
    return found


def _of_model(model: DiffusionGemma, checkpoint: Path | None, sections: Sequence[str]) -> dict[str, Any]:
    weight = model.embed_tokens.weight
    found: dict[str, Any] = {}
    if "transformers" in sections:
        found["transformers"] = measure_beside(model, checkpoint)
    if "kernels" in sections:
        best = found["ceilings"] = measure_ceilings(weight.device, weight.dtype)
        found["kernels"] = measure_kernels(model.config, weight.dtype, weight.device, best)
    return found
