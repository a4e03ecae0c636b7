"""What the front end lets the engine look at beside a document."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from engine_host import PATIENCE_S, ScriptedHost, listening, offer, scenario
from lsp_client import LspClient, served
from midspan_engine.protocol import Fill, Lend
from midspan_server.launch import Launch
from midspan_server.lending import Lender
from midspan_server.settings import Loaded, Settings
from midspan_server.text import TextDocument
from midspan_server.workspace_files import MAX_FILE_BYTES, Look, look_through

HELPER, MAIN = "def helper():\n    pass\n", "import helper\nx = \n"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "helper.py").write_text(HELPER)
    (folder / "main.py").write_text(MAIN)
    return folder


def texts(host: ScriptedHost) -> dict[str, str]:
    """What is lent by now, by the names of the files."""
    return {Path(lent.file).name: lent.text for lent in host.lent}


async def ask(client: LspClient, file: Path) -> None:
    await client.inline(1, 4, uri=file.as_uri())


@scenario
async def test_the_files_of_the_workspace_are_lent_as_they_lie_on_the_disk(launch: Launch, project: Path) -> None:
    async with listening(launch.socket) as host, served() as client:
        host.answer = offer("1")
        await client.initialize(folders=[project])
        client.open(MAIN, uri=(project / "main.py").as_uri())
        await ask(client, project / "main.py")
        await host.until(lambda: texts(host) == {"helper.py": HELPER, "main.py": MAIN})
        assert (host.fills[0].workspace, host.fills[0].file) == (f"python {project}", str(project / "main.py"))
        while (status := await client.ask("midspan/status"))["n_lent"] is None:
            pass
        assert status["n_lent"] == 2


@scenario
async def test_another_open_file_is_lent_as_it_stands_in_the_editor(launch: Launch, project: Path) -> None:
    async with listening(launch.socket) as host, served() as client:
        host.answer = offer("1")
        await client.initialize(folders=[project])
        helper = (project / "helper.py").as_uri()
        client.open("def unsaved():\n", uri=helper)
        client.open(MAIN, uri=(project / "main.py").as_uri())
        await ask(client, project / "main.py")
        await host.until(lambda: texts(host) == {"helper.py": "def unsaved():\n", "main.py": MAIN})
        client.change(2, {"text": "def changed():\n"}, uri=helper)
        await ask(client, project / "main.py")
        await host.until(lambda: texts(host)["helper.py"] == "def changed():\n")
        assert [Path(lent.file).name for lent in host.lent].count("helper.py") == 2, "the disk says otherwise"


@scenario
async def test_files_without_a_workspace_are_by_themselves(launch: Launch, project: Path) -> None:
    async with listening(launch.socket) as host, served() as client:
        host.answer = offer("1")
        await client.initialize()
        client.open(MAIN, uri=(project / "main.py").as_uri())
        await ask(client, project / "main.py")
        assert (host.fills[0].workspace, host.lent) == ("", [])


@scenario
async def test_an_engine_that_is_new_is_lent_everything_again(launch: Launch, project: Path) -> None:
    async with served() as client:
        async with listening(launch.socket) as host:
            host.answer = offer("1")
            await client.initialize(folders=[project])
            client.open(MAIN, uri=(project / "main.py").as_uri())
            await ask(client, project / "main.py")
            await host.until(lambda: len(host.lent) == 2)
        launch.socket.unlink(missing_ok=True)
        async with listening(launch.socket) as host:
            host.answer = offer("2")
            client.change(2, {"text": MAIN + "\n"}, uri=(project / "main.py").as_uri())
            await ask(client, project / "main.py")
            await host.until(lambda: set(texts(host)) == {"helper.py", "main.py"})


@scenario
async def test_secrets_and_what_settings_exclude_are_never_lent(launch: Launch, project: Path) -> None:
    (project / "id_rsa.py").write_text("SECRET = 1\n")
    (project / "other.py").write_text("OTHER = 1\n")
    async with listening(launch.socket) as host, served() as client:
        host.answer = offer("1")
        await client.initialize(folders=[project])
        client.open("SECRET = 2\n", uri=(project / "id_rsa.py").as_uri())
        client.open(MAIN, uri=(project / "main.py").as_uri())
        await ask(client, project / "main.py")
        await host.until(lambda: {"helper.py", "other.py"} <= set(texts(host)))
        client.notify(
            "workspace/didChangeConfiguration",
            {"settings": {"midspan": {"context_excluded_globs": ["other.py", "id_*"]}}},
        )
        client.change(2, {"text": MAIN + "\n"}, uri=(project / "main.py").as_uri())
        await ask(client, project / "main.py")
        await host.until(lambda: texts(host)["other.py"] == "")
        assert "SECRET" not in str(host.lent)


@scenario
@pytest.mark.parametrize(
    "settings", [{"workspace_files": False}, {"enabled": False}, {"disabled_languages": ["python"]}]
)
async def test_what_settings_switch_off_is_taken_back_at_once(
    launch: Launch, project: Path, settings: dict[str, object]
) -> None:
    async with listening(launch.socket) as host, served() as client:
        host.answer = offer("1")
        await client.initialize(folders=[project])
        client.open(MAIN, uri=(project / "main.py").as_uri())
        await ask(client, project / "main.py")
        await host.until(lambda: texts(host) == {"helper.py": HELPER, "main.py": MAIN})
        client.notify("workspace/didChangeConfiguration", {"settings": {"midspan": settings}})
        await host.until(lambda: texts(host) == {"helper.py": "", "main.py": ""})
        assert (await client.ask("midspan/status"))["n_lent"] == 0


@scenario
async def test_a_closed_document_leaves_nothing_unsaved_behind(launch: Launch, project: Path) -> None:
    async with listening(launch.socket) as host, served() as client:
        host.answer = offer("1")
        await client.initialize(folders=[project])
        helper = (project / "helper.py").as_uri()
        client.open("def unsaved():\n", uri=helper)
        client.open(MAIN, uri=(project / "main.py").as_uri())
        await ask(client, project / "main.py")
        await host.until(lambda: texts(host).get("helper.py") == "def unsaved():\n")
        client.notify("textDocument/didClose", {"textDocument": {"uri": helper}})
        await host.until(lambda: texts(host)["helper.py"] == "")
        client.change(2, {"text": MAIN + "\n"}, uri=(project / "main.py").as_uri())
        await ask(client, project / "main.py")
        await host.until(lambda: texts(host)["helper.py"] == HELPER)


@scenario
async def test_a_user_can_have_no_other_file_looked_at(launch: Launch, project: Path) -> None:
    async with listening(launch.socket) as host, served() as client:
        host.answer = offer("1")
        await client.initialize(folders=[project], options={"workspace_files": False})
        client.open(MAIN, uri=(project / "main.py").as_uri())
        await ask(client, project / "main.py")
        assert (host.fills[0].workspace, host.lent) == ("", [])


@scenario
async def test_nothing_is_lent_before_the_client_has_told_its_settings(launch: Launch, project: Path) -> None:
    capabilities = {"workspace": {"configuration": True}, "textDocument": {"inlineCompletion": {}}}
    async with listening(launch.socket) as host, served() as client:
        host.answer = offer("1")
        client.later["workspace/configuration"] = []
        await client.initialize(capabilities, folders=[project])
        client.open(MAIN, uri=(project / "main.py").as_uri())
        await client.until_asked("workspace/configuration")
        await ask(client, project / "main.py")
        assert host.lent == []
        assert (await client.ask("midspan/status"))["n_lent"] == 0


class Lent:
    """A lender by itself, and what it has lent."""

    def __init__(self, *folders: Path) -> None:
        self.folders = [folder.as_uri() for folder in folders]
        self.texts: dict[tuple[str, str], str] = {}
        self.lender = Lender(lambda: self.folders, self._take)

    def _take(self, files: Sequence[Lend]) -> None:
        for lend in files:
            self.texts[lend.workspace.split("/")[-1], Path(lend.file).name] = lend.text

    def open(self, path: Path, text: str, language: str = "python") -> TextDocument:
        names = str(path), str(path.resolve())
        document = TextDocument.opened(path.as_uri(), language, text, 1, "utf-16", names)
        self.lender.opened(document)
        return document

    def beside(self, document: TextDocument) -> Fill:
        return self.lender.named(Fill(id=1, document="d", parts=("", "")), document)

    async def looked(self) -> None:
        while self.lender.n_lent is None:
            await asyncio.sleep(0.001)


@scenario
async def test_settings_that_change_while_a_folder_is_looked_through_count(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_go_on = threading.Event()

    def slow(*arguments: Any) -> Look:
        assert may_go_on.wait(PATIENCE_S)
        return look_through(*arguments)

    monkeypatch.setattr("midspan_server.lending.look_through", slow)
    lent = Lent(project)
    document = lent.open(project / "main.py", MAIN)
    lent.lender.configure(Loaded(Settings(context_excluded_globs=("helper*",))))
    may_go_on.set()
    await lent.looked()
    assert lent.texts == {}
    lent.beside(document)
    await lent.looked()
    assert lent.texts == {("project", "main.py"): MAIN}


@scenario
async def test_a_file_belongs_to_the_innermost_folder_and_a_folder_that_is_closed_is_taken_back(project: Path) -> None:
    inner = project / "inner"
    inner.mkdir()
    (inner / "deep.py").write_text("DEEP = 1\n")
    lent = Lent(project, inner)
    document = lent.open(inner / "deep.py", "DEEP = 2\n")
    assert lent.beside(document).workspace == f"python {inner}"
    await lent.looked()
    assert lent.texts == {("inner", "deep.py"): "DEEP = 2\n"}
    other = lent.open(project / "main.py", MAIN)
    lent.beside(other)
    await lent.looked()
    assert lent.texts["project", "helper.py"] == HELPER
    lent.folders = [inner.as_uri()]
    lent.lender.folders_changed()
    assert lent.beside(other).workspace == ""
    assert {which for which, text in lent.texts.items() if text} == {("inner", "deep.py")}


@scenario
async def test_open_files_that_are_ignored_too_long_binary_or_of_another_language_are_not_lent(project: Path) -> None:
    for name in ("ignored.py", "long.py", "binary.py", "script.py"):
        (project / name).write_text("X = 1\n")
    (project / ".gitignore").write_text("ignored.py\n")
    lent = Lent(project)
    lent.open(project / "ignored.py", "X = 2\n")
    lent.open(project / "long.py", "#" * (MAX_FILE_BYTES + 1))
    lent.open(project / "binary.py", "X = 3\0\n")
    lent.open(project / "script.py", "X = 4\n", language="ruby")
    document = lent.open(project / "main.py", MAIN)
    await lent.looked()
    lent.beside(document)
    await lent.looked()
    kept = {name for (_, name), text in lent.texts.items() if text}
    assert kept == {"helper.py", "main.py"}


@scenario
async def test_a_link_to_a_file_is_that_file(project: Path, tmp_path: Path) -> None:
    link = tmp_path / "link.py"
    link.symlink_to(project / "main.py")
    lent = Lent(project)
    assert lent.beside(lent.open(link, MAIN)).file == str(project / "main.py")


@scenario
async def test_a_name_that_is_no_unicode_lends_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "caf\udce9"
    folder.mkdir()
    (folder / "a.py").write_text("A = 1\n")
    lent = Lent(folder)
    assert lent.beside(lent.open(folder / "a.py", "A = 1\n")).workspace == ""


@scenario
async def test_a_search_ends_with_its_lender(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = threading.Event()
    ended = threading.Event()

    def endless(folder: str, near: str, language: str, is_private: object, known: object, is_stopped: Any) -> Look:
        asked.set()
        while not is_stopped():
            pass
        ended.set()
        return Look(set(), [], True)

    monkeypatch.setattr("midspan_server.lending.look_through", endless)
    lent = Lent(project)
    lent.open(project / "main.py", MAIN)
    assert await asyncio.to_thread(asked.wait, PATIENCE_S)
    lent.lender.stop()
    assert await asyncio.to_thread(ended.wait, PATIENCE_S)
