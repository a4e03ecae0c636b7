"""The model thread: queued fills end at their deadline, a mended or replaced checkpoint is loaded again."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from midspan_engine.job_queue import Job
from midspan_engine.kv import KVCache
from midspan_engine.models.diffusion_gemma import DiffusionGemma
from midspan_engine.protocol import Failed, Fill, Filled, Held, Lend
from midspan_engine.trouble import is_device_lost, is_out_of_memory
from midspan_engine.worker import Worker
from served_checkpoint import CHECKPOINT

PATIENCE_S = 60.0
"""A busy machine takes seconds to import torch."""


class Asked:
    """A submitted job and its answer."""

    def __init__(self, worker: Worker, request: Fill, client: int = 1) -> None:
        self.answer: asyncio.Future[Filled | Failed] = asyncio.get_running_loop().create_future()
        self.job = Job(
            request,
            client=client,
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


@pytest.mark.parametrize("n_most", [1, 2])
def test_fills_that_wait_share_passes_and_where_memory_does_not_suffice_for_that_each_has_its_own(n_most: int) -> None:
    decode, n_rows = DiffusionGemma.decode, list[int]()

    def short(model: DiffusionGemma, canvas_BC: torch.Tensor, *rest: Any) -> torch.Tensor:
        if len(canvas_BC) == 2:
            n_rows.append(2)
            if n_most == 1:
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        return decode(model, canvas_BC, *rest)

    async def scene() -> None:
        worker = Worker(CHECKPOINT, asyncio.get_running_loop())
        worker.start()
        try:
            long = Asked(worker, fill(1, n_candidates=8, priority="several"))
            while long.job.n_signs == 0:  # it has begun
                await asyncio.sleep(0)
            wishes = {"single_line": False, "max_tokens": 40}
            typed = [Asked(worker, fill(2, **wishes), client) for client in (1, 2)]
            for reply in [await each.wait() for each in (long, *typed)]:
                assert isinstance(reply, Filled)
                assert reply.stats.steps
            assert n_rows
            assert isinstance(await Asked(worker, fill(3)).wait(), Filled)  # by now everything is counted
            assert bool(worker.n_shared_passes) == (n_most == 2)
            assert worker.n_retries == 0
        finally:
            worker.stop(PATIENCE_S)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DiffusionGemma, "decode", short)
        asyncio.run(scene())


def test_typing_is_answered_between_two_canvases_of_an_edit() -> None:
    async def scene() -> None:
        worker = Worker(CHECKPOINT, asyncio.get_running_loop())
        worker.start()
        try:
            assert isinstance(await Asked(worker, fill(1)).wait(), Filled)
            n_holes = 6
            far = ")\n" + "y = 1\n" * 60
            parts = ("x = f(", *(f"{far}x = f(" for _ in range(n_holes - 1)), ")\n")
            edit = Asked(worker, fill(2, parts=parts, held=(Held(text=""),) * n_holes, priority="several"))
            while edit.job.n_signs == 0:  # it has begun
                await asyncio.sleep(0)
            reply = await Asked(worker, fill(3, document="2.py")).wait()
            assert isinstance(reply, Filled)
            assert reply.candidates
            assert not edit.answer.done()
            done = await edit.wait()
            assert isinstance(done, Filled)
            assert done.silence != "cancelled"
        finally:
            worker.stop(PATIENCE_S)

    asyncio.run(scene())


@contextmanager
def failing(worker: Worker, times: int, error: Exception) -> Iterator[list[int]]:
    """Lets passes of the encoder fail so many times, as an accelerator does; collects the documents cached by then."""
    encode, n_documents = DiffusionGemma.encode, list[int]()

    def fail(model: DiffusionGemma, *rest: Any) -> torch.Tensor:
        if len(n_documents) < times:
            assert worker.engine is not None
            n_documents.append(worker.engine.n_documents)
            raise error
        return encode(model, *rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DiffusionGemma, "encode", fail)
        yield n_documents


@pytest.mark.parametrize("times", [1, 2])
def test_an_accelerator_out_of_memory_is_tried_again_with_empty_caches_and_twice_is_the_end(times: int) -> None:
    async def scene() -> None:
        worker = Worker(CHECKPOINT, asyncio.get_running_loop())
        worker.start()
        try:
            for id in (1, 2):
                assert isinstance(await Asked(worker, fill(id)).wait(), Filled)
            error = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
            with failing(worker, times, error) as n_documents:
                reply = await Asked(worker, fill(3)).wait()
            assert worker.n_retries == 1
            assert n_documents == [3, 1][:times], "the caches were dropped before the second try"
            if times == 1:
                assert isinstance(reply, Filled)
            else:
                assert isinstance(reply, Failed)
                assert reply.is_final
                assert "out of memory" in reply.message
        finally:
            worker.stop(PATIENCE_S)

    asyncio.run(scene())


def test_a_fill_that_is_tried_again_has_let_go_of_its_memory() -> None:
    decode, caches, are_free = DiffusionGemma.decode, list[weakref.ref[KVCache]](), list[bool]()

    def short(model: DiffusionGemma, canvas_BC: torch.Tensor, cache: KVCache, *rest: Any) -> torch.Tensor:
        if not caches:
            caches.append(weakref.ref(cache))
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        are_free.append(caches[0]() is None)
        return decode(model, canvas_BC, cache, *rest)

    async def scene() -> None:
        worker = Worker(CHECKPOINT, asyncio.get_running_loop())
        worker.start()
        try:
            assert isinstance(await Asked(worker, fill(1, single_line=False, max_tokens=40)).wait(), Filled)
            assert worker.n_retries == 1
        finally:
            worker.stop(PATIENCE_S)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DiffusionGemma, "decode", short)
        asyncio.run(scene())
    assert are_free
    assert all(are_free)


def test_a_lost_accelerator_is_told_and_ends_the_engine() -> None:
    async def scene() -> None:
        worker = Worker(CHECKPOINT, asyncio.get_running_loop())
        worker.start()
        try:
            with failing(worker, 1, torch.AcceleratorError("CUDA error: unspecified launch failure")):
                reply = await Asked(worker, fill(1)).wait()
            assert isinstance(reply, Failed)
            assert reply.is_final
            assert not reply.is_input
            assert "the next request starts a new one" in reply.message
            assert worker.n_retries == 0
        finally:
            worker.stop(PATIENCE_S)

    asyncio.run(scene())


@pytest.mark.parametrize(
    ("error", "is_memory", "is_lost"),
    [
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB."), True, False),
        (RuntimeError("[enforce fail at alloc_cpu.cpp:121] DefaultCPUAllocator: can't allocate memory"), True, False),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"), True, False),
        (torch.AcceleratorError("CUDA error: an illegal memory access was encountered"), False, True),
        (RuntimeError("CUDA error: device-side assert triggered"), False, True),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), False, False),
    ],
)
def test_short_memory_is_told_from_a_lost_device(error: Exception, is_memory: bool, is_lost: bool) -> None:
    assert is_out_of_memory(error) is is_memory
    assert (is_device_lost(error) and not is_memory) is is_lost


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


def say_other_languages(folder: Path) -> None:
    config = json.loads((folder / "infill_config.json").read_text())
    (folder / "new.json").write_text(json.dumps(config | {"languages": ["klingon"]}))
    os.replace(folder / "new.json", folder / "infill_config.json")


def test_a_checkpoint_is_replaced_and_a_document_forgotten_although_somebody_types_all_the_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("midspan_engine.checkpoint_files.CheckpointFiles.LOOK_S", 0.05)
    folder = tmp_path / "checkpoint"
    shutil.copytree(CHECKPOINT, folder)

    async def type_until(worker: Worker, client: int, word: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        silence: str | None = None
        while word not in str(silence):
            assert time.monotonic() < deadline, "the old checkpoint is served for ever"
            reply = await Asked(worker, fill(2), client).wait()
            assert isinstance(reply, Filled)
            silence = reply.silence

    async def scene() -> None:
        worker = Worker(folder, asyncio.get_running_loop())
        worker.start()
        try:
            assert isinstance(await Asked(worker, fill(1)).wait(), Filled)
            typing = [asyncio.create_task(type_until(worker, client, "klingon")) for client in (1, 2, 3)]
            worker.forget(["1 1.py"])
            while worker._closed_documents:
                await asyncio.sleep(0.01)
            say_other_languages(folder)
            await asyncio.gather(*typing)
        finally:
            worker.stop(PATIENCE_S)

    asyncio.run(scene())


def test_a_checkpoint_replaced_under_a_running_engine_is_loaded_and_a_removed_one_served_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("midspan_engine.checkpoint_files.CheckpointFiles.LOOK_S", 0.05)
    folder = tmp_path / "checkpoint"
    shutil.copytree(CHECKPOINT, folder)

    async def scene() -> None:
        worker = Worker(folder, asyncio.get_running_loop())
        worker.start()
        try:
            first = await Asked(worker, fill(1)).wait()
            assert isinstance(first, Filled)
            assert "klingon" not in str(first.silence)
            say_other_languages(folder)
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


def lend(file: str, text: str) -> Lend:
    return Lend(workspace="w", file=file, text=text)


async def until(claim: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not claim():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)


def test_lent_files_are_taken_in_while_nobody_asks_and_out_before_the_next_fill() -> None:
    async def scene() -> None:
        worker = Worker(CHECKPOINT, asyncio.get_running_loop())
        worker.start()
        try:
            assert isinstance(await Asked(worker, fill(1)).wait(), Filled)
            assert worker.engine is not None
            for n in range(3):
                worker.lend(lend(f"{n}.py", f"value_{n} = {n}\n"))
            await until(lambda: worker.is_up_to_date)
            assert worker.engine.n_files == 3
            long = Asked(worker, fill(2, n_candidates=8, single_line=False, max_tokens=40))
            for n in range(50):
                worker.lend(lend(f"{n}.py", f"other_{n} = {n}\n"))
            for n in range(50):
                worker.lend(lend(f"{n}.py", ""))
            after = Asked(worker, fill(3))
            await long.wait()
            await after.wait()
            assert worker.engine.n_files == 0
            worker.lend(lend("a.py", "x = 1\n"))
            await until(lambda: worker.is_up_to_date)
            worker.close_workspaces(["w"])
            await Asked(worker, fill(4)).wait()
            assert worker.engine.n_files == 0
        finally:
            worker.stop(PATIENCE_S)

    asyncio.run(scene())


def test_an_engine_that_is_loaded_again_is_lent_everything_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("midspan_engine.checkpoint_files.CheckpointFiles.LOOK_S", 0.05)
    folder = shutil.copytree(CHECKPOINT, tmp_path / "checkpoint")

    async def scene() -> None:
        worker = Worker(folder, asyncio.get_running_loop())
        worker.start()
        try:
            worker.lend(lend("a.py", "x = 1\n"))
            await until(lambda: worker.engine is not None and worker.engine.n_files == 1)
            before = worker.engine
            infill = json.loads((folder / "infill_config.json").read_text()) | {"rival_passes": 1}
            (folder / "infill_config.json").write_text(json.dumps(infill))
            await until(lambda: worker.engine not in (None, before) and worker.engine.n_files == 1)
        finally:
            worker.stop(PATIENCE_S)

    asyncio.run(scene())
