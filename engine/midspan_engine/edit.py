"""Edits: what stands in a gap is the start of its canvas, and a share of it is denoised anew.

The least likely pieces are hidden first, so that a small share mends what fits worst and a large one leaves only what
is beyond doubt. All else is pinned. What exceeds a canvas takes several in turn, each of which sees what came of those
before. Several holes are the same with all of each hidden: those that fit one canvas are filled together.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Mapping

import msgspec

from midspan_engine.engine import Engine
from midspan_engine.errors import InputError
from midspan_engine.likelihood import Likelihood, Piece
from midspan_engine.prompt import MAX_HEALED_TOKENS
from midspan_engine.protocol import Candidate, Draft, Fill, Filled, Held, Stats
from midspan_engine.segments import Segment, chunks, groups, parts_of
from midspan_engine.slips import meant
from midspan_engine.withheld import doubt

NO_INSTRUCTIONS = (
    "this checkpoint follows no instructions; it can fill a selection anew (refill), touch it up (touch_up), "
    "rewrite it (rewrite), and complete a body (body) or the end of a line (tail)"
)
LATE = "the deadline passed before anything better was found"
NOTHING_BETTER = "the model found nothing better than what stands here"

_TO_CHANGE = """Between its beginning, which is given, and that end there stands now:

{fence}
{text}
{fence}

