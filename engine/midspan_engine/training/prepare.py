"""Data preparation in one go: wheels, corpus, vocabulary, packed tokens. What is there already is kept."""

from __future__ import annotations

import hashlib
from pathlib import Path

import click
import msgspec

from midspan_engine.errors import InputError
from midspan_engine.training.corpus import PackageReport, prepare_corpus, read_split, split_path
from midspan_engine.training.pack import pack
from midspan_engine.training.vocabulary import N_IDS, load_vocabulary, train_vocabulary

SPLITS = ("held", "train")


def prepare(cache: Path, *, n_processes: int, n_ids: int = N_IDS, tokenizer: Path | None = None) -> Path:
    """Returns the folder of the packed corpus under `cache`, which is built when it is not there.

    `n_ids` is the size of its vocabulary. `tokenizer` is the tokenizer.json of a checkpoint that is trained on; without
    it a vocabulary is learned from the corpus. Raises InputError when no package can be downloaded.
    """
    chosen = tokenizer or cache / f"tokenizer-{n_ids}" / "tokenizer.json"
    folder = cache / f"packed-{n_ids}"
    if tokenizer is not None and not (is_packed(folder) and _is_same(tokenizer, folder / "tokenizer.json")):
        folder = cache / f"packed-{hashlib.sha256(tokenizer.read_bytes()).hexdigest()[:8]}"
    if not is_packed(folder):
        _corpus(cache, n_processes)
        if not chosen.exists():
            click.echo(f"Learning a vocabulary of {n_ids} tokens")
            _train_vocabulary(cache, chosen, n_ids)
        _pack(cache, chosen, folder)
    return folder


def is_packed(folder: Path) -> bool:
    """Tells whether a folder holds all that a run reads."""
    return all((folder / name).is_file() for name in ("tokenizer.json", *(f"{split}.bin" for split in SPLITS)))


def packed_folder(folder: Path) -> Path:
    """Returns a folder that holds all that a run reads. Raises InputError when this one does not."""
    if not is_packed(folder):
        raise InputError(
            f"{folder} does not hold train.bin, held.bin and tokenizer.json: leave --data out to have them made"
        )
    return folder


def corpus_folder(cache: Path) -> Path:
    """Returns where the corpus lies, with packages.json, under `cache`."""
    return cache / "corpus"


def read_reports(corpus: Path) -> list[PackageReport]:
    """Returns what the corpus holds of each package. Raises InputError when it was not made."""
    try:
        return msgspec.json.decode((corpus / "packages.json").read_bytes(), type=list[PackageReport])
    except (FileNotFoundError, msgspec.DecodeError) as error:
        raise InputError(f"{corpus} holds no corpus: run `midspan train RECIPE --prepare-only`") from error


def _corpus(cache: Path, n_processes: int) -> None:
    # written last, so it stands for the whole corpus
    if (corpus_folder(cache) / "packages.json").exists():
        return
    click.echo("Downloading wheels of permissively licensed packages and reading their sources")
    reports = prepare_corpus(cache, n_processes=n_processes)
    kept = [report for report in reports if report.n_files]
    if not {report.use for report in kept} >= set(SPLITS):
        (corpus_folder(cache) / "packages.json").unlink()
        why = next((report.skipped for report in reports if report.skipped), "no file passed the filters")
        raise InputError(f"no corpus came together ({why}): see that `pip download` works on this machine")
    n_characters = sum(report.n_characters for report in kept)
    click.echo(f"Kept {n_characters / 1e6:.0f} million characters of {len(kept)} of {len(reports)} packages")


def _train_vocabulary(cache: Path, target: Path, n_ids: int) -> None:
    try:
        train_vocabulary((file.text for file in read_split(split_path(cache, "train"))), target, n_ids=n_ids)
    except ValueError as error:
        raise InputError(str(error)) from error


def _pack(cache: Path, tokenizer: Path, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    vocabulary = load_vocabulary(tokenizer)
    (folder / "tokenizer.json").write_bytes(tokenizer.read_bytes())
    reports = read_reports(corpus_folder(cache))
    for split in SPLITS:
        n_files = sum(report.n_files for report in reports if report.use == split)
        texts = (file.text for file in read_split(split_path(cache, split)))
        report = pack(texts, vocabulary, folder, split, total=n_files)
        click.echo(f"Packed {split}: {report.n_documents} files, {report.n_tokens / 1e6:.1f} million tokens")


def _is_same(one: Path, other: Path) -> bool:
    return one.read_bytes() == other.read_bytes()
