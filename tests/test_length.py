"""How the length of a gap is found where no blank token tells it."""

from __future__ import annotations

import math
import time
from dataclasses import replace

import msgspec
import pytest
import torch

from midspan_engine.canvas import Canvas
from midspan_engine.causal_reader import CausalReader, of_tokens
from midspan_engine.config import InfillConfig
from midspan_engine.denoise import Settled, condition, denoise
from midspan_engine.echo import POLISH_STEPS, Echo, cut_at_echo
from midspan_engine.engine import Engine
from midspan_engine.errors import Cancelled, EngineError
from midspan_engine.kv import KVCache
from midspan_engine.length_policy import Filling, Means, Outcome, log_probability, resized
from midspan_engine.passes import Passes
from midspan_engine.passes import alone as finished
from midspan_engine.probe import LENGTHS, N_DECODED, Probe
from midspan_engine.protocol import Draft, Fill
from midspan_engine.side_by_side import denoise_side_by_side
from served_checkpoint import CHECKPOINT
from tiny_engine import BLANKS, PROBED, REFERENCE, fill, tiny_engine, tiny_model

PREFIX, SUFFIX = "def area(width, height):\n    return ", "\n\nprint(area(2, 3))\n"
MASKED = msgspec.structs.replace(BLANKS, length="probe")
"""As the embedded checkpoint, its blanks switched off."""
both_noises = pytest.mark.parametrize("infill", [PROBED, MASKED], ids=["uniform", "mask"])


def means_of(infill: InfillConfig) -> Means:
    engine = tiny_engine(infill)
    return Means(engine.model, engine.tokens, engine.rules, engine.infill, engine.generation)


def filling_of(means: Means, **wishes: object) -> Filling:
    engine = Engine(means.model, means.tokens, means.infill, means.generation)
    request = Fill(id=1, document="a.py", parts=(PREFIX, SUFFIX), **wishes)  # type: ignore[arg-type]
    prompt, settling = engine._canvas(request, time.perf_counter())
    cache, _ = engine.prefixes.encode("a.py", prompt.context)
    return Filling(prompt, settling, SUFFIX, cache, lambda: False)


def canvas_of(means: Means, filling: Filling, length: int) -> Canvas:
    return resized(filling.prompt, length, 32, means.infill, 0)


def spelled(means: Means, settled: Settled) -> str:
    return b"".join(means.tokens.spellings[token] for token in settled.draft_BG[0].tolist()).decode(errors="replace")


# Rows of different lengths


@torch.inference_mode()
@both_noises
def test_canvases_side_by_side_become_what_each_becomes_alone(infill: InfillConfig) -> None:
    means = means_of(infill)
    filling = filling_of(means)
    tasks = [replace(filling.task, canvas=canvas_of(means, filling, length)) for length in (3, 7, 12)]
    begun = [means.begin(task) for task in tasks]
    found = finished(means.model, denoise_side_by_side(means.model, filling.cache, begun, 16, lambda: False))
    assert found.n_steps == max(settled.n_steps for settled in found.settled)
    for task, settled in zip(tasks, found.settled, strict=True):
        alone = denoise(means.model, filling.cache, means.begin(task), 16, lambda: False)
        assert torch.equal(settled.draft_BG, alone.draft_BG)
        assert (settled.n_steps, settled.is_complete) == (alone.n_steps, alone.is_complete)
        assert torch.allclose(settled.confidence_BG, alone.confidence_BG, atol=1e-4)


def test_canvases_side_by_side_can_be_withdrawn_and_end_with_their_deadline() -> None:
    means = means_of(PROBED)
    filling = filling_of(means)
    late = replace(filling.task, deadline=time.perf_counter() - 1)
    found = finished(
        means.model, denoise_side_by_side(means.model, filling.cache, [means.begin(late)], 16, lambda: False)
    )
    assert (found.n_steps, found.settled[0].is_complete) == (1, False)
    with pytest.raises(Cancelled):
        finished(means.model, denoise_side_by_side(means.model, filling.cache, [means.begin(late)], 16, lambda: True))


