"""Which of the waiting fills runs next, and which are not run at all."""

from __future__ import annotations

import time

from midspan_engine.job_queue import GAVE_WAY, STARVED_S, SUPERSEDED, Job, JobQueue
from midspan_engine.protocol import Draft, Failed, Fill, Filled, Held, Priority


def job(client: int, document: str, priority: Priority = "typed", *, age_s: float = 0.0, is_edit: bool = False) -> Job:
    def ignore(message: Draft | Filled | Failed) -> None:
        pass

    held = (Held(text="x"),) if is_edit else ()
    request = Fill(id=1, document=document, parts=("", ""), priority=priority, held=held)
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
    assert queue.running is typed
    assert edit in queue.of_document("1 a.py"), "an edit that waits can be withdrawn"
    assert queue.interrupt(edit, now) is several
    assert queue.interrupt(edit, now) is None
    assert queue.running is edit
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
