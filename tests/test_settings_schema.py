"""The settings as other tools read them: the JSON schema in the package and what the VS Code extension declares."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

import midspan_server
from midspan_server.settings import Settings

SCHEMA = Path(midspan_server.__file__).parent / "settings.schema.json"
MANIFEST = Path(__file__).parent.parent / "editors" / "vscode" / "package.json"
OWN = {"midspan.path", "midspan.languages"}
"""Settings of the extension itself: where the server is, and what is sent to it."""
NEITHER = {"description", "default", "markdownDescription", "order", "scope", "uniqueItems", "enumDescriptions"}
"""What says nothing about which values are taken."""


def schema_of_settings() -> dict[str, Any]:
    schema: dict[str, Any] = json.loads(json.dumps(msgspec.json.schema(Settings)["$defs"]["Settings"]))
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "additionalProperties": False, **schema}


@pytest.fixture(scope="module")
def declared() -> dict[str, Any]:
    manifest = json.loads(MANIFEST.read_text(encoding="utf-8"))
    properties: dict[str, Any] = manifest["contributes"]["configuration"]["properties"]
    return properties


def test_the_schema_in_the_package_is_that_of_the_settings(request: pytest.FixtureRequest) -> None:
    text = json.dumps(schema_of_settings(), indent=2) + "\n"
    if request.config.getoption("--regenerate"):
        SCHEMA.write_text(text, encoding="utf-8")
    assert SCHEMA.read_text(encoding="utf-8") == text, "run pytest tests/test_settings_schema.py --regenerate"


def test_every_setting_of_the_server_can_be_set_in_vs_code(declared: dict[str, Any]) -> None:
    assert set(declared) - OWN == {f"midspan.{name}" for name in Settings.__struct_fields__}


def test_vs_code_knows_the_same_defaults_and_values(declared: dict[str, Any]) -> None:
    for name, ours in schema_of_settings()["properties"].items():
        theirs = declared[f"midspan.{name}"]
        assert theirs["default"] == ours["default"], name
        assert values(theirs) == values(ours), name


def values(schema: dict[str, Any]) -> dict[str, Any]:
    """Returns what a schema says of the values it takes, a choice of types in one form."""
    bare = {key: each for key, each in schema.items() if key not in NEITHER}
    for choice in bare.pop("anyOf", ()):
        kind = choice.pop("type")
        bare = {**bare, **choice, "type": sorted([*bare.get("type", []), kind])}
    if isinstance(bare.get("type"), list):
        bare["type"] = sorted(bare["type"])
    if "enum" in bare:
        bare["enum"] = sorted(bare["enum"])
        bare.pop("type", None)
    return bare
