"""What the front end lets the engine look at beside a document."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine_host import ScriptedHost, listening, offer, scenario
from lsp_client import LspClient, served
from midspan_server.launch import Launch

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
        await host.until(lambda: texts(host) == {"helper.py": HELPER})
        assert (host.fills[0].workspace, host.fills[0].file) == (str(project), str(project / "main.py"))
        while (status := await client.ask("midspan/status"))["n_lent"] is None:
            pass
        assert status["n_lent"] == 1, "its own text is not"


@scenario
async def test_another_open_file_is_lent_as_it_stands_in_the_editor(launch: Launch, project: Path) -> None:
    async with listening(launch.socket) as host, served() as client:
        host.answer = offer("1")
        await client.initialize(folders=[project])
        helper = (project / "helper.py").as_uri()
        client.open("def unsaved():\n", uri=helper)
        client.open(MAIN, uri=(project / "main.py").as_uri())
        await ask(client, project / "main.py")
        await host.until(lambda: texts(host) == {"helper.py": "def unsaved():\n"})
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
            await host.until(lambda: len(host.lent) == 1)
        launch.socket.unlink(missing_ok=True)
        async with listening(launch.socket) as host:
            host.answer = offer("2")
            client.change(2, {"text": MAIN + "\n"}, uri=(project / "main.py").as_uri())
            await ask(client, project / "main.py")
            await host.until(lambda: set(texts(host)) == {"helper.py"})


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
