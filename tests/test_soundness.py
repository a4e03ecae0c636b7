"""Which changes a text of Python bears, and that finding out does not hold up the server."""

from __future__ import annotations

from growth import LINEAR, growth
from midspan_server.hunks import Hunk
from midspan_server.soundness import fits, fitting, upset

CALL = "x = f()\n"


def filled(n: int, wrong: set[int]) -> list[Hunk]:
    """Returns what is written into the calls of n lines; what is wrong breaks the syntax."""
    places = (k * len(CALL) + CALL.index(")") for k in range(n))
    return [Hunk(at, at, "1 2" if k in wrong else "1") for k, at in enumerate(places)]


def test_only_the_changes_that_break_the_text_are_left_out() -> None:
    for wrong in ({0}, {63}, {5, 6, 40}, set(range(64)), set()):
        changes = filled(64, wrong)
        assert fitting(CALL * 64, changes, "python") == [each for k, each in enumerate(changes) if k not in wrong]


def test_changes_that_need_each_other_are_kept_together() -> None:
    text = "x = (1, 2)\ny = (3)\n"
    pair = [Hunk(4, 5, "["), Hunk(9, 10, "]")]
    wrong = [Hunk(15, 16, "["), Hunk(17, 18, "}")]
    assert fitting(text, pair + wrong, "python") == pair


def test_what_is_no_python_or_does_not_parse_as_it_is_takes_every_change() -> None:
    changes = filled(2, {0})
    assert fitting(CALL * 2, changes, "c") == changes
    assert fitting(CALL * 2 + "while\n", changes, "python") == changes
    assert fits(CALL * 2, filled(2, set()), "python")
    assert not fits(CALL * 2, changes, "python")


def test_a_definition_is_neither_taken_away_nor_made_twice() -> None:
    text = "class A:\n    def f(self): ...\n    def g(self): ...\n\n\ndef f(): ...\n"
    at = text.index("f(self)")
    assert upset(text, [Hunk(at, at + 1, "h")], "python") == "the change would take away the definition of A.f"
    body = text.rindex("...")
    twice = [Hunk(body, body + 3, "...\n\ndef f(): pass")]
    assert upset(text, twice, "python") == "the change would define f twice"
    assert upset(text, [Hunk(body, body + 3, "return 1")], "python") is None
    assert upset(text, [Hunk(at, at + 1, "h")], "c") is None
    assert upset(text + "while\n", [Hunk(at, at + 1, "h")], "python") is None


def test_names_that_are_defined_twice_already_may_be() -> None:
    text = "try:\n    def f(): ...\nexcept E:\n    def f(): ...\n"
    assert upset(text, [Hunk(text.rindex("..."), len(text), "return 1\n")], "python") is None


def test_a_long_chain_of_branches_is_read_to_its_end() -> None:
    text = "if a:\n    pass\n" + "elif b:\n    pass\n" * 900 + "else:\n    def f(): ...\n"
    at = text.rindex("f()")
    assert upset(text, [Hunk(at, at + 1, "g")], "python") == "the change would take away the definition of f"


def test_many_breaking_changes_take_time_in_proportion_and_the_rest_is_left_out() -> None:
    assert growth(lambda n: fitting(CALL * n, filled(n, set(range(n))), "python"), 100) < LINEAR
    kept = fitting(CALL * 20_000, filled(20_000, {0}), "python")
    assert kept == filled(20_000, set())[10_000:]
