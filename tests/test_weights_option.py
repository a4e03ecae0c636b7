"""`midspan engine start --weights`: the user's wish reaches the engine, and what it takes is in the log."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec

from command_line import SHOP, environment_in, midspan, refused, write


def test_an_engine_holds_its_experts_as_wished(tmp_path: Path) -> None:
    environment = environment_in(tmp_path) | {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    try:
        started = midspan(environment, "engine", "start", "--weights", "8bit")
        assert started.returncode == 0, started.stderr.decode()
        (log,) = (tmp_path / "state").rglob("engine-*.log")
        assert "experts as 8bit; weights " in log.read_text()
        assert list((tmp_path / "cache").rglob("*.int8.safetensors"))
        shop = write(tmp_path, SHOP.replace(" price * quantity", " ").encode())
        filled = midspan(environment, "fill", shop, "--at", "2:12", "--json", "--min-confidence", "0")
        assert filled.returncode == 0, filled.stderr.decode()
        assert msgspec.json.decode(filled.stdout)["silence"] is None
        again = midspan(environment, "engine", "start", "--weights", "8bit", "--json")
        assert msgspec.json.decode(again.stdout)["engine"]["weights"] == "8bit"
        told = refused(midspan(environment, "engine", "start", "--weights", "stored"))
        assert "run `midspan engine stop` first" in told
    finally:
        midspan(environment, "engine", "stop")


def test_an_engine_with_an_unknown_wish_says_which_there_are(tmp_path: Path) -> None:
    environment = environment_in(tmp_path) | {"MIDSPAN_WEIGHTS": "3bit"}
    try:
        told = refused(midspan(environment, "engine", "start"))
        assert "use one of auto, stored, 8bit, 4bit" in told
        better = midspan(environment, "engine", "start", "--weights", "stored")
        assert better.returncode == 0, better.stderr.decode()
        assert better.stderr.startswith(b"Its memory: weights"), "however fast it loads"
    finally:
        midspan(environment, "engine", "stop")


def test_of_two_wishes_at_once_one_is_served_and_the_other_is_told(tmp_path: Path) -> None:
    environment = environment_in(tmp_path) | {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    try:
        with ThreadPoolExecutor() as pool:
            starts = pool.map(lambda wish: midspan(environment, "engine", "start", "--weights", wish), ("8bit", "4bit"))
        served, told = sorted(starts, key=lambda done: done.returncode)
        assert served.returncode == 0, served.stderr.decode()
        held = "8bit" if b"experts as 8bit" in served.stderr else "4bit"
        assert f"with --weights {held}: run `midspan engine stop` first" in refused(told)
    finally:
        midspan(environment, "engine", "stop")
