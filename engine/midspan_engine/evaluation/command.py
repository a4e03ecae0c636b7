"""`midspan eval SUITE`: measures suggestions on code that was never trained on; tables, JSON and a picture."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec
import torch
from rich.console import Console
from rich.progress import track

from midspan_engine.commands import CONTEXT_SETTINGS
from midspan_engine.config import embedded_checkpoint, load_model_config, write_infill_config
from midspan_engine.cpu import cpu_threads
from midspan_engine.engine import Engine
from midspan_engine.evaluation.calibration import calibrate, changed
from midspan_engine.evaluation.cases import MULTI_LINE_KIND, Case, held_out_cases, held_out_files, trained_files
from midspan_engine.evaluation.comparison import compare
from midspan_engine.evaluation.humaneval import KINDS, humaneval_cases
from midspan_engine.evaluation.keystrokes import Typist, draw_regions
from midspan_engine.evaluation.language_server import LanguageServer
from midspan_engine.evaluation.length_table import length_tables
from midspan_engine.evaluation.methods import Method, Methods, lend
from midspan_engine.evaluation.plot import draw, require_plotting
from midspan_engine.evaluation.public_model import HOW_TO_GET, NAME, PublicModel
from midspan_engine.evaluation.report import Report
from midspan_engine.evaluation.samples import as_markdown, draw_samples
from midspan_engine.evaluation.signals import compare_signals
from midspan_engine.evaluation.tables import calibration_table, signals_table, tables
from midspan_engine.protocol import SHOWN_CONFIDENCE
from midspan_engine.training.corpus import SourceFile, cache_folder, split_path
from midspan_engine.training.model_card import SAMPLES

T = TypeVar("T")

AS_SHOWN = "midspan, as shown"
"""Through the language server: what its filters and its default settings leave."""
ONE_LINE_PER_MULTI_LINE = 5
"""One gap of several lines for so many of one line: as many as of each kind of those."""


@dataclass(frozen=True)
class Run:
    """What all suites are asked for."""

    checkpoint: Path
    seed: int
    as_json: bool
    plot: Path | None

    def tell(self, report: Report, markdown: str | None = None) -> None:
        """Prints a report as tables or JSON, and draws it; its tables are those in `markdown` if there are any."""
        if self.as_json:
            click.echo(msgspec.json.format(msgspec.json.encode(report)))
        elif markdown is not None:
            click.echo(markdown)
        else:
            console = Console()
            for table in tables(report):
                console.print(table)
            for note in report.notes:
                console.print(note, soft_wrap=True)
        if self.plot is not None:
            draw(report, self.plot)


def _drawable(context: click.Context, parameter: click.Parameter, path: Path | None) -> Path | None:
    if path is not None:
        require_plotting(path)
    return path


_cases = click.option(
    "--cases", "n_cases", type=click.IntRange(min=1), default=500, show_default=True, help="Number of gaps."
)
_json = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of tables.")
_seed = click.option("--seed", default=0, show_default=True, help="Which places are drawn.")
_checkpoint = click.option(
    "--checkpoint",
    type=click.Path(path_type=Path),
    default=embedded_checkpoint,
    help="Model folder. Default: the one that ships.",
)


def _common(suite: Callable[..., None]) -> Callable[..., None]:
    """Adds the options that all suites share, and hands them over as a Run."""

    @functools.wraps(suite)
    def command(checkpoint: Path, seed: int, as_json: bool, plot: Path | None, **own: Any) -> None:
        suite(Run(checkpoint, seed, as_json, plot), **own)

    for option in (
        click.option(
            "--plot",
            type=click.Path(path_type=Path),
            callback=_drawable,
            help="Write a picture to this file (.png, .svg, .pdf).",
        ),
        _json,
        _seed,
        _checkpoint,
    ):
        command = option(command)
    return command


_min_confidence = click.option(
    "--min-confidence",
    default=SHOWN_CONFIDENCE,
    show_default=True,
    help="From which confidence an answer counts as shown.",
)
_data = click.option(
    "--data", type=click.Path(path_type=Path), help="A corpus split (held.jsonl); default: the prepared one."
)


@click.group(name="eval", context_settings=CONTEXT_SETTINGS)
def command() -> None:
    """Measure how good suggestions are, beside baselines: tables, JSON, a picture."""


@command.command("held-out")
@click.option(
    "--cases", "n_cases", type=click.IntRange(min=1), default=300, show_default=True, help="Number of one-line gaps."
)
@_min_confidence
@_data
@click.option("--parts", is_flag=True, help="Measure the engine without its vote and its repeats too.")
@click.option(
    "--lengths", is_flag=True, help="Compare ways to find a gap's length instead, by the canvas alone; in Markdown."
)
@_common
def held_out(run: Run, n_cases: int, min_confidence: float, data: Path | None, parts: bool, lengths: bool) -> None:
    """Fill gaps of held-out files.

    They are cut at syntax nodes; for every five of one line there is one of 2 to 6 lines, reported apart.
    """
    files = held_out_files(data or split_path(cache_folder(), "held"), run.seed)
    n_multi_line = -(-n_cases // ONE_LINE_PER_MULTI_LINE)
    cases = held_out_cases(files, n_cases, run.seed)
    cases += held_out_cases(files, n_multi_line, run.seed, (MULTI_LINE_KIND,))
    own = _methods(run.checkpoint, files)
    if lengths:
        report = _compare(run, "held-out, ways to find a length", cases, min_confidence, own, own.lengths())
        run.tell(report, length_tables(report))
        return
    with LanguageServer.running(run.checkpoint, files=files) as server:
        more = {**(own.parts() if parts else {}), AS_SHOWN: server.attempt}
        _fill(run, "held-out", cases, min_confidence, own, more)


@command.command("humaneval")
@click.option("--kind", type=click.Choice(list(KINDS)), default="single-line", show_default=True)
@click.option(
    "--cases",
    "n_cases",
    type=click.IntRange(min=1),
    help="Number of gaps, drawn by the seed; default: all of the kind.",
)
@_min_confidence
@_common
def humaneval(run: Run, kind: str, n_cases: int | None, min_confidence: float) -> None:
    """Fill gaps of HumanEval-Infilling and run the tests.

    pass@1 of one greedy answer, beside the figures of all suites.
    """
    cases = humaneval_cases(kind, n_cases, run.seed)
    _fill(run, f"humaneval {kind}", cases, min_confidence, _methods(run.checkpoint), {})


@command.command("keystrokes")
@click.option(
    "--files", "n_files", type=click.IntRange(min=1), default=20, show_default=True, help="Files with one region each."
)
@_data
@_common
def keystrokes(run: Run, n_files: int, data: Path | None) -> None:
    """Type held-out files; count the keys saved.

    Each key goes through the language server with default settings.
    """
    load_model_config(run.checkpoint)  # what is no checkpoint is refused before a server starts
    files = held_out_files(data or split_path(cache_folder(), "held"), run.seed)
    chosen = list(draw_regions(files, n_files, run.seed))
    with LanguageServer.running(run.checkpoint, files=files) as server:
        typist = Typist(server)
        regions = [typist.type_region(*region) for region in _progress(chosen, "typing")]
    typing = typist.report(regions, run.seed)
    run.tell(
        Report(suite="keystrokes", length="unknown", min_confidence=SHOWN_CONFIDENCE, seed=run.seed, typing=typing)
    )


@command.command("calibrate")
@_cases
@_data
@click.option(
    "--trained",
    type=click.Path(path_type=Path),
    help="The split that it was trained on (train.jsonl); default: the prepared one.",
)
@click.option("--write", "is_written", is_flag=True, help="Write them into the checkpoint's infill_config.json.")
@_seed
@_json
@_checkpoint
def calibrate_command(
    n_cases: int,
    data: Path | None,
    trained: Path | None,
    is_written: bool,
    seed: int,
    as_json: bool,
    checkpoint: Path,
) -> None:
    """Fit a checkpoint's vote and confidence.

    On gaps of held-out packages that the other suites leave alone; what other files repeat is weighed on packages that
    it was trained on.
    """
    files = held_out_files(data or split_path(cache_folder(), "held"), seed, for_calibration=True)
    known = trained_files(trained or split_path(cache_folder(), "train"), seed)
    torch.set_num_threads(cpu_threads())
    engine = Engine.load(checkpoint)
    lend(engine, _progress(known, "reading files"))
    fitted = calibrate(engine, held_out_cases(files, n_cases, seed), held_out_cases(known, n_cases, seed), _progress)
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(fitted)))
    else:
        Console().print(calibration_table(fitted))
    if is_written:
        write_infill_config(checkpoint, changed(engine.infill, fitted))


@command.command("signals", short_help="Ask what else tells whether a suggestion is right.")
@_cases
@_data
@_seed
@_json
@_checkpoint
def signals_command(n_cases: int, data: Path | None, seed: int, as_json: bool, checkpoint: Path) -> None:
    """Ask what else would tell whether a suggestion is right.

    On the gaps that `calibrate` fits on: the probability, which is the confidence, beside entropy, agreement of the
    canvas and how probable a suggestion makes what follows.
    """
    files = held_out_files(data or split_path(cache_folder(), "held"), seed, for_calibration=True)
    torch.set_num_threads(cpu_threads())
    engine = Engine.load(checkpoint)
    lend(engine, files)
    found = compare_signals(engine, held_out_cases(files, n_cases, seed), _progress)
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(found)))
    else:
        Console().print(signals_table(found))


@command.command("samples", short_help="Fill gaps of held-out files; show the answers.")
@click.option("--cases", "n_cases", type=click.IntRange(min=1), default=40, show_default=True, help="Number of gaps.")
@_min_confidence
@_data
@click.option("--write", "is_written", is_flag=True, help=f"Write them to {SAMPLES} beside the weights.")
@_seed
@_checkpoint
def samples(
    n_cases: int, min_confidence: float, data: Path | None, is_written: bool, seed: int, checkpoint: Path
) -> None:
    """Fill gaps of held-out files and show the answers, good and bad.

    One-line gaps as `held-out` draws them, none of them selected, as a page of Markdown.
    """
    files = held_out_files(data or split_path(cache_folder(), "held"), seed)
    cases = held_out_cases(files, n_cases, seed)
    page = as_markdown(
        draw_samples(_progress(cases, "filling"), _methods(checkpoint, files).canvas), min_confidence, seed
    )
    if is_written:
        (checkpoint / SAMPLES).write_text(page, encoding="utf-8")
        click.echo(f"Wrote {checkpoint / SAMPLES}")
    else:
        click.echo(page)


def _methods(checkpoint: Path, files: Sequence[SourceFile] = ()) -> Methods:
    torch.set_num_threads(cpu_threads())
    engine = Engine.load(checkpoint)
    lend(engine, files)
    return Methods(engine)


def _fill(
    run: Run, suite: str, cases: Sequence[Case], min_confidence: float, own: Methods, more: dict[str, Method]
) -> None:
    """Fills cases with every method there is, and tells what came of it."""
    methods = {**own.by_name, **more}
    notes: tuple[str, ...] = ()
    with PublicModel.running(own.prompt_text) as public:
        if public is None:
            notes = (f"{NAME} is left out; to have it beside the others: {HOW_TO_GET}",)
        else:
            methods[NAME] = public.continue_prefix
        run.tell(_compare(run, suite, cases, min_confidence, own, methods, notes))


def _compare(
    run: Run,
    suite: str,
    cases: Sequence[Case],
    min_confidence: float,
    own: Methods,
    methods: Mapping[str, Method],
    notes: tuple[str, ...] = (),
) -> Report:
    """Fills cases with methods, and returns what came of it."""
    one_line, multi_line = compare(
        cases, methods, own.n_tokens, min_confidence, lambda them: _progress(them, "filling")
    )
    return Report(
        suite=suite,
        length="unknown",
        min_confidence=min_confidence,
        seed=run.seed,
        methods=one_line or multi_line,
        multi_line=multi_line if one_line else {},
        notes=notes,
    )


def _progress(items: Sequence[T], what: str) -> Iterable[T]:
    return track(items, description=what, console=Console(stderr=True), transient=True)
