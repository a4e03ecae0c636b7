"""The model card, README.md beside the weights: what a checkpoint was trained on, what it can do and what not."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from midspan_engine.config import load_infill_config, load_model_config
from midspan_engine.errors import InputError
from midspan_engine.evaluation.report import Figures, Report
from midspan_engine.training.corpus import PackageReport
from midspan_engine.training.curve import Held, Point, draw_curve, read_curve
from midspan_engine.training.run_folder import RunFolder

CURVE = "curve.svg"
SAMPLES = "SAMPLES.md"
"""What `midspan eval samples --write` writes."""
N_POINTS = 10
"""Lines of the curve's table."""


def write_model_card(
    run: RunFolder, reports: Sequence[PackageReport], evaluation: Path | None, notes: str = ""
) -> Path:
    """Writes README.md and the picture of the curve into the run's checkpoint folder and returns the former's path.

    `notes` are the recipe's. Raises InputError for a bad evaluation.
    """
    (run.checkpoint / CURVE).write_text(draw_curve(read_curve(run.curve)), encoding="utf-8")
    target = run.checkpoint / "README.md"
    sections = (
        _head(run.checkpoint),
        _training(run, notes),
        _results(evaluation),
        _samples(run.checkpoint),
        _limits(run.checkpoint),
        _data(reports),
        _retraining(),
    )
    target.write_text("\n".join(section for section in sections if section), encoding="utf-8")
    return target


def _head(checkpoint: Path) -> str:
    config = load_model_config(checkpoint)
    infill = load_infill_config(checkpoint)
    return f"""---
license: apache-2.0
language: code
tags: [code-completion, infilling, text-diffusion, diffusion-gemma]
---

# A small infilling model for {" and ".join(infill.languages or ("code",)).capitalize()}

A block text-diffusion model with the DiffusionGemma architecture, trained from scratch on one machine. It
fills the gap around a cursor: the text before the gap and the first tokens behind it are read by a causal encoder,
which writes what it is sure of; in doubt the gap is denoised on a canvas whose other slots hold the text on both sides.

- {config.n_layers} layers of width {config.hidden_size} with {config.n_heads} heads, bf16
- byte-level BPE vocabulary of {config.vocab_size}, canvas of {config.canvas_length} slots
- gaps of at most {infill.gap_tokens} tokens, {infill.prompt_tokens} tokens before and {infill.head_tokens} behind them
- loads in Midspan and, with the same logits, in `DiffusionGemmaForBlockDiffusion` of transformers. The vision tower
  that the architecture asks for is a stub without weights; images are not supported.
"""


def _training(run: RunFolder, notes: str) -> str:
    done = run.progress()
    lines = [
        "## Training",
        "",
        f"{done.step} steps, {done.positions / 1e6:.1f} million token positions (rows and canvases), "
        f"{done.seconds / 60:.0f} minutes.",
        "",
        *([notes.strip(), ""] if notes else []),
        "Cross-entropy of the averaged weights on packages that were held out whole, nats a token; quoted: of a gap's",
        "tokens with the suffix in front; canvas: over the hidden slots of a gap, from one pass.",
        "",
        "| step | million positions | next token | quoted | canvas |",
        "|---:|---:|---:|---:|---:|",
    ]
    lines += [
        f"| {point.step} | {point.positions / 1e6:.2f} | {_losses(point.held)} |"
        for point in _thinned(read_curve(run.curve))
    ]
    return "\n".join([*lines, "", f"![The same losses by million positions]({CURVE})"]) + "\n"


def _losses(held: Held) -> str:
    return " | ".join(f"{loss:.2f}" for loss in (held.causal, held.quoted, held.canvas))


def _thinned(points: list[Point]) -> list[Point]:
    stride = max(1, -(-len(points) // N_POINTS))
    return points[::-1][::stride][::-1]


def _results(evaluation: Path | None) -> str:
    if evaluation is None:
        return ""
    try:
        read = msgspec.json.decode(evaluation.read_bytes(), type=Report)
    except (OSError, msgspec.DecodeError) as error:
        raise InputError(f"{evaluation} is no output of `midspan eval --json`: {error}") from error
    lines = [
        "## Results",
        "",
        f"One-line gaps of held-out packages, true length {read.length}; all but a public model use these weights.",
        f"Shown: with a confidence of at least {read.min_confidence}. Valid: the whole file parses after the fill.",
        "",
        "| method | exact | similarity | valid | shown | exact of shown | valid of shown | steps |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    lines += [
        f"| {name} | {' | '.join(f'{score:.1%}' for score in _shares(scores))} | {scores.steps:.1f} |"
        for name, scores in read.methods.items()
    ]
    return "\n".join(lines) + "\n"


def _shares(scores: Figures) -> tuple[float, ...]:
    return scores.exact, scores.similarity, scores.valid, scores.shown, scores.shown_exact, scores.shown_valid


def _samples(checkpoint: Path) -> str:
    if not (checkpoint / SAMPLES).exists():
        return ""
    return f"""## Samples

[{SAMPLES}]({SAMPLES}) shows gaps that a seed drew and what came, good and bad (`midspan eval samples`).
"""


def _limits(checkpoint: Path) -> str:
    languages = " and ".join(load_infill_config(checkpoint).languages or ("all languages",)).capitalize()
    return f"""## Limits

- {languages} only, and short gaps: the rest of a line, arguments, an expression, a few lines. Requests for other
  languages are answered with silence and the reason.
- Gaps were trained in ASCII surroundings only; names and strings in other scripts are copied poorly.
- It knows no more than its size allows: it guesses names and libraries wrongly, and what it writes is neither tested
  nor secure. Its confidence is there to hide most of that; read what you accept.
"""


def _data(reports: Sequence[PackageReport]) -> str:
    kept = [report for report in reports if report.n_files]
    parts = ["## Data", ""]
    for use, told in (("train", "Trained on"), ("held", "Held out for evaluation")):
        chosen = [report for report in kept if report.use == use]
        n_files, n_characters = sum(r.n_files for r in chosen), sum(r.n_characters for r in chosen)
        size = f"{n_files} files, {n_characters / 1e6:.1f} million characters"
        parts += [f"{told}: the Python sources of {len(chosen)} packages ({size}).", ""]
    parts += [
        "All come from the Python package index, under the permissive licences that their metadata declare; vendored,",
        "generated, invalid and duplicate files are left out.",
        "",
        "| package | version | licence | use | files |",
        "|---|---|---|---|---:|",
    ]
    parts += [f"| {r.package} | {r.version} | {r.licence.replace('|', '/')} | {r.use} | {r.n_files} |" for r in kept]
    return "\n".join(parts) + "\n"


def _retraining() -> str:
    return """## Training it again

`midspan train python-small` downloads the packages, learns the vocabulary, packs the files and trains; it can be
stopped and goes on when the same command is given again. `midspan train --help` tells how to begin with this
checkpoint, with more steps, or with data of your own.
"""
