"""Which of the waiting fills runs next, and which are not run at all."""

from __future__ import annotations

import time

from midspan_engine.job_queue import GAVE_WAY, STARVED_S, SUPERSEDED, Job, JobQueue
from midspan_engine.protocol import Draft, Failed, Fill, Filled, Held, Priority


def job(
    client: int,
    document: str,
    priority: Priority = "typed",
    *,
    age_s: float = 0.0,
    is_edit: bool = False,
    n_candidates: int = 1,
) -> Job:
    def ignore(message: Draft | Filled | Failed) -> None:
        pass

    held = (Held(text="x"),) if is_edit else ()
    request = Fill(id=1, document=document, parts=("", ""), priority=priority, held=held, n_candidates=n_candidates)
    return Job(request, client=client, received=time.perf_counter() - age_s, on_draft=ignore, on_done=ignore)


def order(queue: JobQueue) -> list[tuple[int, str]]:
    taken = []
    while (next_job := queue.take(0.0)) is not None:
        taken.append((next_job.client, next_job.request.document))
    return taken


def test_clients_take_turns_however_much_one_of_them_asks() -> None:
    queue = JobQueue()
    for number in range(4):
        queue.put(job(1, f"{number}.py"))
    queue.put(job(2, "a.py"))
    queue.put(job(3, "a.py"))
    assert order(queue) == [(1, "0.py"), (2, "a.py"), (3, "a.py"), (1, "1.py"), (1, "2.py"), (1, "3.py")]


def test_typing_comes_before_alternatives_and_these_before_guesses() -> None:
    queue = JobQueue()
    queue.put(job(1, "guess.py", "prefetch"))
    queue.put(job(1, "several.py", "several"))
    queue.put(job(1, "typed.py"))
    assert [document for _, document in order(queue)] == ["typed.py", "several.py", "guess.py"]


def test_alternatives_are_not_held_back_for_ever() -> None:
    queue = JobQueue()
    queue.put(job(1, "typed.py"))
    queue.put(job(2, "several.py", "several", age_s=STARVED_S + 1))
    queue.put(job(3, "guess.py", "prefetch", age_s=STARVED_S + 1))
    queue.take(0.0)  # client 1
    queue.put(job(1, "typed.py"))
    assert order(queue) == [(2, "several.py"), (1, "typed.py"), (3, "guess.py")]


def test_the_newest_fill_of_a_document_replaces_the_older_ones_of_its_client_running_or_not() -> None:
    queue = JobQueue()
    queue.put(running := job(1, "a.py"))
    assert queue.take(0.0) is running
    queue.put(waiting := job(1, "a.py", "several"))
    queue.put(job(2, "a.py"))
    queue.put(job(1, "b.py"))
    assert queue.put(job(1, "a.py")) == [(waiting, SUPERSEDED), (running, SUPERSEDED)]
    assert sorted(order(queue)) == [(1, "a.py"), (1, "b.py"), (2, "a.py")]


def test_a_guess_replaces_no_request_and_gives_way_to_any() -> None:
    queue = JobQueue()
    queue.put(guess := job(1, "a.py", "prefetch"))
    assert queue.take(0.0) is guess
    assert queue.put(job(2, "b.py", "prefetch")) == []
    (waiting,) = queue.of_document("2 b.py")
    assert queue.put(job(2, "b.py")) == [(waiting, SUPERSEDED), (guess, GAVE_WAY)]
    assert queue.put(job(2, "b.py", "prefetch")) == []


def test_an_edit_goes_on_while_its_document_is_typed_in_and_gives_way_to_a_newer_one() -> None:
    queue = JobQueue()
    edit, newer = job(1, "a.py", "several", is_edit=True), job(1, "a.py", "several", is_edit=True)
    queue.put(edit)
    assert queue.take(0.0) is edit
    typed = job(1, "a.py")
    assert queue.put(typed) == []
    assert queue.put(newer) == [(edit, SUPERSEDED)]
    assert queue.take(0.0) is typed


