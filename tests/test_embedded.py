"""The checkpoint that ships: a true DiffusionGemma checkpoint, small, and useful on files it has never seen."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from midspan_engine.config import embedded_checkpoint
from midspan_engine.engine import Engine
from midspan_engine.evaluation.cases import ONE_LINE_KINDS, Case
from midspan_engine.evaluation.methods import Attempt
from midspan_engine.evaluation.scores import judge
from midspan_engine.protocol import SHOWN_CONFIDENCE, Fill
from midspan_engine.training.gaps import cut
from midspan_server.context import context_at
from midspan_server.filters import Dropped, sifted
from midspan_server.text import snapshot

EMBEDDED = embedded_checkpoint()


@pytest.fixture(scope="module")
def engine() -> Engine:
    torch.set_num_threads(1)
    return Engine.load(EMBEDDED)


def test_loading_brings_in_no_compiler() -> None:
    """Torch's compiler and Triton take a second and a hundred megabytes, and serving on a CPU needs neither."""
    program = (
        "import sys; from midspan_engine.config import embedded_checkpoint; from midspan_engine.engine import Engine; "
        "Engine.load(embedded_checkpoint()); print(sorted({'torch._dynamo', 'triton'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def own_cases(n_cases: int) -> list[Case]:
    """One-line gaps in this project's own files, which no training data holds."""
    rng = random.Random(7)
    texts = [
        path.read_text(encoding="utf-8")
        for folder in ("engine/midspan_engine", "server/midspan_server")
        for path in sorted((Path(__file__).parent.parent / folder).glob("*.py"))
        if path.stat().st_size > 1500
    ]
    cases: list[Case] = []
    while len(cases) < n_cases:
        text = rng.choice(texts)
        kind = ONE_LINE_KINDS[len(cases) % len(ONE_LINE_KINDS)]
        gap = cut(kind, text, rng.randrange(len(text) // 5, len(text)), rng)
        if gap is not None and text[slice(*gap)].strip():
            start, end = gap
            cases.append(Case(f"own-{len(cases)}", kind, text[:start], text[start:end], text[end:]))
    return cases


def test_all_files_together_take_at_most_40_mb() -> None:
    assert sum(path.stat().st_size for path in EMBEDDED.iterdir()) <= 40_000_000


def test_it_says_which_language_it_knows_and_carries_a_model_card() -> None:
    infill = json.loads((EMBEDDED / "infill_config.json").read_text())
    assert infill["languages"] == ["python"]
    card = (EMBEDDED / "README.md").read_text(encoding="utf-8")
    for word in ("licence", "tokens", "exact", "Python"):
        assert word in card


@pytest.mark.slow
def test_transformers_computes_the_same_logits_and_the_same_denoising_trace() -> None:
    # In a process of its own: importing transformers warns of its own deprecations, and warnings are errors here.
    command = [sys.executable, "-m", "midspan_engine", "verify", str(EMBEDDED), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    report = json.loads(done.stdout)
    assert report["max_abs_diff"] <= 2e-4
    assert report["trace_identical"]


@pytest.mark.slow
def test_what_is_shown_leaves_the_file_valid_in_at_least_70_percent(engine: Engine) -> None:
    shown = []
    for case in own_cases(240):
        request = Fill(id=1, document=case.name, parts=(case.prefix, case.suffix), min_confidence=SHOWN_CONFIDENCE)
        filled = engine.fill(request, received=time.perf_counter(), is_cancelled=lambda: False)
        context = context_at(snapshot(case.prefix + case.suffix), len(case.prefix), "automatic")
        for best in filled.candidates[:1]:
            text = sifted(best.text, context)
            if not isinstance(text, Dropped):
                shown.append(judge(case, Attempt(text, best.confidence, 0.0, 0)).is_valid)
    assert len(shown) >= 24, "a checkpoint that stays silent shows nothing"
    assert sum(shown) / len(shown) >= 0.7, f"{sum(shown)} of {len(shown)}"
