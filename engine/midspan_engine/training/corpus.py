"""The training corpus: Python sources of permissively licensed packages, read straight from their wheels.

`packages.tsv` beside this module lists them, tab-separated under a header line: the name on the package index, the
licence it declared when the list was made (for the reader: what decides is the metadata of the downloaded wheel), and
the use, `train` or `held`. Packages are held out whole, so no file of theirs and no near copy of one is trained on.
"""

from __future__ import annotations

import random
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path

import msgspec
from rich.progress import track

from midspan_engine.training.sources import DuplicateFilter, read_wheel

PACKAGE_LIST = Path(__file__).with_name("packages.tsv")
SHUFFLE_SEED = 20260

PACKAGE_CHARACTERS = 3_000_000
"""The most that is kept of one package, files drawn at random, so that a few large ones do not set the style."""


class Package(msgspec.Struct, frozen=True):
    """One line of the package list."""

    name: str
    licence: str
    use: str


class SourceFile(msgspec.Struct, frozen=True):
    """One file of the corpus; a split is a file of these as JSON, one a line."""

    package: str
    path: str
    licence: str
    text: str


class PackageReport(msgspec.Struct, frozen=True):
    """What the corpus keeps of one package, or the reason why it keeps nothing."""

    package: str
    version: str
    licence: str
    use: str
    n_files: int
    n_characters: int
    skipped: str = ""


def cache_folder() -> Path:
    """Returns where wheels, corpus, packed tokens and runs are kept unless another place is given."""
    # a machine that trains on carried data alone need not have it
    import platformdirs

    return Path(platformdirs.user_cache_dir("midspan"))


def split_path(cache: Path, split: str) -> Path:
    """Returns the file of a split, `train` or `held`, under `cache`."""
    return cache / "corpus" / f"{split}.jsonl"


def read_packages(path: Path = PACKAGE_LIST) -> list[Package]:
    """Return the packages of a list, in its order."""
    rows = (line.split("\t") for line in path.read_text(encoding="utf-8").splitlines()[1:])
    return [Package(name, licence, use) for name, licence, use in rows]


def prepare_corpus(
    cache: Path, packages: Iterable[Package] | None = None, *, n_processes: int = 2
) -> list[PackageReport]:
    """Build `corpus/train.jsonl`, `corpus/held.jsonl` and `corpus/packages.json` under `cache`.

    Wheels missing under `cache/wheels` are downloaded first. A package that cannot be downloaded, or whose licence is
    not permissive, is skipped and its report says why.
    """
    # Held packages come first: of two near copies the held one is kept and the trained one is dropped.
    chosen = sorted(read_packages() if packages is None else packages, key=lambda package: package.use != "held")
    failures = download(chosen, cache / "wheels")
    wheels = find_wheels(cache / "wheels")
    reports = [
        PackageReport(package.name, "", package.licence, package.use, 0, 0, failures.get(package.name, "no wheel"))
        for package in chosen
        if _key(package.name) not in wheels
    ]
    present = [package for package in chosen if _key(package.name) in wheels]
    files: dict[str, list[SourceFile]] = {"train": [], "held": []}
    duplicates = DuplicateFilter()
    # Spawned, since a fork of a process whose tokenizer threads run may hang.
    with ProcessPoolExecutor(n_processes, mp_context=get_context("spawn")) as pool:
        read = pool.map(read_wheel, [wheels[_key(package.name)] for package in present])
        for package, (metadata, candidates) in zip(present, track(read, "sources", total=len(present)), strict=True):
            random.Random(SHUFFLE_SEED).shuffle(candidates)
            kept: list[SourceFile] = []
            n_characters = 0
            for candidate in candidates:
                n_after = n_characters + len(candidate.text)
                if n_after <= PACKAGE_CHARACTERS and duplicates.admit(candidate):
                    kept.append(SourceFile(package.name, candidate.path, metadata.licence, candidate.text))
                    n_characters = n_after
            files[package.use].extend(kept)
            skipped = "" if metadata.is_permissive else "licence is not known to be permissive"
            reports.append(
                PackageReport(
                    package.name, metadata.version, metadata.licence, package.use, len(kept), n_characters, skipped
                )
            )
    folder = cache / "corpus"
    folder.mkdir(parents=True, exist_ok=True)
    for split, members in files.items():
        random.Random(SHUFFLE_SEED).shuffle(members)
        _write_lines(split_path(cache, split), members)
    reports.sort(key=lambda report: _key(report.package))
    (folder / "packages.json").write_bytes(msgspec.json.format(msgspec.json.encode(reports)) + b"\n")
    return reports


def read_split(path: Path) -> Iterator[SourceFile]:
    """Yield the files of one split, in their shuffled order."""
    decoder = msgspec.json.Decoder(SourceFile)
    with path.open("rb") as lines:
        for line in lines:
            yield decoder.decode(line)


def download(packages: Iterable[Package], folder: Path, *, n_parallel: int = 6) -> dict[str, str]:
    """Download the wheels that `folder` lacks and return the error of each package that failed, by its name."""
    folder.mkdir(parents=True, exist_ok=True)
    present = find_wheels(folder)
    missing = [package.name for package in packages if _key(package.name) not in present]
    failures: dict[str, str] = {}
    if not missing:
        return failures
    with ThreadPoolExecutor(n_parallel) as pool:
        futures = {pool.submit(_download_one, name, folder): name for name in missing}
        for future in track(as_completed(futures), "wheels", total=len(futures)):
            if error := future.result():
                failures[futures[future]] = error
    return failures


def find_wheels(folder: Path) -> dict[str, Path]:
    """Return the wheels of a folder by normalised package name, the newest file where there are several."""
    return {_key(wheel.name.split("-")[0]): wheel for wheel in sorted(folder.glob("*.whl"), key=_age)}


def _download_one(name: str, folder: Path) -> str:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    command += ["--only-binary=:all:", "--dest", str(folder), name]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode == 0:
        return ""
    errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
    return errors[-1] if errors else f"pip ended with status {done.returncode}"


def _write_lines(path: Path, files: Iterable[SourceFile]) -> None:
    with path.open("wb") as target:
        for file in files:
            target.write(msgspec.json.encode(file) + b"\n")


def _key(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _age(path: Path) -> float:
    return path.stat().st_mtime
