"""An editor whose user types at a steady rate, and who looks closely at every suggestion."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
import signal
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from lsp_client import LspClient, LspError, inline_params

HEAD = "".join(f"def helper_{n}(values):\n    return [value * {n} for value in values]\n\n\n" for n in range(12))
TAIL = "\n\nclass Shop:\n    def __init__(self, name):\n        self.name = name\n        self.items = {}\n"
TYPED = """def total(prices, quantities):
    result = 0
    for price, quantity in zip(prices, quantities):
        if quantity > 0:
            result += price * quantity
    return round(result, 2)


def report(shop, prices):
    print(f"{shop.name}: {total(prices, shop.items.values())}")
"""

N_REMEMBERED = 1000
"""Versions that answers are still checked against: two minutes of typing."""


class Seen(msgspec.Struct, frozen=True):
    """The document at one version: its lines and the cursor."""

    lines: list[str]
    line: int
    character: int


@dataclass
class Tally:
    """What one editor met with."""

    n_keys: int = 0
    n_asked: int = 0
    n_answered: int = 0
    n_suggested: int = 0
    n_late: int = 0
    """Suggestions for a text that was typed on while they were in the pipe; every editor but the oldest drops them."""
    n_withdrawn: int = 0
    wrong: list[str] = field(default_factory=list)
    """Suggestions that fit no version of the text since they were asked for."""
    ms: list[float] = field(default_factory=list)
    """From key to suggestion."""


class Editor:
    """One document in one language server process of its own."""

    def __init__(self, client: LspClient, name: str, *, cancels: bool, rng: random.Random) -> None:
        self.tally = Tally()
        self._client = client
        self._uri = f"file:///soak/{name}.py"
        self._cancels = cancels
        self._rng = rng
        self._typed = ""
        self._history = {1: self._seen()}
        self._version = 1
        self._asked: set[asyncio.Task[None]] = set()
        self._last: int | None = None

    @classmethod
    async def start(
        cls, name: str, folder: Path, *, cancels: bool, rng: random.Random, environment: Mapping[str, str]
    ) -> Editor:
        """Starts a server and opens a document. The folder gets the server's log and the lateness of its loop."""
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / f"{name}.log").open("wb") as log:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", str(Path(__file__).with_name("probed_server.py"))),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                env={**environment, "SOAK_LAG_FILE": str(folder / f"{name}.lags.json")},
            )
        client = LspClient(process)
        await client.initialize(options={"min_confidence": 0.0})
        editor = cls(client, name, cancels=cancels, rng=rng)
        client.open(HEAD + TAIL, editor._uri)
        return editor

    @property
    def pid(self) -> int:
        return self._client.process.pid

    def begin(self) -> None:
        """Counts from now on."""
        self.tally = Tally()
        self._client.process.send_signal(signal.SIGUSR1)

    async def type(self, seconds: float, keys_per_s: float) -> None:
        """Types for a while; a suggestion is asked for after every key."""
        end = time.monotonic() + seconds
        for n in itertools.count(1):
            began = time.monotonic()
            if began > end:
                return
            self._key()
            self._ask()
            pause = self._rng.uniform(0.5, 1.5) / keys_per_s
            await asyncio.sleep(max(0.0, pause - (time.monotonic() - began)))
            if n % 64 == 0:
                self._forget_old()

    async def until_served(self, patience_s: float) -> bool:
        """Types slowly until the engine has had its say, be it a silence; False when it has not in time."""
        end = time.monotonic() + patience_s
        while time.monotonic() < end and self._client.process.returncode is None:
            n_before = self.tally.n_answered
            self._key()
            self._ask()
            await asyncio.wait(self._asked, timeout=patience_s)
            _, told = self._client.start("midspan/status")
            await asyncio.wait([told], timeout=patience_s)
            has_told = told.done() and not told.cancelled()
            if self.tally.n_answered > n_before and has_told and told.result()["state"] != "failed":
                return True
            await asyncio.sleep(0.1)
        return False

    async def settle(self, patience_s: float) -> int:
        """Waits for the answers that are still to come; returns how many requests never got one."""
        if self._asked:
            await asyncio.wait(self._asked, timeout=patience_s)
        return self.tally.n_asked - self.tally.n_answered - self.tally.n_withdrawn

    async def quit(self, patience_s: float) -> int:
        """Ends the server, in order if it lets us; returns its exit status."""
        process = self._client.process
        leaving = asyncio.create_task(self._client.leave())
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), patience_s)
        leaving.cancel()
        if process.returncode is None:
            process.kill()
        await self._client.close()
        return await process.wait()

    def _key(self) -> None:
        start = self._seen()
        self._version += 1
        self.tally.n_keys += 1
        at = {"line": start.line, "character": start.character}
        if len(self._typed) == len(TYPED):
            first = {"line": HEAD.count("\n"), "character": 0}
            self._typed = ""
            change = {"range": {"start": first, "end": at}, "text": ""}
        else:
            key = TYPED[len(self._typed)]
            self._typed += key
            change = {"range": {"start": at, "end": at}, "text": key}
        self._client.change(self._version, change, uri=self._uri)
        self._history[self._version] = self._seen()

    def _ask(self) -> None:
        seen = self._history[self._version]
        if self._cancels and self._last is not None:
            self._client.notify("$/cancelRequest", {"id": self._last})
        params = inline_params(seen.line, seen.character, self._uri)
        self._last, answer = self._client.start("textDocument/inlineCompletion", params)
        self.tally.n_asked += 1
        task = asyncio.create_task(self._look(answer, self._version, time.perf_counter()))
        self._asked.add(task)
        task.add_done_callback(self._asked.discard)

    async def _look(self, answer: asyncio.Future[Any], version: int, began: float) -> None:
        try:
            items = (await answer)["items"]
        except LspError as error:
            if error.code != -32800:
                self.tally.wrong.append(f"an error: {error}")
            self.tally.n_withdrawn += 1
            return
        self.tally.n_answered += 1
        if not items:
            return
        self.tally.n_suggested += 1
        self.tally.ms.append((time.perf_counter() - began) * 1000)
        for item in items:
            fitting = [v for v in range(version, self._version + 1) if fits(item, self._history[v])]
            if not fitting:
                self.tally.wrong.append(f"version {version} to {self._version}: {item}")
            elif fitting[-1] < self._version:
                self.tally.n_late += 1

    def _seen(self) -> Seen:
        before = (HEAD + self._typed).split("\n")
        lines = (HEAD + self._typed + TAIL).split("\n")
        return Seen(lines, len(before) - 1, len(before[-1]))

    def _forget_old(self) -> None:
        for version in list(self._history)[:-N_REMEMBERED]:
            del self._history[version]


def fits(item: dict[str, Any], seen: Seen) -> bool:
    """Says whether a suggestion can stand at the cursor of a text and repeats nothing of what follows it."""
    start, end = item["range"]["start"], item["range"]["end"]
    text: str = item["insertText"]
    line = seen.lines[seen.line]
    if not start["line"] == end["line"] == seen.line:
        return False
    if not start["character"] <= seen.character <= end["character"] <= len(line):
        return False
    before, covered = line[start["character"] : seen.character], line[seen.character : end["character"]]
    rest = line[end["character"] :].strip()
    return text.startswith(before) and text.endswith(covered) and not (rest and text.rstrip().endswith(rest))
