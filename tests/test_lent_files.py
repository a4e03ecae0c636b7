"""What clients have lent and the engine does not know yet."""

from __future__ import annotations

from midspan_engine.lent_files import LentFiles
from midspan_engine.protocol import Lend


def lend(file: str, text: str, workspace: str = "w") -> Lend:
    return Lend(workspace=workspace, file=file, text=text)


def test_texts_come_in_their_order_and_the_newest_of_a_file_alone() -> None:
    lent = LentFiles()
    for each in (lend("a", "old"), lend("b", "b"), lend("a", "new")):
        lent.put(each)
    assert [lent.next(), lent.next(), lent.next()] == [lend("b", "b"), lend("a", "new"), None]
    assert lent.n_news == 0


def test_what_is_taken_back_while_it_waits_is_never_taken_in() -> None:
    lent = LentFiles()
    for n in range(100):
        lent.put(lend(str(n), "text"))
    for n in range(100):
        lent.put(lend(str(n), ""))
    assert lent.next() is None
    assert len(lent.withdrawn()) == 100
    assert lent.withdrawn() == []


def test_a_closed_workspace_is_taken_back_whether_it_was_taken_in_or_not() -> None:
    lent = LentFiles()
    lent.put(lend("a", "text"))
    assert lent.next() is not None
    lent.put(lend("b", "text"))
    lent.put(lend("c", "text", workspace="other"))
    lent.close(["w"])
    assert {each.file for each in lent.withdrawn()} == {"a", "b"}
    assert lent.next() == lend("c", "text", workspace="other")


def test_a_new_engine_is_told_everything_again() -> None:
    lent = LentFiles()
    for each in (lend("a", "a"), lend("b", "b"), lend("b", "")):
        lent.put(each)
    lent.next()
    lent.withdrawn()
    lent.start_over()
    assert [lent.next(), lent.next()] == [lend("a", "a"), None]
