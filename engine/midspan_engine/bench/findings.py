"""What a check of a GPU found: lines that each part tells as it goes, and the JSON and the table made of them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from midspan_engine.bench.ceilings import Ceilings
from midspan_engine.bench.kernels import KERNEL_COLUMNS, KernelRow, kernel_cells


class Machine(msgspec.Struct, frozen=True, tag=True):
    """Where it ran, and on what."""

    device: str
    python: str
    packages: dict[str, str]
    """Versions by name, "missing" for one that is not there."""


class Begun(msgspec.Struct, frozen=True, tag=True):
    """A part is about to run."""

    section: str
    part: str


class Finding(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """One figure."""

    section: str
    name: str
    value: float
    unit: str
    floor: float | None = None
    """What it could be at best, from this machine's measured bandwidth."""
    published_floor: float | None = None
    """The same from the bandwidth of the datasheet."""
    at_most: float | None = None
    at_least: float | None = None
    is_check: bool = False
    """Whether the check fails when it is out of bounds: of numbers that are wrong, not of a target that is missed."""
    note: str = ""

    def __post_init__(self) -> None:
        if not math.isfinite(self.value):  # JSON would lose it
            raise ValueError(f"{self.name} is {self.value}, no number")

    @property
    def is_met(self) -> bool | None:
        """Whether it is within its bounds; None without any."""
        if self.at_most is None and self.at_least is None:
            return None
        low = -math.inf if self.at_least is None else self.at_least
        high = math.inf if self.at_most is None else self.at_most
        return low <= self.value <= high


class Failed(msgspec.Struct, frozen=True, tag=True):
    """A part that could not be carried through."""

    section: str
    part: str
    message: str


Line = Machine | Ceilings | Begun | Finding | KernelRow | Failed


class GpuCheck(msgspec.Struct, frozen=True, kw_only=True):
    """All of it."""

    shape: str
    seconds: float
    machine: Machine | None
    ceilings: Ceilings | None
    findings: list[Finding]
    kernels: list[KernelRow]
    failures: list[Failed]

    @property
    def is_good(self) -> bool:
        """Whether everything ran and gave the right numbers. A target that is missed does not count."""
        wrong = [finding for finding in self.findings if finding.is_check and not finding.is_met]
        return not self.failures and not wrong and all(row.is_right in (True, None) for row in self.kernels)


def gathered(shape: str, seconds: float, lines: Iterable[Line]) -> GpuCheck:
    """Returns what lines say, in their order."""
    found = list(lines)

    def of(kind: type) -> list:  # type: ignore[type-arg]
        return [line for line in found if isinstance(line, kind)]

    return GpuCheck(
        shape=shape,
        seconds=seconds,
        machine=next(iter(of(Machine)), None),
        ceilings=next(iter(of(Ceilings)), None),
        findings=of(Finding),
        kernels=of(KernelRow),
        failures=of(Failed),
    )


def markdown(check: GpuCheck) -> str:
    """Returns a page of tables."""
    return "\n".join(_page(check)) + "\n"


def _page(check: GpuCheck) -> Iterator[str]:
    yield f"# GPU check: {'good' if check.is_good else 'FAILED'}"
    yield ""
    if check.machine is not None:
        packages = ", ".join(f"{name} {version}" for name, version in check.machine.packages.items())
        yield f"{check.machine.device}; Python {check.machine.python}, {packages}; {check.seconds:.0f} s."
    yield f"Model: random weights of the {check.shape} shape."
    if check.ceilings is not None:
        best = check.ceilings
        yield f"A copy moves {best.gb_per_s:.0f} GB/s, a matrix product makes {best.tflop_per_s:.1f} TFLOP/s (bf16)."
    if check.failures:
        yield from _table("Failed", ("section", "part", "what happened"), (_failure(one) for one in check.failures))
    if check.findings:
        columns = ("section", "what", "found", "floor", "published floor", "target", "", "note")
        yield from _table("Figures", columns, (_cells(finding) for finding in check.findings))
    if check.kernels:
        yield from _table("Kernels", KERNEL_COLUMNS, (kernel_cells(row) for row in check.kernels))


def _table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield ""
    yield f"## {title}"
    yield ""
    yield f"| {' | '.join(columns)} |"
    yield "|---" * len(columns) + "|"
    for row in rows:
        yield f"| {' | '.join(row)} |"


def _failure(failed: Failed) -> tuple[str, ...]:
    return failed.section, failed.part, " ".join(failed.message.replace("|", "/").split())


def _cells(finding: Finding) -> tuple[str, ...]:
    bounds = [f"<= {_figure(finding.at_most)}"] if finding.at_most is not None else []
    bounds += [f">= {_figure(finding.at_least)}"] if finding.at_least is not None else []
    bad = "WRONG" if finding.is_check else "missed"
    verdict = {True: "right" if finding.is_check else "met", False: bad, None: ""}[finding.is_met]
    floors = (_figure(finding.floor), _figure(finding.published_floor))
    value = f"{_figure(finding.value)} {finding.unit}"
    return finding.section, finding.name, value, *floors, " ".join(bounds), verdict, finding.note


def _figure(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}" if abs(value) < 100 else f"{value:.0f}"
