"""What a checkpoint takes is told before it is loaded, and what would fit is chosen or named."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from midspan_engine import budget as module
from midspan_engine.budget import (
    Budget,
    Weights,
    budget,
    choose_weights,
    free_bytes,
    wished_weights,
)
from midspan_engine.config import InfillConfig, load_model_config
from midspan_engine.device import serving_device
from midspan_engine.errors import EngineError, InputError
from midspan_engine.kv import KVCache
from midspan_engine.models.packed_matrix import PackedMatrix
from midspan_engine.weights import load_weights
from oracle import Shape, build_pair, write_checkpoint

GB = 10**9
HERE = Path("checkpoint")


def budgets(free: int | None) -> dict[Weights, Budget]:
    """Returns those of the released checkpoint, roughly."""
    sizes: dict[Weights, int] = {"stored": 51 * GB, "8bit": 29 * GB, "4bit": 18 * GB}
    return {
        weights: Budget(device="cuda:0", weights=size, kv=GB // 2, work=GB // 2, overhead=GB, free=free)
        for weights, size in sizes.items()
    }


@pytest.mark.parametrize(
    ("free", "wish", "held"),
    [
        (80 * GB, "auto", "stored"),
        (24 * GB, "auto", "4bit"),
        (40 * GB, "auto", "4bit"),
        (40 * GB, "8bit", "8bit"),
        (80 * GB, "4bit", "4bit"),
        (None, "auto", "stored"),
        (53 * GB, "auto", "stored"),
        (53 * GB - 1, "auto", "4bit"),
    ],
)
def test_weights_are_held_as_wished_or_as_they_fit(free: int | None, wish: module.Wish, held: str) -> None:
    assert choose_weights(HERE, wish, budgets(free))[0] == held


@pytest.mark.parametrize(
    ("free", "wish", "told"),
    [
        (24 * GB, "stored", "set MIDSPAN_WEIGHTS=4bit, which takes 20.0 GB"),
        (32 * GB, "stored", "set MIDSPAN_WEIGHTS=8bit, which takes 31.0 GB"),
        (16 * GB, "auto", "free 4.0 GB, or use a smaller checkpoint"),
        (16 * GB, "stored", "set MIDSPAN_WEIGHTS=4bit and free 4.0 GB"),
    ],
)
def test_what_does_not_fit_is_refused_with_what_would(free: int, wish: module.Wish, told: str) -> None:
    with pytest.raises(EngineError, match="does not fit into memory") as caught:
        choose_weights(HERE, wish, budgets(free))
    assert told in str(caught.value)


def test_a_budget_is_said_in_one_line() -> None:
    assert str(budgets(24 * GB)["4bit"]) == (
        "weights 18.0 GB, KV cache 0.5 GB, work 0.5 GB, overhead 1.0 GB: 20.0 GB, 24.0 GB free on cuda:0"
    )


def test_an_unknown_wish_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MIDSPAN_WEIGHTS", "3bit")
    with pytest.raises(InputError, match="use one of auto, stored, 8bit, 4bit"):
        wished_weights()
    monkeypatch.setenv("MIDSPAN_WEIGHTS", "")
    assert wished_weights() == "auto"


def test_the_kv_cache_is_counted_as_it_comes_to_be(tmp_path: Path) -> None:
    model = build_pair(tmp_path, Shape()).own
    cache = KVCache(model.config.n_layers)
    model.encode(torch.arange(300)[None] % 512, cache)
    infill = InfillConfig(prompt_tokens=int(cache.n_bytes / 4 / model.config.kv_numbers) - model.config.canvas_length)
    counted = budget(model.config, infill, torch.float32, torch.device("cpu"), 0).kv
    assert counted == cache.n_bytes


@pytest.mark.parametrize("wish", ["stored", "8bit", "4bit"])
def test_the_weights_are_counted_as_they_come_to_be(
    tmp_path: Path, wish: module.Wish, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_checkpoint(tmp_path / "checkpoint", Shape(layers="sf", experts=4, expert_width=32))
    config = load_model_config(tmp_path / "checkpoint")
    counted: list[int] = []
    real = module.choose_weights

    def noting(folder: Path, wish: module.Wish, budgets: dict[Weights, Budget]) -> tuple[Weights, Budget]:
        chosen = real(folder, wish, budgets)
        counted.append(chosen[1].weights)
        return chosen

    monkeypatch.setattr("midspan_engine.weights.choose_weights", noting)
    told: list[str] = []
    kept = tmp_path / "kept"
    model = load_weights(
        tmp_path / "checkpoint", config, torch.bfloat16, wish=wish, kept_in=kept, on_budget=told.append
    )
    held = [*model.parameters(), *model.buffers()]
    assert counted == [sum(tensor.nbytes for tensor in held)]
    assert [each.startswith(f"experts as {wish}; weights") for each in told] == [True]


def test_experts_are_packed_when_memory_is_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_checkpoint(tmp_path / "checkpoint", Shape(layers="sf", experts=32, expert_width=64, vocab=64))
    config = load_model_config(tmp_path / "checkpoint")
    infill = InfillConfig(prompt_tokens=8)

    def load(free: int | None) -> bool:
        monkeypatch.setattr(module, "free_bytes", lambda device: free)
        model = load_weights(
            tmp_path / "checkpoint", config, torch.float32, wish="auto", infill=infill, kept_in=tmp_path / "kept"
        )
        return any(isinstance(part, PackedMatrix) for part in model.modules())

    assert not load(10**9)
    assert load(2 * 10**6)
    with pytest.raises(EngineError, match="or use a smaller checkpoint"):
        load(10**5)


def test_this_machine_tells_what_is_free_or_nothing() -> None:
    free = free_bytes(torch.device("cpu"))
    assert free is None or free > 0
    assert free_bytes(torch.device("meta")) is None


def test_a_dense_model_is_served_on_the_processor_whatever_there_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    for n_experts, where in ((1, "cpu"), (4, "cuda")):
        write_checkpoint(tmp_path / where, Shape(layers="f", experts=n_experts, top_k=1))
        assert serving_device(load_model_config(tmp_path / where)).type == where