@pytest.mark.parametrize("length", [1, 5, 12])
def test_another_length_leaves_what_is_pinned_as_it_was(length: int) -> None:
    means = means_of(PROBED)
    filling = filling_of(means)
    canvas, laid_out = canvas_of(means, filling, length), filling.prompt.canvas
    gap, head = canvas.gaps[0], filling.prompt.after[: means.infill.head_tokens]
    assert len(gap) == length
    assert canvas.ids[: gap.start] == laid_out.ids[: laid_out.gaps[0].start]
    assert list(canvas.ids[gap.stop : gap.stop + len(head)]) == head


# The probe


@torch.inference_mode()
@both_noises
@pytest.mark.parametrize("length", [3, 8])
def test_a_length_is_scored_by_its_confidence_and_under_uniform_noise_by_how_the_suffix_fits(
    infill: InfillConfig, length: int
) -> None:
    means = means_of(infill)
    filling = filling_of(means)
    canvas, model = canvas_of(means, filling, length), means.model
    gap, head = canvas.gaps[0], filling.prompt.after[: infill.head_tokens]
    row_1C = torch.tensor([canvas.ids])
    row_1C[:, gap.start : gap.stop] = means.begin(replace(filling.task, canvas=canvas)).order.slots_BG
    known_1C = torch.ones_like(row_1C, dtype=torch.bool)
    known_1C[:, gap.start : gap.stop if infill.noise == "mask" else None] = False
    hidden = torch.arange(gap.start, 32)
    soft_1CH = condition(model, row_1C, known_1C, hidden, None)
    z_WV = model.logits(model.decode(row_1C, filling.cache, soft_1CH, hidden))[0]
    z_GV = means.rules.constrain(z_WV[:length].clone(), filling.prompt.required[0], True)
    expected = math.log(float(z_GV.softmax(-1).amax(-1).mean())) + 0.1 * math.log(length)
    if infill.noise == "uniform":
        expected += float(of_tokens(z_WV[length : length + len(head)], head).mean())
    assert Probe(means).scores(filling, [canvas]) == pytest.approx([expected], abs=1e-3)


@torch.inference_mode()
def test_a_score_does_not_depend_on_the_lengths_probed_beside_it() -> None:
    means = means_of(MASKED)
    filling = filling_of(means)
    canvases = [canvas_of(means, filling, length) for length in range(3, 13)]
    alone = [Probe(means).scores(filling, [canvas])[0] for canvas in canvases]
    assert Probe(means).scores(filling, canvases) == pytest.approx(alone, abs=1e-3)


@torch.inference_mode()
def test_the_encoder_weighs_an_answer_as_a_plain_pass_over_it_and_what_follows() -> None:
    means = means_of(MASKED)
    filling = filling_of(means)
    settled = finished(means.model, Probe(means).fill(filling)).settled[0]
    ids, head = means.tokens.encode(spelled(means, settled)), filling.prompt.after[: means.infill.head_tokens]
    left = [*filling.prompt.context, *settled.canvas.ids[: settled.canvas.gaps[0].start]]
    read = [*left, *ids, *head]
    hidden_1LH = means.model.encode(torch.tensor([read]), KVCache(means.model.config.n_layers))
    expected = of_tokens(means.model.logits(hidden_1LH[0, len(left) - 1 : -1]), [*ids, *head]).sum()
    found = log_probability(means, filling, settled, CausalReader(means.model, filling.cache))
    assert found == pytest.approx(float(expected), abs=1e-2)


