"""Samples are shown as they came, good and bad, with what was true."""

from __future__ import annotations

from midspan_engine.evaluation.cases import Case
from midspan_engine.evaluation.methods import Attempt
from midspan_engine.evaluation.samples import as_markdown, draw_samples

PREFIX, SUFFIX = "import os\n\ndef size(path):\n    return os.", "\n\nprint(size('a'))\n"
ANSWERS = {"good": ("stat(path).st_size", 0.9), "bad": ("path.```", 0.1), "none": ("", 0.0)}


def answer(case: Case) -> Attempt:
    text, confidence = ANSWERS[case.name]
    return Attempt(text, confidence, 1.0, 1)


def test_every_sample_tells_the_line_the_answer_its_confidence_and_the_truth() -> None:
    cases = [Case(name, "rest_of_line", PREFIX, "stat(path).st_size", SUFFIX) for name in ANSWERS]
    samples = draw_samples(cases, answer)
    assert [sample.is_exact for sample in samples] == [True, False, False]
    page = as_markdown(samples, 0.25, seed=3)
    assert "3 gaps of held-out packages, drawn by seed 3 and not selected. 1 answers are exact; 1 are shown" in page
    assert page.count("    return os.┃\n") == 3
    good, bad, none = page.split("\n## ")[1:]
    assert good.startswith("good (rest of line)")
    assert "answered, exact, confidence 0.90:" in good
    assert "answered, wrong, confidence 0.10, not shown:" in bad
    assert "````python\npath.```\n````" in bad, "an answer cannot end its own block"
    assert page.count("stat(path).st_size") == 4
    assert "confidence 0.00, not shown" in none
