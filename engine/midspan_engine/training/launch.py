"""A training run as a whole: starts its processes, passes signals on to them, says what went wrong.

Two processes of one thread beat two threads of one process by about 1.8 on a CPU.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import socket
import sysconfig
import tempfile
from pathlib import Path

import torch
from torch.multiprocessing.spawn import (
    ProcessContext,
    ProcessExitedException,
    ProcessRaisedException,
    start_processes,
)

from midspan_engine.config import load_model_config
from midspan_engine.errors import EngineError, InputError
from midspan_engine.models.diffusion_gemma import DiffusionGemma
from midspan_engine.tokens import Tokens
from midspan_engine.training.job import Job, make_examples, share_done
from midspan_engine.training.run_folder import RunFolder, read_weights
from midspan_engine.training.trainer import run_process

_ALLOCATOR = {
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": str(1 << 34),
    "MALLOC_TOP_PAD_": str(1 << 26),
}
"""glibc keeps freed memory instead of returning it to the system: 20-40 % more tokens a second."""


def train(job: Job, n_processes: int) -> bool:
    """Trains until the recipe's schedule is done, or SIGTERM or SIGINT asks to stop; resumes an earlier call's run.

    Returns whether all of it is done; whatever is done is saved. Raises InputError for a job that cannot be trained,
    EngineError when a process fails.
    """
    _check(job)
    folder = RunFolder(job.run)
    folder.write_configs(job.recipe, job.data / "tokenizer.json")
    # glibc reads these once, when a process starts
    os.environ.update({name: value for name, value in _ALLOCATOR.items() if name not in os.environ})
    arguments = (n_processes, _free_port(), job)
    context = start_processes(  # type: ignore[no-untyped-call]  # torch has no types for it
        run_process, arguments, nprocs=n_processes, join=False, start_method="spawn"
    )
    _wait(context, job.run)
    return share_done(job, folder.progress()) >= 1


def can_compile() -> bool:
    """Tells whether torch.compile can build for the CPU: it needs a C++ compiler ($CXX or g++) and Python's headers."""
    compiler = shlex.split(os.environ.get("CXX", "")) or ["g++"]
    return shutil.which(compiler[0]) is not None and Path(sysconfig.get_path("include"), "Python.h").exists()


def _check(job: Job) -> None:
    """Raises InputError for what would make every process fail, before anything is written."""
    tokenizer = job.data / "tokenizer.json"
    tokens = Tokens.load(tokenizer)
    for split in ("train", "held"):
        make_examples(job, tokens, split, seed=0)
    with tempfile.TemporaryDirectory() as scratch:
        folder = RunFolder(Path(scratch))
        folder.write_configs(job.recipe, tokenizer)
        with torch.device("meta"):
            model = DiffusionGemma(load_model_config(folder.checkpoint))
    earlier = RunFolder(job.run)
    if earlier.progress().step > 0:
        read_weights(earlier.newest_weights(), model)
    elif job.start_from is not None:
        if (job.start_from / "tokenizer.json").read_bytes() != tokenizer.read_bytes():
            raise InputError(f"{job.data} was packed with another tokenizer than that of --from: leave --data out")
        read_weights(job.start_from, model)


def _wait(context: ProcessContext, run: Path) -> None:
    is_asked = False

    def pass_on(*_: object) -> None:
        nonlocal is_asked
        is_asked = True
        for process in context.processes:
            if process.is_alive() and process.pid is not None:
                os.kill(process.pid, signal.SIGTERM)

    before = {number: signal.signal(number, pass_on) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        while not context.join(timeout=1.0):
            pass
    except ProcessRaisedException as error:
        report = run / "error.txt"
        report.write_text(str(error))
        last = str(error).strip().splitlines()[-1]
        raise EngineError(f"a training process failed with {last}; the whole report is in {report}") from error
    except ProcessExitedException as error:
        # a process that was asked before it could listen has nothing to save
        if not is_asked:
            raise EngineError(
                f"a training process was ended from outside ({error}), perhaps for want of memory: "
                "run the command again to go on from the last save, with fewer --processes"
            ) from error
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
