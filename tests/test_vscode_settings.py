"""The extension's settings are the server's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from midspan_server.settings import Settings

MANIFEST = Path(__file__).parent.parent / "editors" / "vscode" / "package.json"
OWN = {"midspan.path", "midspan.languages"}
"""Settings of the extension itself: where the server is, and what is sent to it."""


@pytest.fixture(scope="module")
def declared() -> dict[str, Any]:
    manifest = json.loads(MANIFEST.read_text(encoding="utf-8"))
    properties: dict[str, Any] = manifest["contributes"]["configuration"]["properties"]
    return properties


def test_every_setting_of_the_server_can_be_set_in_vs_code(declared: dict[str, Any]) -> None:
    assert set(declared) - OWN == {f"midspan.{name}" for name in Settings.__struct_fields__}


def test_defaults_and_bounds_agree(declared: dict[str, Any]) -> None:
    schema = msgspec.json.schema(Settings)["$defs"]["Settings"]["properties"]
    defaults = json.loads(msgspec.json.encode(Settings()))
    for name, default in defaults.items():
        ours = declared[f"midspan.{name}"]
        assert ours["default"] == default, name
        for bound in ("minimum", "maximum"):
            assert ours.get(bound) == schema[name].get(bound), name