Change of this what follows, and leave all else as it is: {instruction}"""
"""What an instruction is to a model that is asked in a conversation: it fills a gap, and has to know what was there."""

SPARE_SLOTS = 5
"""Slots of a gap besides the tokens that it holds: for the healed piece before it, and to let it grow. Chosen."""
MARGIN = 16.0
"""Nats by which a text must be more probable than the one whose place it takes, at a strength of 0; none at 1. With
letters swapped in words of library code, repairs gained 14 to 38 nats, changes to sound code mostly less than 12.
"""
SLIP_MARGIN = 6.0
"""The same where a word is mended that looks mistyped, and where both texts are as likely. With a slip made in one word
of a line of library code, the word that was meant gained 7 nats and more in 42 lines of 43; in 60 sound lines words
that resemble another gained 5 by it at most.
"""
HOLE_TOKENS = 12
"""Slots of a hole on a shared canvas at least: half of the gaps on one line of real code take no more than 7 tokens."""


def revise(
    engine: Engine,
    request: Fill,
    *,
    received: float,
    is_cancelled: Callable[[], bool],
    on_draft: Callable[[Draft], None] | None = None,
    between_canvases: Callable[[], None] = lambda: None,
) -> Filled:
    """Fills gaps that hold something already; the arguments and errors are those of `Engine.fill`.

    `between_canvases` is called where other fills may use the engine: no cache is in hand then.
    """
    if len(request.held) != len(request.parts) - 1:
        raise InputError(f"{len(request.parts) - 1} gaps hold {len(request.held)} texts: give one for each gap")
    if not 0 < request.strength <= 1:
        raise InputError(f"a strength of {request.strength:g} is none; give a number above 0, up to 1")
    if request.instruction and not engine.infill.instructions:
        return Filled(id=request.id, silence=NO_INSTRUCTIONS)
    if request.instruction:
        request = msgspec.structs.replace(request, instruction=_with_text(request))
    return _Denoising(engine, request, received, is_cancelled, on_draft, between_canvases).run()


class _Denoising:
    """One request on its way through its canvases."""

    def __init__(
        self,
        engine: Engine,
        request: Fill,
        received: float,
        is_cancelled: Callable[[], bool],
        on_draft: Callable[[Draft], None] | None,
        between_canvases: Callable[[], None],
    ) -> None:
        self._between_canvases = between_canvases
        self._engine, self._request, self._received = engine, request, received
        self._is_cancelled, self._on_draft = is_cancelled, on_draft
        infill, n_slots = engine.infill, engine.model.config.canvas_length
        self._room = n_slots - infill.tail_tokens - min(infill.head_tokens, infill.tail_tokens)
        self._limit = max(min(infill.gap_tokens, self._room) - SPARE_SLOTS, 1)
        self._likelihood = Likelihood(engine, request, is_cancelled)
        self._stats = Stats()
        self._silence: str | None = None
        self._done, self._width = 0.0, 1.0
        self._segments, self._opened = self._lay_out()

    def run(self) -> Filled:
        """Denoises one group of segments after the other."""
        is_whole = self._request.strength == 1
        units = [self._opened] if is_whole and self._opened else [[segment] for segment in self._opened]
        for n, unit in enumerate(units):
            hidden = unit if is_whole else self._hide(unit[0])
            if not is_whole and sum(map(self._mend, hidden)) > 0:
                continue  # what stands beside a slip was unlikely because of it
            if is_whole or not self._engine.infill.quote_tokens:
                runs = groups(self._segments, hidden, self._room, self._need, self._count)
            else:
                runs = [[segment] for segment in hidden]  # an encoder that reads what follows must see all of it
            for k, group in enumerate(runs):
                self._done = (n + k / len(runs)) / len(units)
                self._width = 1 / (len(units) * len(runs))
                if not self._is_late():
                    self._settle(group)
        return self._answer()

    def _lay_out(self) -> tuple[list[Segment], list[Segment]]:
        """Returns the document in segments, and those that are to be denoised."""
        request = self._request
        segments, opened = [Segment(request.parts[0])], []
        for gap, (held, part) in enumerate(zip(request.held, request.parts[1:], strict=True)):
            pieces = list(chunks(held.text, self._limit, self._count)) or [("", True)]
            n_open = sum(is_open for _, is_open in pieces)
            for text, is_open in pieces:
                single_line = held.single_line or (n_open > 1 and "\n" not in text)
                segments.append(Segment(text, gap, single_line))
                opened += segments[-1:] if is_open else []
            segments.append(Segment(part))
        return segments, opened

    def _count(self, text: str) -> int:
        return len(self._engine.tokens.encode(text))

    def _need(self, segment: Segment) -> int:
        """Returns the slots that a segment's gap should have."""
        # without a blank a gap has the length of its text, with all of the healed piece
        slack = MAX_HEALED_TOKENS if self._engine.infill.blank_token_id is None else SPARE_SLOTS
        n_slots = self._count(segment.text) + slack
        return min(max(n_slots, HOLE_TOKENS), self._limit) if self._request.strength == 1 else n_slots

    def _is_late(self) -> bool:
        deadline_ms = self._request.deadline_ms
        return deadline_ms is not None and time.perf_counter() > self._received + deadline_ms / 1e3

    def _hide(self, segment: Segment) -> list[Segment]:
        """Cuts a segment into what stays and what is hidden, the least likely share of it; returns the latter."""
        self._between_canvases()
        before, after = self._around(segment)
        pieces = self._likelihood.of_pieces(before, segment.text, after)
        cut, hidden, end = [], [], 0
        for first, last in least_likely(segment.text, pieces, self._request.strength):
            cut.append(Segment(segment.text[end:first], segment.gap))
            cut.append(Segment(segment.text[first:last], segment.gap))
            hidden.append(cut[-1])
            end = last
        at = self._segments.index(segment)
        self._segments[at : at + 1] = [*cut, Segment(segment.text[end:], segment.gap)]
        return hidden

    def _mend(self, segment: Segment) -> bool:
        """Mends a slip of the keyboard; says whether there was one. What was meant stands in the document already, so
        that it need only be likelier than the slip, not the most probable of all texts.
        """
        before, after = self._around(segment)
        words = meant(before, segment.text, after)
        if not words or self._request.instruction or self._is_late():
            return False
        likely = {text: self._likelihood.with_following(before, text, after) for text in (segment.text, *words)}
        best = max(likely, key=lambda text: likely[text])
        gain = likely[best] - likely[segment.text]
        if gain < SLIP_MARGIN:
            return False
        segment.text, segment.confidence = best, 1 / (1 + math.exp(SLIP_MARGIN - gain))
        return True

    def _around(self, segment: Segment, drafts: Mapping[Segment, str] = {}) -> tuple[str, str]:
        """Returns the text before a segment and the text after it, in which drafts stand for their segments."""
        at = self._segments.index(segment)
        before = "".join(each.text for each in self._segments[:at])
        return before, "".join(drafts.get(each, each.text) for each in self._segments[at + 1 :])

    def _settle(self, group: list[Segment]) -> None:
        """Denoises the segments of a group on one canvas, and again those behind one that came out otherwise than the
        canvas had it: what a gap held for a while, the gaps behind it have seen.
        """
        while group and not self._is_late():
            texts, confidences = self._fill(group)
            drafts = dict(zip(group, texts, strict=True))
            for text, confidence in zip(texts, confidences, strict=True):
                segment = group.pop(0)
                del drafts[segment]
                if self._take(segment, text, confidence, drafts) != text and group:
                    break

    def _fill(self, group: list[Segment]) -> tuple[tuple[str, ...], tuple[float, ...]]:
        """Returns what comes to stand in the segments of a group, and confidences; what stands there if nothing."""
        self._between_canvases()
        request = msgspec.structs.replace(
            self._request,
            parts=parts_of(self._segments, group),
            held=tuple(Held(text=segment.text) for segment in group),
            single_line=group[0].single_line,
            max_tokens=min(self._request.max_tokens, max(map(self._need, group))),
            n_candidates=1,
            min_confidence=0.0,
        )
        filled = self._engine.fill(
            request,
            received=self._received,
            is_cancelled=self._is_cancelled,
            on_draft=self._tell if self._on_draft is not None else None,
        )
        self._stats = _sum(self._stats, filled.stats)
        if self._request.strength == 1:  # elsewhere an empty answer means that what stands there stays
            self._silence = filled.silence or self._silence
        if not filled.candidates or not filled.candidates[0].complete:
            return tuple(segment.text for segment in group), (0.0,) * len(group)
        return filled.candidates[0].gaps, filled.candidates[0].confidences

    def _take(self, segment: Segment, text: str, confidence: float, drafts: dict[Segment, str]) -> str:
        """Puts a text into a segment if it is worth it; returns what the segment holds then."""
        before, after = self._around(segment, drafts)
        if text == segment.text or not text.strip():
            return segment.text
        whole, text = text, self._likelihood.best_start(before, text, after, or_nothing=not segment.text.strip())
        if text != whole and text.strip():
            confidence = self._likelihood.confidence(before, text, after)
        if text.strip() and confidence < self._request.min_confidence:
            self._silence = doubt(confidence, self._request.min_confidence)
        elif text.strip() and text != segment.text and self._is_better(segment, text, before, after):
            segment.text, segment.confidence = text, confidence
        return segment.text

    def _is_better(self, segment: Segment, text: str, before: str, after: str) -> bool:
        """Says whether a text leads to what follows better than the one that stands there; where all is hidden, nobody
        asks.
        """
        if self._request.strength == 1:
            return True
        old, new = (self._likelihood.with_following(before, each, after) for each in (segment.text, text))
        return new > old + MARGIN * (1 - self._request.strength)

    def _tell(self, draft: Draft) -> None:
        assert self._on_draft is not None, "drafts are only asked for where somebody looks"
        gap = [slot for slot in draft.slots if not slot.pinned]
        settled = sum(slot.accepted for slot in gap) / max(len(gap), 1)
        n_before = self._stats.steps + self._stats.encoder_steps
        share = self._done + self._width * settled
        self._on_draft(msgspec.structs.replace(draft, step=n_before + draft.step, share=share))

    def _answer(self) -> Filled:
        request = self._request
        own = [[each for each in self._segments if each.gap == gap] for gap in range(len(request.held))]
        changed = [[each.confidence for each in segments if each.confidence is not None] for segments in own]
        stats = msgspec.structs.replace(self._stats, ms=(time.perf_counter() - self._received) * 1e3)
        if not any(changed):
            silence = LATE if self._is_late() else self._silence or NOTHING_BETTER
            return Filled(id=request.id, silence=silence, stats=stats)
        candidate = Candidate(
            gaps=tuple("".join(each.text for each in segments) for segments in own),
            confidence=min(confidence for each in changed for confidence in each),
            confidences=tuple(min(each, default=0.0) for each in changed),
            complete=not self._is_late(),
        )
        return Filled(id=request.id, candidates=(candidate,), stats=stats)


