"""What can be done to a selection without an instruction, and which stretch of the text each of it concerns."""

from __future__ import annotations

import re
from typing import Literal

import msgspec

from midspan_engine.errors import InputError
from midspan_server.holes import STUB
from midspan_server.python_code import annotates, opens_block, width_of
from midspan_server.stretch import Stretch

PresetId = Literal["refill", "touch_up", "rewrite", "body", "tail"]


class Preset(msgspec.Struct, frozen=True):
    """One thing that every checkpoint can do."""

    id: PresetId
    title: str
    strength: float
    """Which share of the stretch is denoised anew."""


MEANINGS: dict[PresetId, str] = {
    "refill": "write it anew",
    "touch_up": "change few words",
    "rewrite": "change most",
    "body": "write the body of the block whose first line is selected",
    "tail": "write the end of the last line anew",
}
"""What each preset does, in the words of the command line."""

PRESETS = (
    Preset("refill", "Fill the selection anew", 1.0),
    Preset("touch_up", "Touch up the selection", 0.15),
    Preset("rewrite", "Rewrite the selection", 0.9),
    Preset("body", "Complete the body of this block", 1.0),
    Preset("tail", "Fill the end of the line anew", 1.0),
)

_TAIL_FOLLOWS = re.compile(
    r"\s*+(?:(?:return|yield|raise|assert|del|await|import|in|not)\b|(?:if|elif|while|for|with|from|class|def)\b"
    r"|(?:[^=!<>()\[\]{}\n]|\[[^\[\]\n]*+\])*+(?<![=!<>])=(?!=)|[^()\[\]{}\n]*+[(\[{])[ \t]*"
)
"""What the end of a line follows: a keyword, an assignment, an opening bracket. Nothing is tried twice, since lines
may be long.
"""


class Presets(msgspec.Struct, frozen=True):
    """Answers `midspan/editPresets`."""

    presets: tuple[Preset, ...]
    instructions: bool
    """Whether the engine that runs follows written instructions."""


def stretch_of(preset: PresetId | None, text: str, start: int, end: int) -> Stretch:
    """Returns the stretch of a text that a preset concerns; None is an instruction, which concerns the selection.

    Raises InputError where there is nothing for it to do.
    """
    if preset == "body":
        return body_of(text, start)
    if preset == "tail":
        return tail_of(text, start, end)
    if not text[start:end].strip():
        raise InputError("nothing is selected; select the code to edit")
    return Stretch(start, end, "\n" not in text[start:end].strip("\n"))


def tail_of(text: str, start: int, end: int) -> Stretch:
    """Returns the end of the last line of a selection, or what follows the cursor in its line."""
    if start == end:
        first = start
    else:
        end = start + len(text[start:end].rstrip())
        line = max(text.rfind("\n", 0, end) + 1, start)
        found = _TAIL_FOLLOWS.match(text, line, end)
        first = found.end() if found is not None else line + len(text[line:end]) - len(text[line:end].lstrip())
        if first >= end:
            first = line
    stop = text.find("\n", end)
    stop = len(text) if stop < 0 else stop
    if not text[text.rfind("\n", 0, first) + 1 : stop].strip():
        raise InputError("the line is blank; choose one with code, or fill it with an ordinary suggestion")
    return Stretch(first, stop)


def body_of(text: str, at: int) -> Stretch:
    """Returns where the body of the block goes on whose first line holds an offset, or encloses it: its stub, or the
    place behind its last line.
    """
    lines = text.split("\n")
    header = _header(lines, text.count("\n", 0, at))
    width = width_of(lines[header])
    end, last = header + 1, header
    while end < len(lines) and (not lines[end].strip() or width_of(lines[end]) > width):
        last = end if lines[end].strip() else last
        end += 1
    offsets = [0]
    for line in lines:
        offsets.append(offsets[-1] + len(line) + 1)
    body = [k for k in range(header + 1, last + 1) if lines[k].strip()]
    stop = offsets[last] + len(lines[last].rstrip())
    if not body:
        inline = STUB.search(lines[header], max(lines[header].rfind(":"), 0))
        if inline is not None:
            return Stretch(offsets[header] + inline.start(), offsets[header] + inline.end())
        return Stretch(stop, stop, False, "\n" + _indented(lines, header))
    indent = lines[body[0]][: len(lines[body[0]]) - len(lines[body[0]].lstrip())]
    if STUB.fullmatch(lines[body[-1]].strip()) and width_of(lines[body[-1]]) == width_of(lines[body[0]]):
        return Stretch(stop - len(lines[last].strip()), stop, False)
    return Stretch(stop, stop, False, "\n" + indent)


def _header(lines: list[str], at: int) -> int:
    """Returns the line that opens the block of a line: itself, or the next one above that stands further left."""
    if opens_block(lines[at]) or _opens_stub(lines[at]):
        return at
    width = width_of(lines[at]) if lines[at].strip() else 10**6
    for k in range(at - 1, -1, -1):
        if lines[k].strip() and width_of(lines[k]) < width:
            if opens_block(lines[k]):
                return k
            width = width_of(lines[k])
    raise InputError("no block is open here; put the cursor on the line that opens it, such as a def")


def _opens_stub(line: str) -> bool:
    """Says whether a line holds a block whose body is a stub behind the colon."""
    head, colon, rest = line.rpartition(":")
    is_header = bool(colon) and opens_block(head + ":") and not annotates(head)
    return is_header and STUB.match(rest.lstrip()) is not None


def _indented(lines: list[str], header: int) -> str:
    """Returns the blanks of the first line of a body that is empty, as the file indents."""
    own = lines[header][: len(lines[header]) - len(lines[header].lstrip())]
    others = (line[: len(line) - len(line.lstrip())] for line in lines if line[:1] in (" ", "\t") and line.strip())
    return own + ("\t" if next(others, " ").startswith("\t") else "    ")
