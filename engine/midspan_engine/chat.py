"""How a model that was made for conversation is asked to fill a gap: the file is its reply, and the gap lies in it.

The user's turn quotes what follows the gap and says what is wanted; the reply, whose beginning is given, is the file in
a fence. All markers come from the checkpoint's own template, which is a program of its maker's and runs in a sandbox.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, NoReturn

import msgspec
from jinja2 import TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from midspan_engine.errors import CheckpointError
from midspan_engine.tokens import Tokens

_PLACE = "\ue000"
"""Stands for the user's words while the template runs: what a file holds is never read as a marker."""
_THOUGHT = "<|channel>thought\n<channel|>"
"""The block that a DiffusionGemma model writes first when it is not to think, by its tokens' names."""
_QUOTED_CHARACTERS = 8192
"""Characters of the suffix that the user's turn quotes: about two screens. Chosen."""

_WISH = """Write a {language} file that ends with exactly this text:

{fence}
{suffix}
{fence}

{instruction}Reply with the file in one fenced block, and with nothing else."""


@dataclass(frozen=True, slots=True)
class Frame:
    """What stands around a document in what the model reads."""

    opening: list[int]
    """Before it: the conversation up to the reply's fence."""
    closing: list[int]
    """Behind its end."""
    fence: str
    """The text that ends the reply: what comes behind it is no part of the document."""


class _ConfigFile(msgspec.Struct):
    chat_template: str | list[dict[str, str]] | None = None
    bos_token: str | dict[str, Any] | None = None
    eos_token: str | dict[str, Any] | None = None


class Chat:
    """A checkpoint's conversation template."""

    def __init__(self, template: str, names: Mapping[str, str], tokens: Tokens) -> None:
        """Takes the template's text and what it calls its tokens. Raises CheckpointError for a broken template."""
        self._tokens = tokens
        self._before, *self._after = _render(template, names).split(_PLACE)
        if not self._after:
            raise CheckpointError("the chat template drops what the user says: get the checkpoint's own again")
        has_thought = all(marker in tokens.specials for marker in ("<|channel>", "<channel|>"))
        if has_thought and not self._after[-1].endswith(_THOUGHT):
            self._after[-1] += _THOUGHT

    @classmethod
    def load(cls, folder: Path, tokens: Tokens) -> Chat | None:
        """Reads chat_template.jinja or tokenizer_config.json; None when there is no template.

        Raises CheckpointError for one that cannot be used.
        """
        about = _ConfigFile()
        path = folder / "tokenizer_config.json"
        try:
            if path.exists():
                about = msgspec.json.decode(path.read_bytes(), type=_ConfigFile)
            path = folder / "chat_template.jinja"
            template = path.read_text(encoding="utf-8") if path.exists() else _default(about.chat_template)
        except (OSError, ValueError) as error:
            raise CheckpointError(f"{path} is not usable ({error}): download it again") from error
        if template is None:
            return None
        names = {name: _content(getattr(about, name)) for name in ("bos_token", "eos_token")}
        return cls(template, names, tokens)

    def frame(self, language: str, prefix: str, suffix: str, instruction: str = "") -> Frame:
        """Returns what stands around a document whose gap lies between prefix and suffix.

        The opening stays the same while somebody types at one place, so that it is encoded once.
        """
        quoted = suffix[:_QUOTED_CHARACTERS]
        longest = max((len(run) for run in re.findall("`+", prefix + quoted + instruction)), default=0)
        fence = "`" * max(3, longest + 1)
        wish = _WISH.format(
            language=language,
            fence=fence,
            suffix=quoted,
            instruction=f"{instruction.strip()}\n\n" if instruction.strip() else "",
        )
        opening = [*self._tokens.encode_markers(self._before)]
        for after in self._after:
            opening += [*self._tokens.encode(wish), *self._tokens.encode_markers(after)]
        opening += self._tokens.encode(f"{fence}{language}\n")
        return Frame(opening, self._tokens.encode(f"\n{fence}"), fence)


def cut_drift(text: str, fence: str) -> str:
    """Returns an answer up to the line that ends the reply's block, without what a model says behind it."""
    lines = text.split("\n")
    ends = (index for index, line in enumerate(lines) if line.lstrip().startswith(fence))
    return "\n".join(lines[: next(ends, len(lines))])


def _render(template: str, names: Mapping[str, str]) -> str:
    """Returns a conversation of one user's turn up to where the model's reply begins."""
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.globals |= {"raise_exception": _refuse, "strftime_now": _now}  # as transformers supplies
    turns = [{"role": "user", "content": _PLACE}]
    try:
        return environment.from_string(template).render(
            messages=turns, add_generation_prompt=True, enable_thinking=False, **names
        )
    except Exception as error:  # a program of somebody else's fails in whatever way it likes
        what = str(error) or type(error).__name__
        raise CheckpointError(f"the chat template cannot be used ({what}): get the checkpoint's own again") from error


def _refuse(message: str) -> NoReturn:
    raise TemplateError(message)


def _now(form: str) -> str:
    return datetime.now().strftime(form)


def _default(template: str | list[dict[str, str]] | None) -> str | None:
    if isinstance(template, list):
        return next((one.get("template") for one in template if one.get("name") == "default"), None)
    return template


def _content(token: str | dict[str, Any] | None) -> str:
    return str(token.get("content", "")) if isinstance(token, dict) else token or ""