def test_of_the_decoded_lengths_the_encoder_chooses_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    lengths = [length for length in LENGTHS if length <= BLANKS.gap_tokens]
    monkeypatch.setattr("midspan_engine.probe.N_DECODED", len(lengths))
    means = means_of(MASKED)
    filling = filling_of(means)
    weights = {}
    for length in lengths:
        task = replace(filling.task, canvas=canvas_of(means, filling, length))
        settled = denoise(means.model, filling.cache, means.begin(task), 16, lambda: False)
        weights[length] = log_probability(means, filling, settled, CausalReader(means.model, filling.cache))
    (chosen,) = finished(means.model, Probe(means).fill(filling)).settled
    assert len(chosen.canvas.gaps[0]) == max(weights, key=lambda length: weights[length])


@both_noises
@pytest.mark.parametrize("n_candidates", [1, 5])
def test_a_probe_answers_with_no_more_candidates_than_are_asked_for(infill: InfillConfig, n_candidates: int) -> None:
    filled = fill(tiny_engine(infill), PREFIX, SUFFIX, n_candidates=n_candidates)
    assert bool(filled.candidates) == (filled.silence is None)
    assert len(filled.candidates) <= n_candidates
    confidences = [candidate.confidence for candidate in filled.candidates]
    assert confidences == sorted(confidences, reverse=True)
    assert 1 <= filled.stats.encoder_steps <= max(N_DECODED, n_candidates)


def test_a_probe_past_its_deadline_takes_one_step_and_asks_the_encoder_nothing() -> None:
    filled = fill(tiny_engine(MASKED), PREFIX, SUFFIX, deadline_ms=0.0)
    assert (filled.stats.steps, filled.stats.encoder_steps) == (2, 0), "the probe, and a pass over the best lengths"


@both_noises
def test_where_a_blank_is_known_but_not_asked_for_no_gap_holds_one(infill: InfillConfig) -> None:
    settled = finished(means_of(infill).model, Probe(means_of(infill)).fill(filling_of(means_of(infill)))).settled[0]
    assert BLANKS.blank_token_id not in settled.draft_BG[0].tolist()


@pytest.mark.parametrize("parts", [("f(", ", b=", ")\n")])
def test_several_gaps_are_taken_as_they_are_laid_out(parts: tuple[str, ...]) -> None:
    probed, fixed = (fill(tiny_engine(infill), *parts) for infill in (PROBED, REFERENCE))
    assert [each.gaps for each in probed.candidates] == [each.gaps for each in fixed.candidates]
    assert probed.stats.steps == fixed.stats.steps


def test_a_gap_too_short_for_the_grid_is_filled_to_its_last_slot() -> None:
    means = means_of(MASKED)
    found = finished(means.model, Probe(means).fill(filling_of(means, max_tokens=2)))
    assert [len(each.canvas.gaps[0]) for each in found.settled] == [2]


def test_a_withdrawn_probe_ends_and_the_next_one_answers() -> None:
    engine, asked = tiny_engine(PROBED), []

    def is_cancelled() -> bool:
        asked.append(None)
        return len(asked) > 4

    request = Fill(id=1, document="a.py", parts=(PREFIX, SUFFIX))
    with pytest.raises(Cancelled):
        engine.fill(request, received=time.perf_counter(), is_cancelled=is_cancelled)
    filled = fill(engine, PREFIX + "w", SUFFIX)
    assert (filled.stats.carried_steps, filled.candidates or filled.silence) != (0, None)


def test_who_watches_a_probe_sees_the_canvas_of_its_best_length() -> None:
    drafts: list[Draft] = []
    request = Fill(id=1, document="a.py", parts=(PREFIX, SUFFIX))
    engine = tiny_engine(MASKED)
    filled = engine.fill(request, received=time.perf_counter(), is_cancelled=lambda: False, on_draft=drafts.append)
    assert len(drafts) == filled.stats.steps - 1
    assert {sum(not slot.pinned for slot in draft.slots) for draft in drafts} <= set(LENGTHS)


