"""What is asked of the engine for an edit or for holes, and the changes that its answer comes to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import msgspec

from midspan_engine.errors import InputError
from midspan_engine.protocol import Candidate, Fill, Filled, Held
from midspan_server.context import Context
from midspan_server.filters import Dropped, sifted
from midspan_server.holes import STUB
from midspan_server.hunks import Hunk, applied, hunks
from midspan_server.presets import PRESETS, PresetId, stretch_of
from midspan_server.settings import MAX_TOKENS, Settings
from midspan_server.soundness import fitting, upset
from midspan_server.stretch import Stretch

MAX_EDITED = 16_000
"""Characters that one request denoises or spans: some 4,000 tokens, minutes of a small model on a CPU. Chosen."""
MAX_HOLES = 64
"""Holes of one request; more are left for the next. Chosen."""

UNCHANGED = "the model would change nothing here"
UNSYNTACTIC = Dropped("the change would break the syntax of the file")


class Revision(msgspec.Struct, frozen=True, kw_only=True):
    """Stretches of a text with LF line ends that are to be denoised anew, in whole or in part."""

    text: str
    stretches: tuple[Stretch, ...]
    strength: float = 1.0
    instruction: str = ""
    is_whole: bool = False
    """Whether each stretch is one change, judged like a suggestion; else words and lines are compared."""
    n_holes: int | None = None
    """How many there are, be they too many for one request; None for an edit of one stretch."""

    @classmethod
    def of_holes(cls, text: str, holes: Sequence[Stretch]) -> Revision:
        """Returns the filling of the first holes, as many as one request may have.

        Raises InputError where none is short enough.
        """
        short = [hole for hole in holes if hole.end - hole.start <= MAX_EDITED]
        if not short:
            raise InputError(f"there is no hole of up to {MAX_EDITED:,} characters here; make the hole shorter")
        reachable = [hole for hole in short[:MAX_HOLES] if hole.end - short[0].start <= MAX_EDITED]
        return cls(text=text, stretches=tuple(reachable), is_whole=True, n_holes=len(short))

    @classmethod
    def of(
        cls,
        text: str,
        preset: PresetId | None,
        start: int,
        end: int,
        *,
        strength: float | None = None,
        instruction: str = "",
    ) -> Revision:
        """Returns the edit of a selection, at the strength of its preset unless another is given.

        Where nothing stands yet, the answer is judged like a suggestion. Raises InputError where there is nothing to
        do.
        """
        stretch = stretch_of(preset, text, start, end)
        if strength is not None and not 0 < strength <= 1:
            raise InputError(f"a strength of {strength:g} is none; give a number above 0, up to 1")
        if strength is None:
            strength = next((each.strength for each in PRESETS if each.id == preset), 1.0)
        is_whole = stretch.start == stretch.end
        return cls(text=text, stretches=(stretch,), strength=strength, instruction=instruction, is_whole=is_whole)

    @property
    def ends(self) -> tuple[int, int]:
        """Where the first stretch starts and the last one ends."""
        return self.stretches[0].start, self.stretches[-1].end


class Answer(msgspec.Struct, frozen=True):
    """The changes of a text, or the reason for the silence."""

    changes: tuple[Hunk, ...]
    silence: str | None
    filled: Filled
    message: str | None = None


def request_of(revision: Revision, first: Context, last: Context, document: str, settings: Settings) -> Fill:
    """Returns the request to the engine. `first` surrounds the start of the first stretch, `last` the end of the last.

    Raises InputError when there is too much to do at once.
    """
    text, stretches = revision.text, revision.stretches
    n_characters = stretches[-1].end - stretches[0].start
    if n_characters > MAX_EDITED:
        raise InputError(f"{n_characters:,} characters are too many for one edit; select at most {MAX_EDITED:,}")
    between = [text[a.end : b.start] for a, b in pairwise(stretches)]
    leads = [stretch.lead for stretch in stretches]
    parts = [part + lead for part, lead in zip([first.prefix, *between], leads, strict=True)]
    return Fill(
        id=0,  # the engine client numbers what it sends
        document=document,
        parts=(*parts, last.suffix),
        suffix_is_cut=last.suffix_is_cut,
        language=last.language,
        max_tokens=MAX_TOKENS,
        min_confidence=settings.confidence("invoked"),
        priority="several",
        held=tuple(Held(text=text[each.start : each.end], single_line=each.single_line) for each in stretches),
        strength=revision.strength,
        instruction=revision.instruction,
    )


def outcome_of(revision: Revision, filled: Filled, first: Context) -> Answer:
    """Returns what the engine's answer comes to; `first` surrounds the start of the first stretch."""
    if not filled.candidates:
        silence = filled.silence or "the model has nothing to offer here"
        return Answer((), silence if revision.n_holes is None else f"{_count(revision, 0)}: {silence}", filled)
    changes, reasons = _changes_of(revision, filled.candidates[0], first)
    if not changes:
        return Answer((), _silence_of(revision, reasons), filled)
    return Answer(tuple(changes), None, filled, _message_of(revision, changes, reasons))


