"""Settings: who wins, and what a wrong value costs."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from midspan_server.privacy import DEFAULT_GLOBS
from midspan_server.settings import Settings, Source, client_source, load, read_user_file

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
KEYS = tuple(Settings.__struct_fields__)


def test_nothing_said_means_the_defaults() -> None:
    loaded = load([client_source("initializationOptions", None)])
    assert loaded.settings == Settings()
    assert loaded.settings.excluded_globs == DEFAULT_GLOBS
    assert not loaded.problems
    assert loaded.blocked is None


def test_a_later_source_wins_key_by_key() -> None:
    loaded = load([Source("a", {"max_tokens": 8, "enabled": False}), Source("b", {"max_tokens": 16})])
    assert loaded.settings == Settings(max_tokens=16, enabled=False)


@pytest.mark.parametrize(
    ("key", "value", "accepted"),
    [
        ("enabled", "yes", "true or false"),
        ("max_tokens", 0, "from 1 to 192"),
        ("max_tokens", "many", "from 1 to 192"),
        ("min_confidence", 1.5, "from 0 to 1"),
        ("eagerness", "greedy", '"reserved", "balanced" or "eager"'),
        ("neighbour_characters", -1, "from 0 to 8192"),
        ("deadline_ms", -1, "from 10 to 60000"),
        ("checkpoint", 3, "checkpoint folder"),
        ("disabled_languages", "python", "list of language ids"),
    ],
)
def test_a_wrong_value_gives_a_message_and_the_default(key: str, value: object, accepted: str) -> None:
    loaded = load([Source("the user's file", {key: value})])
    assert loaded.settings == Settings()
    assert loaded.blocked is None
    (problem,) = loaded.problems
    for part in (f"midspan.{key}", str(value), accepted, "the user's file", "is used"):
        assert part in problem


def test_a_wrong_value_takes_the_default_even_over_a_right_one_below() -> None:
    assert load([Source("a", {"max_tokens": 8}), Source("b", {"max_tokens": "x"})]).settings.max_tokens == 32


def test_a_misspelt_key_is_named() -> None:
    (problem,) = load([Source("a", {"max_token": 8})]).problems
    assert "midspan.max_token " in problem
    assert "max_tokens" in problem


def test_null_and_the_keys_of_clients_are_left_alone() -> None:
    assert not load(
        [Source("a", {"trace": {"server": "off"}, "$schema": "x", "max_tokens": None, "checkpoint": None})]
    ).problems


@pytest.mark.parametrize("key", ["excluded_globs", "context_excluded_globs"])
@pytest.mark.parametrize("value", [".env", [1], [""], ["a["], {"a": 1}])
def test_a_malformed_exclusion_list_blocks_completion_and_says_so(key: str, value: object) -> None:
    loaded = load([Source("a", {key: value})])
    assert loaded.blocked
    assert f"midspan.{key}" in loaded.blocked
    assert "nothing is completed until" in loaded.problems[0]


def test_one_list_that_is_right_does_not_lift_the_block_of_the_other() -> None:
    loaded = load([Source("a", {"context_excluded_globs": 1}), Source("b", {"excluded_globs": ["x"]})])
    assert loaded.blocked


def test_a_later_well_formed_exclusion_list_lifts_the_block() -> None:
    loaded = load([Source("a", {"excluded_globs": 1}), Source("b", {"excluded_globs": ["x"]})])
    assert loaded.blocked is None
    assert loaded.settings.excluded_globs == ("x",)


@pytest.mark.parametrize("content", [b"{", b"[1]", b"\xff\xfe", b"[" * 100_000])
def test_a_user_file_that_cannot_be_read_blocks_completion(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "settings.json"
    path.write_bytes(content)
    loaded = load([read_user_file(path)])
    assert loaded.blocked
    assert str(path) in loaded.problems[0]


def test_a_user_file_is_read(tmp_path: Path) -> None:
    assert read_user_file(tmp_path / "absent.json") == Source(str(tmp_path / "absent.json"), {})
    (tmp_path / "settings.json").write_text('{"max_tokens": 5}')
    assert load([read_user_file(tmp_path / "settings.json")]).settings.max_tokens == 5


@given(st.lists(st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=4), JSON, max_size=4) | JSON, max_size=3))
def test_no_source_of_any_shape_raises(values: list[object]) -> None:
    load([client_source("a client", value) for value in values])
