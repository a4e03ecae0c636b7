"""What a long run must show: each bar beside its figure."""

from __future__ import annotations

import msgspec

from soak import storm, type_along
from soak.measures import WARM_UP_S, Growth

LOOP_WAIT_MS = 20.0
"""99 of 100 waits in a front end's event loop are shorter; above that a key is felt to be late."""
TYPED_SHARE = 0.9
"""Of the wished keys: with fewer the machine, or who else uses it, did not bear the load, and the run shows little."""
KB_A_KEY = 1.0
"""So much memory may grow by with every key: less than the text typed on, so that a copy kept for each key shows. A
day of 50,000 keys then costs 50 MB at the most."""
ALLOCATOR_MB = 2.0
"""Allowed beside it: allocators take memory from the system in arenas of a megabyte."""
STORM_MB = 20.0
"""Allowed after a storm: torch keeps buffers for the lengths that fills of the storm met first. Chosen."""


class Bar(msgspec.Struct, frozen=True):
    """A claim about a run, the figure that speaks for or against it, and whether it is met; None if nobody can tell."""

    claim: str
    figure: str
    is_met: bool | None

    def __str__(self) -> str:
        verdict = {True: "met", False: "MISSED", None: "not judged"}[self.is_met]
        return f"{verdict:10}  {self.claim}: {self.figure}"


def of_typing(report: type_along.Report) -> list[Bar]:
    """Returns the bars of editors that type in peace."""
    p99s = [wait.p99 for wait in report.loop_wait_ms]
    return [
        Bar(
            f"{TYPED_SHARE:.0%} of the wished keys are typed",
            f"{report.keys} of {report.keys_wanted}",
            report.keys >= TYPED_SHARE * report.keys_wanted,
        ),
        *of_chaos(report),
        Bar(
            f"event loops of all {report.n_editors} front ends: p99 below {LOOP_WAIT_MS:.0f} ms",
            ", ".join(f"{p99} ms" for p99 in p99s),
            len(p99s) == report.n_editors and max(p99s) < LOOP_WAIT_MS,
        ),
        Bar("one engine serves all along", f"{report.n_engines} seen", report.n_engines == 1),
        _flat("the engine", report.engine_mb, report.seconds, report.keys),
        _flat("the front end that grew most", report.front_end_mb, report.seconds, report.keys / report.n_editors),
    ]


def of_chaos(report: type_along.Report) -> list[Bar]:
    """Returns the bars that are the same whatever befalls the engine."""
    return [
        Bar("suggestions were made", str(report.suggested), report.suggested > 0),
        _none("wrong or stale insertions", report.wrong, f"of {report.suggested} suggestions"),
        Bar("every request is answered", f"{report.unanswered} of {report.asked} were not", report.unanswered == 0),
        Bar(
            "every editor is served at the end",
            f"{report.recovered} of {report.n_editors}",
            report.recovered == report.n_editors,
        ),
        Bar(
            "every front end ends in order",
            f"exit statuses {report.exit_statuses}",
            report.exit_statuses == [0] * report.n_editors,
        ),
        _none("processes, sockets and locks left behind", report.left_behind),
    ]


def of_storm(report: storm.Report) -> list[Bar]:
    """Returns the bars of clients that come, go and are cut off."""
    grown = report.mb_after - report.mb_before
    return [
        Bar(
            "fills whose connection is cut are answered",
            f"{report.answered} of {report.cuts}",
            report.answered == report.cuts,
        ),
        Bar("no client stays but the one that asks", f"{report.clients_after} there", report.clients_after == 1),
        Bar(
            "the engine has no more files open than before",
            f"{report.files_before} before, {report.files_after} after",
            report.files_after <= report.files_before,
        ),
        Bar(f"the engine grows by less than {STORM_MB:.0f} MB", f"{grown:+.1f} MB", grown < STORM_MB),
        _none("processes, sockets and locks left behind", report.left_behind),
    ]


def _none(what: str, found: list[str], among: str = "") -> Bar:
    return Bar(f"no {what}", " ".join([str(len(found)), among, *found[:3]]), not found)


def _flat(who: str, growth: Growth, seconds: float, n_keys: float) -> Bar:
    """Judges a memory where there is as much of a run behind the warm-up as in it."""
    if seconds < 2 * WARM_UP_S:
        return Bar(f"memory of {who} is flat", f"takes a run of {2 * WARM_UP_S / 60:.0f} minutes to tell", None)
    n_counted = n_keys * (1 - WARM_UP_S / seconds)
    allowed = ALLOCATOR_MB + KB_A_KEY * n_counted / 1000
    figure = (
        f"{growth.early} MB after {WARM_UP_S:.0f} s, {growth.middle} MB half-way, {growth.late} MB at the end, "
        f"{growth.mb:+.1f} MB or {growth.mb * 1000 / max(1.0, n_counted):+.2f} KB a key"
    )
    return Bar(f"memory of {who} grows by less than {allowed:.1f} MB", figure, growth.mb < allowed)
