"""The model thread: queued fills end at their deadline, a mended or replaced checkpoint is loaded again."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import time
from pathlib import Path

import pytest

from midspan_engine.job_queue import Job
from midspan_engine.protocol import Failed, Fill, Filled
from midspan_engine.worker import Worker
from served_checkpoint import CHECKPOINT

PATIENCE_S = 60.0
"""A busy machine takes seconds to import torch."""


class Asked:
    """A submitted job and its answer."""

    def __init__(self, worker: Worker, request: Fill) -> None:
        self.answer: asyncio.Future[Filled | Failed] = asyncio.get_running_loop().create_future()
        self.job = Job(
            request,
            client=1,
            received=time.perf_counter(),
            on_draft=lambda _: None,
            on_done=self.answer.set_result,
        )
        worker.submit(self.job)

    async def wait(self) -> Filled | Failed:
        return await asyncio.wait_for(asyncio.shield(self.answer), PATIENCE_S)


def fill(id: int, **wishes: object) -> Fill:
    return Fill(id=id, **{"document": f"{id}.py", "parts": ("def f(a, b):\n    return ", "\n")} | wishes)  # type: ignore[arg-type]


def test_a_fill_queued_behind_a_long_one_is_answered_at_its_deadline() -> None:
    async def scene() -> None:
        worker = Worker(CHECKPOINT, asyncio.get_running_loop())
        worker.start()
        try:
            assert isinstance(await Asked(worker, fill(1, deadline_ms=1.0)).wait(), Filled)
            long = Asked(worker, fill(2, n_candidates=8, single_line=False, max_tokens=40))
            queued = Asked(worker, fill(3, deadline_ms=1.0))
            reply = await queued.wait()
            assert isinstance(reply, Filled)
            assert "busy" in (reply.silence or "")
            assert not long.answer.done()
            assert isinstance(await long.wait(), Filled)
        finally:
            worker.stop(PATIENCE_S)

    asyncio.run(scene())


def test_a_checkpoint_mended_after_a_failed_load_is_used_without_a_restart(tmp_path: Path) -> None:
    async def scene() -> None:
        folder = tmp_path / "checkpoint"
        worker = Worker(folder, asyncio.get_running_loop())
        worker.start()
        try:
            for id in (1, 2):
                reply = await Asked(worker, fill(id)).wait()
                assert isinstance(reply, Failed)
                assert reply.is_input
            shutil.copytree(CHECKPOINT, folder)
            assert isinstance(await Asked(worker, fill(3)).wait(), Filled)
            assert worker.state in ("ready", "busy")
        finally:
            worker.stop(PATIENCE_S)

    asyncio.run(scene())


def test_a_checkpoint_replaced_under_a_running_engine_is_loaded_and_a_removed_one_served_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("midspan_engine.worker.LOOK_S", 0.05)
    folder = tmp_path / "checkpoint"
    shutil.copytree(CHECKPOINT, folder)

    def says_other_languages() -> None:
        config = json.loads((folder / "infill_config.json").read_text())
        (folder / "new.json").write_text(json.dumps(config | {"languages": ["klingon"]}))
        os.replace(folder / "new.json", folder / "infill_config.json")

    async def scene() -> None:
        worker = Worker(folder, asyncio.get_running_loop())
        worker.start()
        try:
            first = await Asked(worker, fill(1)).wait()
            assert isinstance(first, Filled)
            assert "klingon" not in str(first.silence)
            says_other_languages()
            deadline = time.monotonic() + PATIENCE_S
            silence: str | None = None
            while "klingon" not in str(silence):
                assert time.monotonic() < deadline, "the old checkpoint is served for ever"
                await asyncio.sleep(0.02)
                reply = await Asked(worker, fill(2)).wait()
                assert isinstance(reply, Filled)
                silence = reply.silence
            engine = worker.engine
            shutil.rmtree(folder)
            for id in range(3, 8):
                await asyncio.sleep(0.05)
                assert isinstance(await Asked(worker, fill(id)).wait(), Filled)
            assert worker.engine is engine
        finally:
            worker.stop(PATIENCE_S)

    asyncio.run(scene())
