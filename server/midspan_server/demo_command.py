"""`midspan demo`: the main job on a real file, through the real language server, with what it cost."""

from __future__ import annotations

import asyncio
import shlex
import shutil
import sys
import tempfile
import time
from pathlib import Path

import click
import msgspec
from rich.console import Console
from rich.text import Text

from midspan_engine.errors import EngineError
from midspan_server.answer import passes_of
from midspan_server.configured import launch_of, user_settings
from midspan_server.excerpt import excerpt
from midspan_server.session import Answer, Session
from midspan_server.settings import user_file
from midspan_server.status_command import ask_status
from midspan_server.text import Position, Snapshot, snapshot

SAMPLE = Path(__file__).parent / "demo" / "inventory.py"


class Scene(msgspec.Struct, frozen=True):
    """One gap: the part `hidden`, right after the only place where `before` stands, is taken out of the sample."""

    title: str
    before: str
    hidden: str


_SELL = """    def sell(self, name: str, quantity: int) -> Item:
        if quantity <= 0:
            raise ValueError("quantity must """

SCENES = (
    Scene("a condition", "    def remove_item(self, name: str) -> Item:\n        if name not ", "in self.items:"),
    Scene("the rest of a line", _SELL, 'be positive")'),
    Scene("an expression", _SELL + 'be positive")\n        item = self.', "items[name]"),
)


@click.command("demo")
def command() -> None:
    """Fill gaps of a sample file through the language server and print latency and steps.

    The exit status is 1 when none of them was filled.
    """
    with tempfile.TemporaryDirectory(prefix="midspan-demo-") as folder:
        asyncio.run(_demo(Console(highlight=False), Path(folder).resolve() / SAMPLE.name))


def opened(sample: str, scene: Scene) -> tuple[Snapshot, Position]:
    """Returns the sample without the hidden part of a scene, and where it was."""
    assert sample.count(scene.before + scene.hidden) == 1, f"the gap of {scene.title!r} is found once in the sample"
    offset = sample.index(scene.before + scene.hidden) + len(scene.before)
    gap = snapshot(sample[:offset] + sample[offset + len(scene.hidden) :])
    return gap, gap.position_at(offset)


def shown(gap: Snapshot, answer: Answer) -> Text:
    """Returns the lines around an answer, as an editor would show them."""
    start, end = gap.offset_at(answer.start), gap.offset_at(answer.end)
    return excerpt(gap.text[:start] + gap.text[end:], start, answer.text or "", n_around=1)


async def _demo(console: Console, path: Path) -> None:
    """Plays all scenes with the sample at `path`. Raises EngineError when none was filled."""
    was_running = await ask_status(launch_of(None, user_settings())) is not None
    sample = SAMPLE.read_text(encoding="utf-8")
    first, _ = opened(sample, SCENES[0])
    path.write_text(first.text, encoding="utf-8")
    console.print("Starting `midspan lsp`, as an editor does, and opening a Python file in it ...\n")
    began = time.perf_counter()
    async with Session.start(path.parent, path) as session:
        session.open(first.text, "python")
        # Asked for the figure alone: the scenes are answered as while somebody types, by an engine that is warm. Not at
        # a place of theirs, which would be answered from memory.
        if (await session.complete(first.position_at(len(first.text)))).stats is not None:
            _print_start(console, time.perf_counter() - began, was_running)
        answers = []
        for scene in SCENES:
            gap, cursor = opened(sample, scene)
            session.change(gap.text)
            answers.append(await session.complete(cursor))
            _print_scene(console, scene, gap, cursor, answers[-1])
    if all(answer.text is None for answer in answers):
        raise EngineError(f"no gap was filled: {answers[-1].reason}; settings are in {user_file()}")
    _print_end(console)


def _print_start(console: Console, seconds: float, was_running: bool) -> None:
    engine = "the engine was running already" if was_running else "with the start of the engine and loading its model"
    console.print(f"The first answer came after {seconds:.1f} s, {engine}.\n")


def _print_scene(console: Console, scene: Scene, gap: Snapshot, cursor: Position, answer: Answer) -> None:
    console.print(Text(f"{scene.title}, line {cursor.line + 1}", style="bold"))
    console.print(shown(gap, answer))
    if answer.text is None:
        console.print(Text(f"      no suggestion: {answer.reason}", style="yellow"))
    # The engine need not have been asked for a silence; its last answer is then that to another request.
    steps = f", {passes_of(answer.stats)}" if answer.stats and answer.text is not None else ""
    console.print(Text(f"      {answer.ms:.0f} ms through the language server{steps}", style="dim"))
    console.print(Text(f"      taken out of the file: {scene.hidden}\n", style="dim"))


def _print_end(console: Console) -> None:
    console.print("These gaps repeat what the file says elsewhere and go well; the README has the average.\n")
    program = "midspan" if shutil.which("midspan") else shlex.quote(str(Path(sys.executable).with_name("midspan")))
    for what, how in (
        ("Watch a gap of a file of yours settle:", f"{program} fill FILE --at LINE:COL --watch"),
        (
            "Neovim 0.11 or newer, with editors/nvim on the runtimepath:",
            f':lua vim.lsp.config("midspan", {{ cmd = {{ "{program}", "lsp" }} }}) vim.lsp.enable("midspan")',
        ),
        ("Any other editor starts this for Python files:", f"{program} lsp"),
    ):
        console.print(Text(what), Text(f"  {how}", style="bold"), sep="\n", soft_wrap=True)
