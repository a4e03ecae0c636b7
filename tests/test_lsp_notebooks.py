"""Notebooks through the language server: cells come, change and go as the protocol says."""

from __future__ import annotations

from typing import Any

from engine_host import listening, offer, scenario
from lsp_client import LspClient, at, served
from midspan_server.launch import Launch

NOTEBOOK = "file:///home/me/a.ipynb"


def cell(n: int) -> str:
    return f"vscode-notebook-cell:/home/me/a.ipynb#{n}"


def item(n: int, text: str, language: str = "python") -> dict[str, Any]:
    return {"uri": cell(n), "languageId": language, "version": 1, "text": text}


def open_notebook(client: LspClient, *items: dict[str, Any]) -> None:
    cells = [{"kind": 2, "document": each["uri"]} for each in items]
    notebook = {"uri": NOTEBOOK, "notebookType": "jupyter-notebook", "version": 1, "cells": cells}
    client.notify("notebookDocument/didOpen", {"notebookDocument": notebook, "cellTextDocuments": list(items)})


def change_cells(client: LspClient, **cells: object) -> None:
    change = {"notebookDocument": {"uri": NOTEBOOK, "version": 2}, "change": {"cells": cells}}
    client.notify("notebookDocument/didChange", change)


@scenario
async def test_the_cells_around_are_read_with_the_cell(launch: Launch) -> None:
    async with listening(launch.socket) as host, served() as client:
        capabilities = {"notebookDocument": {"synchronization": {}}, "textDocument": {"inlineCompletion": {}}}
        answer = await client.initialize(capabilities)
        assert answer["capabilities"]["notebookDocumentSync"]["notebookSelector"] == [{"notebook": "*"}]
        host.answer = offer("2")
        open_notebook(client, item(1, "x = 1\n"), item(2, "# Words", "markdown"), item(3, "y = "), item(4, "print(y)"))
        (offered,) = await client.inline(0, 4, uri=cell(3))
        assert offered["range"] == at(0, 4, 4)
        assert host.fills[0].parts == ("x = 1\n\ny = ", "\n\nprint(y)")
        assert host.fills[0].document == cell(3)


@scenario
async def test_cells_change_come_and_go(launch: Launch) -> None:
    async with listening(launch.socket) as host, served() as client:
        await client.initialize()
        host.answer = offer("2")
        open_notebook(client, item(1, "x = 1"), item(2, "y = "))
        change_cells(
            client,
            structure={
                "array": {"start": 0, "deleteCount": 1, "cells": [{"kind": 2, "document": cell(3)}]},
                "didOpen": [item(3, "a = 3")],
                "didClose": [{"uri": cell(1)}],
            },
            textContent=[
                {
                    "document": {"uri": cell(2), "version": 2},
                    "changes": [{"range": at(0, 0, 1), "text": "total"}],
                }
            ],
        )
        await client.inline(0, 8, uri=cell(2))
        assert host.fills[0].parts == ("a = 3\n\ntotal = ", "")
        assert await client.inline(0, 0, uri=cell(1)) == []
        assert "not open" in str(await client.reason())
        notebook = {"uri": NOTEBOOK}
        closed = [{"uri": cell(2)}, {"uri": cell(3)}]
        client.notify("notebookDocument/didClose", {"notebookDocument": notebook, "cellTextDocuments": closed})
        assert await client.inline(0, 8, uri=cell(2)) == []
        assert "not open" in str(await client.reason())
