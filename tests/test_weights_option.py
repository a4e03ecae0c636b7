"""`midspan engine start --weights`: the user's wish reaches the engine, and what it takes is in the log."""

from __future__ import annotations

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
        told = refused(midspan(environment, "engine", "start", "--weights", "stored"))
        assert "run `midspan engine stop` first" in told
    finally:
        midspan(environment, "engine", "stop")


def test_an_engine_with_an_unknown_wish_says_which_there_are(tmp_path: Path) -> None:
    environment = environment_in(tmp_path) | {"MIDSPAN_WEIGHTS": "3bit"}
    told = refused(midspan(environment, "engine", "start"))
    midspan(environment, "engine", "stop")
    assert "use one of auto, stored, 8bit, 4bit" in told
