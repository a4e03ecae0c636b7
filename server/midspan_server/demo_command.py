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
from lsprotocol import types
from rich.console import Console
from rich.text import Text

from midspan_engine.protocol import Fill, Filled
from midspan_server.answer import steps_of
from midspan_server.configured import launch_of, user_settings
from midspan_server.context import context_at, fill_of
from midspan_server.engine_client import EngineClient
from midspan_server.excerpt import excerpt
from midspan_server.session import Answer, Session
from midspan_server.settings import Loaded
from midspan_server.text import snapshot

SAMPLE = Path(__file__).parent / "demo" / "inventory.py"


class Scene(msgspec.Struct, frozen=True):
    """One gap: the part `hidden`, right after the only place where `before` stands, is taken out of the sample."""

    title: str
    before: str
    hidden: str


SCENES = (
    Scene("the rest of a line", "item.quantity += quantity\n        self.log.append((", '"receive", name, quantity))'),
    Scene("call arguments", "        self.items[name] = Item(", "name, price, quantity"),
    Scene("a condition", "    def sell(self, name: str, quantity: int) -> Item:\n        if ", "quantity <= 0"),
)


class Opened(msgspec.Struct, frozen=True):
    """The sample with the gap of one scene."""

    text: str
    offset: int

    @property
    def position(self) -> types.Position:
        """The gap as LSP has it; the sample is ASCII, so characters are code units of every encoding."""
        head = self.text[: self.offset]
        return types.Position(head.count("\n"), self.offset - head.rfind("\n") - 1)


@click.command("demo")
def command() -> None:
    """Fill gaps of a sample file through the language server and print latency and steps."""
    asyncio.run(_demo(Console(highlight=False)))


def opened(sample: str, scene: Scene) -> Opened:
    """Returns the sample without the hidden part of a scene, and where it was."""
    assert sample.count(scene.before + scene.hidden) == 1, f"the gap of {scene.title!r} is found once in the sample"
    offset = sample.index(scene.before + scene.hidden) + len(scene.before)
    return Opened(sample[:offset] + sample[offset + len(scene.hidden) :], offset)


def shown(text: str, answer: Answer) -> Text:
    """Returns the lines around an answer, as an editor would show them."""
    lines = text.splitlines(keepends=True)
    start, end = (sum(map(len, lines[: at.line])) + at.character for at in (answer.start, answer.end))
    return excerpt(text[:start] + text[end:], start, answer.text or "", n_around=1)


async def _demo(console: Console) -> None:
    loaded = user_settings()
    launch = launch_of(None, loaded)
    path = Path(tempfile.mkdtemp(prefix="midspan-demo-")).resolve() / SAMPLE.name
    sample = SAMPLE.read_text(encoding="utf-8")
    first = opened(sample, SCENES[0])
    path.write_text(first.text, encoding="utf-8")
    engine = EngineClient(launch)
    try:
        was_running = await engine.status() is not None
        console.print("Starting `midspan lsp`, as an editor does, and opening a Python file in it ...\n")
        began = time.perf_counter()
        async with Session.start(path.parent, path) as session:
            session.open(first.text, "python")
            # Its deadline has passed before the model is loaded, so it is asked again below.
            await session.complete(first.position)
            _print_start(console, time.perf_counter() - began, was_running)
            for scene in SCENES:
                gap = opened(sample, scene)
                session.change(gap.text)
                answer = await session.complete(gap.position)
                filled = await engine.fill(_same_fill(gap, path, loaded))
                _print_scene(console, scene, gap, answer, filled)
    finally:
        await engine.close()
    _print_end(console, path, first.position)


def _same_fill(gap: Opened, path: Path, loaded: Loaded) -> Fill:
    """Returns the request that the language server has just sent; LSP has no place for the steps of its answer."""
    context = context_at(snapshot(gap.text), gap.offset, "automatic")
    return fill_of(context, path.as_uri(), "python", loaded.settings)


def _print_start(console: Console, seconds: float, was_running: bool) -> None:
    engine = "the engine was running already" if was_running else "with the start of the engine and loading its model"
    console.print(f"The first answer came after {seconds:.1f} s, {engine}.\n")


def _print_scene(console: Console, scene: Scene, gap: Opened, answer: Answer, filled: Filled) -> None:
    console.print(Text(f"{scene.title}, line {gap.position.line + 1}", style="bold"))
    console.print(shown(gap.text, answer))
    if answer.text is None:
        console.print(Text(f"      no suggestion: {answer.reason or filled.silence}", style="yellow"))
    steps = f"{steps_of(filled.stats)} on a canvas of {filled.stats.n_canvas} slots"
    console.print(Text(f"      {answer.ms:.0f} ms through the language server, {steps}", style="dim"))
    console.print(Text(f"      taken out of the file: {scene.hidden}\n", style="dim"))


def _print_end(console: Console, path: Path, at: types.Position) -> None:
    program = "midspan" if shutil.which("midspan") else shlex.quote(str(Path(sys.executable).with_name("midspan")))
    call = f"{program} fill {shlex.quote(str(path))} --at {at.line + 1}:{at.character + 1} --watch"
    for what, how in (
        ("Watch the first gap settle:", call),
        ("Neovim 0.12, with editors/nvim on the runtimepath:", ':lua vim.lsp.enable("midspan")'),
        ("Any other editor starts this for Python files:", f"{program} lsp"),
    ):
        console.print(Text(what), Text(f"  {how}", style="bold"), sep="\n", soft_wrap=True)