def least_likely(text: str, pieces: list[Piece], strength: float) -> list[tuple[int, int]]:
    """Returns where that share of the pieces of a text stands, at least one, in order; neighbours are joined to one.

    Blanks and line breaks stay: they are the form of the text, not what it says.
    """
    words = [piece for piece in pieces if text[piece.start : piece.end].strip() and "\n" not in _of(text, piece)]
    n_hidden = max(1, round(strength * len(words)))
    ranked = sorted(words, key=lambda piece: piece.log_probability)
    found: list[tuple[int, int]] = []
    for piece in sorted(ranked[:n_hidden], key=lambda piece: piece.start):
        start = found.pop()[0] if found and found[-1][1] == piece.start else piece.start
        found.append((start, piece.end))
    return found


def _with_text(request: Fill) -> str:
    """Returns an instruction together with the text that it is about."""
    text = "\n".join(held.text for held in request.held)
    fence = "`" * max([3, *(len(run) + 1 for run in re.findall("`+", text))])
    return _TO_CHANGE.format(fence=fence, text=text, instruction=request.instruction.strip())


def _of(text: str, piece: Piece) -> str:
    return text[piece.start : piece.end]


def _sum(first: Stats, second: Stats) -> Stats:
    """Returns what two fills cost together; of the canvas, the larger."""
    names = ("steps", "encoder_steps", "decoder_ms", "encoder_ms", "n_encoded")
    added = {name: getattr(first, name) + getattr(second, name) for name in names}
    return msgspec.structs.replace(
        second, **added, n_prompt=max(first.n_prompt, second.n_prompt), n_canvas=max(first.n_canvas, second.n_canvas)
    )