def test_typed_fills_get_in_between_the_canvases_of_an_edit_and_those_that_come_later_wait_for_the_next() -> None:
    queue = JobQueue()
    queue.put(edit := job(1, "a.py", "several", is_edit=True))
    assert queue.take(0.0) is edit
    for waiting in (job(2, "guess.py", "prefetch"), job(2, "edit.py", "several", is_edit=True)):
        queue.put(waiting)
    queue.put(several := job(1, "a.py", "several"))
    queue.put(typed := job(2, "b.py"))
    now = time.perf_counter()
    assert queue.interrupt(edit, now) is typed
    queue.put(later := job(3, "c.py"))
    assert queue.running == (edit, typed)
    assert edit in queue.of_document("1 a.py"), "an edit that waits can be withdrawn"
    assert queue.interrupt(edit, now) is several
    assert queue.interrupt(edit, now) is None
    assert queue.running == (edit,)
    assert queue.interrupt(edit, time.perf_counter()) is later


def test_a_job_taken_back_is_not_run() -> None:
    queue = JobQueue()
    queue.put(job(1, "a.py"))
    queue.put(gone := job(1, "b.py"))
    assert queue.discard(gone)
    assert not queue.discard(gone)
    assert len(queue) == 1
    assert order(queue) == [(1, "a.py")]


def test_a_waiting_worker_can_be_woken_without_a_job() -> None:
    queue = JobQueue()
    queue.wake()
    assert queue.take(60.0) is None


def joined(queue: JobQueue, n_most: int = 4) -> list[tuple[int, str]]:
    found = []
    while (next_job := queue.join(n_most)) is not None:
        found.append((next_job.client, next_job.request.document))
    return found


def test_typed_fills_join_in_their_order_as_long_as_there_is_room() -> None:
    queue = JobQueue()
    for client, document in ((1, "a.py"), (1, "b.py"), (2, "a.py"), (3, "a.py"), (4, "a.py")):
        queue.put(job(client, document))
    first = queue.take(0.0)
    assert first is not None
    assert joined(queue) == [(2, "a.py"), (3, "a.py"), (4, "a.py")], "clients take turns"
    assert len(queue.running) == 4
    queue.leave(first)
    assert first not in queue.running
    assert joined(queue) == [(1, "b.py")]
    assert joined(queue, 1) == []


def test_what_has_to_run_alone_neither_joins_nor_is_joined() -> None:
    for apart in (
        job(1, "several.py", "several", n_candidates=2),
        job(1, "alternatives.py", n_candidates=2),
        job(1, "guess.py", "prefetch"),
        job(1, "edit.py", "several", is_edit=True),
    ):
        queue = JobQueue()
        queue.put(apart)
        assert queue.take(0.0) is apart
        queue.put(typed := job(2, "a.py"))
        assert joined(queue) == []
        queue.put(apart)
        assert queue.take(0.0) is typed
        assert joined(queue) == []


def test_nobody_overtakes_one_that_has_waited_for_its_turn_to_run_alone() -> None:
    queue = JobQueue()
    queue.put(job(1, "typed.py"))
    queue.take(0.0)
    queue.put(job(1, "more.py"))
    queue.put(starved := job(2, "several.py", "several", n_candidates=2, age_s=STARVED_S + 1))
    assert joined(queue) == []
    assert queue.take(0.0) is starved


def test_a_newer_fill_of_a_document_joins_once_the_older_one_has_let_go_of_its_cache() -> None:
    queue = JobQueue()
    queue.put(old := job(1, "a.py"))
    queue.put(other := job(2, "a.py"))
    assert queue.take(0.0) is old
    assert queue.join(4) is other
    assert queue.put(job(1, "a.py")) == [(old, SUPERSEDED)]
    assert joined(queue) == []
    queue.leave(old)
    assert joined(queue) == [(1, "a.py")]


def test_nobody_joins_a_fill_that_an_edit_lets_through() -> None:
    queue = JobQueue()
    queue.put(edit := job(1, "a.py", "several", is_edit=True))
    assert queue.take(0.0) is edit
    queue.put(typed := job(2, "b.py"))
    assert queue.interrupt(edit, time.perf_counter()) is typed
    queue.put(job(3, "c.py"))
    assert joined(queue) == []