def _changes_of(revision: Revision, found: Candidate, first: Context) -> tuple[list[Hunk], dict[int, str]]:
    """Returns the changes to the text that stand every test, and by offset why others do not."""
    kept: list[Hunk] = []
    reasons: dict[int, str] = {}
    for stretch, gap in zip(revision.stretches, found.gaps, strict=True):
        old = revision.text[stretch.start : stretch.end]
        if gap == old:
            continue
        if revision.is_whole and old.strip() and old.strip() in gap:
            reasons[stretch.start] = "the model would write another hole"
            continue
        if not revision.is_whole:
            kept += (change.moved(stretch.start) for change in hunks(old, gap))
            continue
        text = sifted(gap, _context(revision.text, stretch, kept, first))
        if isinstance(text, Dropped):
            reasons[stretch.start] = text.reason
        elif not STUB.fullmatch(text.strip()):
            kept.append(Hunk(stretch.start, stretch.end, stretch.lead + text))
    sound = fitting(revision.text, kept, first.language)
    reasons |= {change.start: UNSYNTACTIC.reason for change in kept if change not in sound}
    # Nobody has asked for another name: a rewritten head of a function is a mistake.
    if not revision.instruction and (wrong := upset(revision.text, sound, first.language)):
        return [], reasons | {change.start: wrong for change in sound}
    return sound, reasons


def _silence_of(revision: Revision, reasons: Mapping[int, str]) -> str:
    """Returns why nothing is changed: of an edit the first reason, of holes that of each with its lines."""
    if revision.n_holes is None:
        return next(iter(reasons.values()), UNCHANGED)
    lines: dict[str, list[int]] = {}
    for stretch in revision.stretches:
        line = revision.text.count("\n", 0, stretch.start) + 1
        lines.setdefault(reasons.get(stretch.start, UNCHANGED), []).append(line)
    told = []
    for reason, found in lines.items():
        several = dict.fromkeys(found)
        told.append(f"{'line' if len(several) == 1 else 'lines'} {', '.join(map(str, several))}: {reason}")
    return f"{_count(revision, 0)}: {'; '.join(told)}"


def _count(revision: Revision, n_filled: int) -> str:
    return f"filled {n_filled} of {revision.n_holes} {'hole' if revision.n_holes == 1 else 'holes'}"


def _message_of(revision: Revision, changes: Sequence[Hunk], reasons: Mapping[int, str]) -> str | None:
    """Returns in words how many holes were filled and what became of the others, None for an edit."""
    if revision.n_holes is None:
        return None
    n_left = revision.n_holes - len(revision.stretches)
    told = [_count(revision, len(changes)), *dict.fromkeys(reasons.values())]
    return "; ".join(told + ([f"{n_left} further down were left for the next time"] if n_left else []))


def _context(text: str, stretch: Stretch, kept: list[Hunk], first: Context) -> Context:
    """Returns what a filter knows of a stretch behind changes that were made already."""
    before = applied(text[: stretch.start], kept) + stretch.lead
    prefix, suffix = before[-len(first.prefix) - MAX_EDITED :], text[stretch.end :][:MAX_EDITED]
    return msgspec.structs.replace(
        first,
        start=stretch.start,
        end=stretch.end,
        prefix=prefix,
        suffix=suffix,
        line_prefix=prefix[prefix.rfind("\n") + 1 :],
        line_suffix=suffix.partition("\n")[0],
    )
