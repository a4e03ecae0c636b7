"""infill_config.json: what contradicts itself is refused when it is read, not at the first fill."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from midspan_engine.config import InfillConfig, load_infill_config
from midspan_engine.errors import CheckpointError


def read(folder: Path, **content: object) -> InfillConfig:
    (folder / "infill_config.json").write_text(json.dumps(content))
    return load_infill_config(folder)


def test_a_folder_without_the_file_has_the_defaults(tmp_path: Path) -> None:
    assert load_infill_config(tmp_path) == InfillConfig()


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ({"noise": "mask"}, "mask_token_id is missing"),
        ({"causal_weight": 0.7}, "needs mask_token_id and blank_token_id"),
        ({"causal_weight": 0.7, "blank_token_id": 5}, "needs mask_token_id and blank_token_id"),
        ({"noise": "mask", "mask_token_id": 4, "causal_weight": 0.7}, "needs mask_token_id and blank_token_id"),
        ({"mask_token_id": 4, "blank_token_id": 5, "causal_weight": 0.7}, "needs order left_to_right"),
        ({"mask_token_id": 4, "blank_token_id": 4}, "must differ"),
        ({"length": "blanks"}, "blank_token_id is missing"),
        ({"length": "guess"}, "length"),
        ({"sure_confidence": 1.5}, "sure_confidence"),
        ({"repeat_weights": [0.5, 1.0]}, "repeat_weights"),
        ({"repeat_weight": [0.5]}, "repeat_weight"),
    ],
)
def test_what_contradicts_itself_is_refused_with_the_reason(
    tmp_path: Path, content: dict[str, object], told: str
) -> None:
    with pytest.raises(CheckpointError, match=told):
        read(tmp_path, **content)


@pytest.mark.parametrize(
    ("content", "way"),
    [
        ({}, "probe"),
        ({"blank_token_id": 5}, "blanks"),
        ({"blank_token_id": 5, "length": "fixed"}, "fixed"),
        ({"length": "echo"}, "echo"),
    ],
)
def test_a_length_is_told_by_blanks_where_there_are_any_and_else_probed(
    tmp_path: Path, content: dict[str, object], way: str
) -> None:
    assert read(tmp_path, **content).finds_length == way


def test_a_checkpoint_with_a_vote_is_read(tmp_path: Path) -> None:
    infill = read(
        tmp_path,
        order="left_to_right",
        mask_token_id=4,
        blank_token_id=5,
        causal_weight=0.7,
        quote_tokens=24,
        sure_confidence=0.5,
        repeat_weights=[0.1, 0.6],
    )
    assert infill.repeat_weights == (0.1, 0.6)
    assert infill.sure_confidence == 0.5
