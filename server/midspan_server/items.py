"""Suggestions in the words of the protocol. A range is always sent, and nothing to offer is an empty list, never null:
some clients fail without the first and keep old ghost text after the second.
"""

from __future__ import annotations

from lsprotocol import types

from midspan_server.context import is_word
from midspan_server.feedback import ACCEPTED
from midspan_server.silence import Silence
from midspan_server.suggestion import Suggestion, Suggestions
from midspan_server.text import Snapshot, Span

DETAIL = "midspan"


def inline_list(answer: Suggestions | Silence) -> types.InlineCompletionList:
    """Returns the answer to `textDocument/inlineCompletion`."""
    if isinstance(answer, Silence):
        return types.InlineCompletionList(items=[])
    return types.InlineCompletionList(
        items=[
            types.InlineCompletionItem(
                insert_text=item.text,
                range=_range(answer.snapshot, item.start, item.end),
                command=types.Command("Accepted", ACCEPTED, arguments=[item.id]),
            )
            for item in answer.items
        ]
    )


def completion_list(answer: Suggestions | Silence) -> types.CompletionList:
    """Returns the answer to `textDocument/completion`, for clients without ghost text.

    Incomplete, because the next key deserves a new answer; never preselected, because Enter must stay a line break.
    """
    if isinstance(answer, Silence):
        return types.CompletionList(is_incomplete=True, items=[])
    items = [_menu_item(answer.snapshot, item, place) for place, item in enumerate(answer.items)]
    return types.CompletionList(is_incomplete=True, items=items)


def _menu_item(snapshot: Snapshot, item: Suggestion, place: int) -> types.CompletionItem:
    # Clients filter by the word before the cursor, so it has to be part of the item.
    start = item.start
    while start and is_word(snapshot.text[start - 1]):
        start -= 1
    text = snapshot.text[start : item.start] + item.text
    first, *more = text.strip().split("\n")
    return types.CompletionItem(
        label=first + (" …" if more else ""),
        kind=types.CompletionItemKind.Text,
        detail=DETAIL,
        documentation=text if more else None,
        # Best first, and before what is as good a match but begins with a letter.
        sort_text=str(place),
        filter_text=text,
        preselect=False,
        command=types.Command("Accepted", ACCEPTED, arguments=[item.id]),
        insert_text_format=types.InsertTextFormat.PlainText,
        insert_text_mode=types.InsertTextMode.AsIs,
        text_edit=types.TextEdit(range=_range(snapshot, start, item.end), new_text=text),
    )


def _range(snapshot: Snapshot, start: int, end: int) -> types.Range:
    return range_of(Span(snapshot.position_at(start), snapshot.position_at(end)))


def range_of(span: Span) -> types.Range:
    """Returns a range in the words of the protocol."""
    start, end = (types.Position(each.line, each.character) for each in (span.start, span.end))
    return types.Range(start, end)
