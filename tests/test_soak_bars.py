"""What a long run must show is judged, and a run that misses it fails."""

from __future__ import annotations

import msgspec
import pytest
from click.testing import CliRunner

from soak import bars, storm, type_along
from soak.__main__ import cli, judge
from soak.measures import Growth, Lags, Spread

CALM = Spread(n=60_000, p50=0.2, p90=1.0, p99=4.0, largest=90.0)
TYPED = type_along.Report(
    n_editors=2,
    seconds=300.0,
    keys_wanted=4800,
    keys=4700,
    asked=4700,
    answered=4000,
    withdrawn=700,
    unanswered=0,
    suggested=900,
    late=3,
    wrong=[],
    key_to_suggestion_ms=CALM,
    loop_wait_ms=[CALM, CALM],
    engine_mb=Growth(early=500.0, middle=502.0, late=503.0),
    front_end_mb=Growth(early=60.0, middle=60.3, late=60.4),
    n_engines=1,
    engine_counts={},
    troubles=[],
    recovered=2,
    exit_statuses=[0, 0],
    left_behind=[],
)
STORMED = storm.Report(
    connects=1000,
    files_before=9,
    files_after=9,
    mb_before=400.0,
    mb_after=404.0,
    clients_after=1,
    documents_after=1,
    cuts=100,
    answered=100,
    ms=CALM,
    left_behind=[],
)


def missed(found: list[bars.Bar]) -> list[str]:
    return [bar.claim for bar in found if not bar.is_met]


def test_a_run_in_which_all_is_well_meets_every_bar() -> None:
    assert missed(bars.of_typing(TYPED)) == []
    assert missed(bars.of_storm(STORMED)) == []


@pytest.mark.parametrize(
    ("what", "claim"),
    [
        ({"keys": 4000}, "wished keys"),
        ({"wrong": ["version 3 to 4: x"]}, "wrong or stale"),
        ({"suggested": 0}, "suggestions were made"),
        ({"unanswered": 1}, "answered"),
        ({"recovered": 1}, "served at the end"),
        ({"exit_statuses": [0, -9]}, "in order"),
        ({"left_behind": ["engine.lock"]}, "left behind"),
        ({"loop_wait_ms": [CALM, msgspec.structs.replace(CALM, p99=20.0)]}, "p99 below 20 ms"),
        ({"loop_wait_ms": [CALM]}, "p99 below 20 ms"),
        ({"n_engines": 2}, "one engine"),
        ({"engine_mb": Growth(early=500.0, middle=504.0, late=508.0)}, "the engine grows"),
        ({"front_end_mb": Growth(early=60.0, middle=62.0, late=64.5)}, "front end that grew most grows"),
    ],
)
def test_what_misses_one_bar_ends_with_status_1_and_says_which(
    what: dict[str, object], claim: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        judge(TYPED, bars.of_typing(msgspec.structs.replace(TYPED, **what)))
    assert ended.value.code == 1
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("MISSED")]
    assert claim in line


@pytest.mark.parametrize(
    "what",
    [{"answered": 99}, {"clients_after": 2}, {"files_after": 10}, {"mb_after": 430.0}, {"left_behind": ["e.sock"]}],
)
def test_a_storm_that_leaves_a_trace_misses_a_bar(what: dict[str, object]) -> None:
    assert len(missed(bars.of_storm(msgspec.structs.replace(STORMED, **what)))) == 1


def test_a_run_that_is_too_short_to_tell_of_memory_says_so_and_passes(capsys: pytest.CaptureFixture[str]) -> None:
    short = msgspec.structs.replace(TYPED, seconds=30.0, engine_mb=Growth(early=400.0, middle=440.0, late=480.0))
    with pytest.raises(SystemExit) as ended:
        judge(short, bars.of_typing(short))
    assert ended.value.code == 0
    assert capsys.readouterr().err.count("not judged") == 2


@pytest.mark.parametrize("amount", ["nan", "inf", "0", "-1"])
@pytest.mark.parametrize("option", ["--minutes", "--keys"])
def test_an_amount_that_is_none_is_refused(option: str, amount: str) -> None:
    asked = CliRunner().invoke(cli, ["typing", option, amount])
    assert asked.exit_code == 2
    assert option in asked.output


def test_growth_is_from_after_the_warm_up_to_the_end() -> None:
    samples = [100.0] * 60 + [200.0] * 100 + [206.0] * 80 + [210.0] * 60
    assert Growth.of(samples, 300.0) == Growth(early=200.0, middle=206.0, late=210.0)


def test_a_loop_that_stood_still_held_up_all_that_came_meanwhile() -> None:
    assert Lags(5.0, [0.0, 12.0, 1.0]).waits_ms() == [0.0, 12.0, 7.0, 2.0, 1.0]
