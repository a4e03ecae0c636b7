"""A model that makes no step is noticed; one that is slow, idle or stopped is not taken for it."""

from __future__ import annotations

from midspan_engine.job_queue import Job
from midspan_engine.protocol import Fill
from midspan_engine.watchdog import HANG_S, Watchdog

N_TICKS = int(HANG_S)


def running() -> Job:
    request = Fill(id=1, document="a.py", parts=("", ""))
    return Job(request, client=1, received=0.0, on_draft=lambda _: None, on_done=lambda _: None)


def test_a_job_without_a_step_is_noticed_after_the_patience() -> None:
    watchdog, job = Watchdog(1.0), running()
    verdicts = [watchdog.is_hanging([job]) for _ in range(N_TICKS + 3)]
    assert verdicts.index(True) == N_TICKS + 1


def test_a_job_that_makes_steps_may_take_for_ever() -> None:
    watchdog, job, other = Watchdog(1.0), running(), running()
    for _ in range(5):
        assert not any(watchdog.is_hanging([other, job]) for _ in range(N_TICKS))
        job.check_in()


def test_every_job_and_every_pause_begins_the_count_anew() -> None:
    watchdog, first, second = Watchdog(1.0), running(), running()
    for jobs in ([first], [], [first], [second], [first, second], [first]):
        assert not any(watchdog.is_hanging(jobs) for _ in range(N_TICKS))