def test_weights_without_numbers_are_told_of() -> None:
    model = tiny_model.__wrapped__(seed=3)
    model.norm.weight.fill_(torch.nan)
    with pytest.raises(EngineError, match="damaged"):
        fill(tiny_engine(PROBED, model=model), PREFIX, SUFFIX)


# The echo


@pytest.mark.parametrize(
    ("text", "following", "single_line", "kept"),
    [
        ("width * height)  # mm\nx", ")  # mm\n", True, "width * height"),
        ("f(a)) + g(b))", "))\n", True, "f(a)) + g(b"),
        ("width * height\nprint", "\nprint(1)\n", True, "width * height"),
        ("width * height", "\nprint(1)\n", True, None),
        ("width * height", ")\n", True, None),
        ("a = 1\n    b = 2\n\nprint(1)\nc", "\n\nprint(1)\n", False, "a = 1\n    b = 2"),
        ("a, [\n  1])\nc", "])\n", False, "a, [\n  1"),
        ("print(1)\n", "\n\nprint(1)\n", False, None),
        ("a = 1\n    b = 2", "\n  \n", False, None),
    ],
)
def test_a_draft_is_cut_where_it_says_what_follows(
    text: str, following: str, single_line: bool, kept: str | None
) -> None:
    assert cut_at_echo(text, following, single_line) == kept


class Echoing(Echo):
    """Writes given text on the free canvas."""

    said = ""

    def _free(self, filling: Filling) -> Passes[Settled]:
        ids = torch.tensor([self._means.tokens.encode(filling.prompt.required[0].decode() + self.said)])
        return replace((yield from super()._free(filling)), draft_BG=ids)


def echoed(infill: InfillConfig, said: str) -> tuple[Means, Filling, Outcome]:
    means = means_of(infill)
    filling = filling_of(means)
    echo = Echoing(means)
    echo.said = said
    return means, filling, finished(means.model, echo.fill(filling))


@both_noises
def test_an_echo_ends_the_gap_and_what_follows_is_pinned_there(infill: InfillConfig) -> None:
    means, filling, outcome = echoed(infill, "width * height" + SUFFIX)
    (settled,) = outcome.settled
    gap, head = settled.canvas.gaps[0], filling.prompt.after[: infill.head_tokens]
    required = filling.prompt.required[0].decode()
    assert len(gap) == len(means.tokens.encode(required + "width * height"))
    assert list(settled.canvas.ids[gap.stop : gap.stop + len(head)]) == head
    assert settled.is_complete
    if infill.noise == "uniform":
        assert 1 <= settled.n_steps <= POLISH_STEPS
    assert filling.cache.length == len(filling.prompt.context), "the quote is forgotten"


def test_without_an_echo_all_of_the_gap_is_filled() -> None:
    _, filling, outcome = echoed(PROBED, "width")
    assert outcome.settled[0].canvas == filling.prompt.canvas
    assert outcome.n_steps > outcome.settled[0].n_steps


def test_a_fill_of_several_lines_may_be_answered_by_its_echo(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("midspan_engine.probe.Echo", Echoing)
    monkeypatch.setattr(Echoing, "said", "width\n    return" + SUFFIX)
    means = means_of(MASKED)
    filling = filling_of(means, single_line=False, n_candidates=8)
    found = finished(means.model, Probe(means).fill(filling)).settled
    required = filling.prompt.required[0].decode()
    n_echoed = len(means.tokens.encode(required + "width\n    return"))
    assert n_echoed in [len(each.canvas.gaps[0]) for each in found]


@pytest.mark.parametrize("length", ["probe", "echo", "fixed"])
def test_the_embedded_checkpoint_answers_without_its_blanks(length: str) -> None:
    engine = Engine.load(CHECKPOINT)
    infill = msgspec.structs.replace(engine.infill, length=length)
    filled = fill(Engine(engine.model, engine.tokens, infill, engine.generation), PREFIX, SUFFIX, max_tokens=6)
    assert filled.candidates or filled.silence
