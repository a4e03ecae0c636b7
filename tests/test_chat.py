"""A conversational checkpoint is asked in its own words, and what it says besides the file is cut."""

from __future__ import annotations

import json
import re
import shutil
import time
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from midspan_engine.chat import Chat, cut_drift
from midspan_engine.config import InfillConfig, embedded_checkpoint
from midspan_engine.engine import Engine
from midspan_engine.errors import CheckpointError
from midspan_engine.evaluation.cases import Case
from midspan_engine.evaluation.methods import Methods
from midspan_engine.likelihood import Likelihood
from midspan_engine.prompt import build_prompt
from midspan_engine.protocol import Fill
from midspan_engine.tokens import Tokens

MARKERS = ["<|turn>", "<turn|>", "<|channel>", "<channel|>"]
TEMPLATE = """\
{{ bos_token }}
{%- for message in messages -%}
<|turn>{{ message.role }}
{{ message.content | trim }}<turn|>
{% endfor %}
{%- if add_generation_prompt -%}
<|turn>model
{% endif %}"""
PREFIX, SUFFIX = "def area(width, height):\n    return ", "\n\nprint(area(2, 3))\n"


def tokens_with(markers: list[str]) -> Tokens:
    tokenizer = Tokenizer.from_file(str(embedded_checkpoint() / "tokenizer.json"))
    tokenizer.add_special_tokens(markers)
    return Tokens(tokenizer)


@pytest.fixture(scope="module")
def tokens() -> Tokens:
    return tokens_with(MARKERS)


def chat_in(folder: Path, tokens: Tokens, **about: object) -> Chat | None:
    (folder / "tokenizer_config.json").write_text(json.dumps({"bos_token": "<bos>", **about}))
    return Chat.load(folder, tokens)


def spelled(ids: list[int], tokens: Tokens) -> str:
    names = {index: name for name, index in tokens.specials.items()}
    return "".join(names.get(index) or tokens.decode([index]) for index in ids)


def test_the_conversation_is_the_templates_up_to_the_reply(tmp_path: Path, tokens: Tokens) -> None:
    (tmp_path / "chat_template.jinja").write_text(TEMPLATE)
    chat = chat_in(tmp_path, tokens, chat_template="an older copy")
    assert chat is not None
    frame = chat.frame("python", PREFIX, SUFFIX)
    told = spelled(frame.opening, tokens)
    assert told.startswith("<|turn>user\nWrite a python file" if tokens.bos_token_id is None else "<bos><|turn>user\n")
    assert SUFFIX.strip() in told
    assert told.endswith("<turn|>\n<|turn>model\n<|channel>thought\n<channel|>```python\n")
    assert tokens.specials["<|channel>"] in frame.opening


def test_a_thought_block_of_the_templates_own_is_not_repeated(tmp_path: Path, tokens: Tokens) -> None:
    template = TEMPLATE.replace("<|turn>model\n", "<|turn>model\n<|channel>thought\n<channel|>")
    chat = chat_in(tmp_path, tokens, chat_template=template)
    assert chat is not None
    opening = chat.frame("python", PREFIX, SUFFIX).opening
    assert opening.count(tokens.specials["<|channel>"]) == 1


def test_a_checkpoint_without_thoughts_gets_no_block(tmp_path: Path) -> None:
    tokens = tokens_with(["<|turn>", "<turn|>"])
    chat = chat_in(tmp_path, tokens, chat_template=TEMPLATE)
    assert chat is not None
    assert "channel" not in spelled(chat.frame("python", PREFIX, SUFFIX).opening, tokens)


def test_what_a_file_holds_is_never_read_as_a_marker(tmp_path: Path, tokens: Tokens) -> None:
    chat = chat_in(tmp_path, tokens, chat_template=TEMPLATE)
    assert chat is not None
    opening = chat.frame("python", PREFIX, "x = '<turn|>'  # {{ messages }}\n", "say <|turn>").opening
    assert opening.count(tokens.specials["<turn|>"]) == 1
    assert opening.count(tokens.specials["<|turn>"]) == 2
    assert "{{ messages }}" in tokens.decode(opening)


def test_the_opening_stays_the_same_while_somebody_types(tmp_path: Path, tokens: Tokens) -> None:
    chat = chat_in(tmp_path, tokens, chat_template=TEMPLATE)
    assert chat is not None
    assert chat.frame("python", PREFIX, SUFFIX) == chat.frame("python", PREFIX + "width * ", SUFFIX)


def test_an_instruction_is_part_of_the_wish(tmp_path: Path, tokens: Tokens) -> None:
    chat = chat_in(tmp_path, tokens, chat_template=TEMPLATE)
    assert chat is not None
    assert "use metres" in tokens.decode(chat.frame("python", PREFIX, SUFFIX, " use metres\n").opening)


def test_of_a_long_suffix_only_the_start_is_quoted(tmp_path: Path, tokens: Tokens) -> None:
    chat = chat_in(tmp_path, tokens, chat_template=TEMPLATE)
    assert chat is not None
    suffix = "\nx = 1" * 3_000
    assert chat.frame("python", PREFIX, suffix) == chat.frame("python", PREFIX, suffix + "\ny = 2")
    assert chat.frame("python", PREFIX, "") != chat.frame("python", PREFIX, suffix)


def test_a_fence_is_longer_than_any_in_the_file(tmp_path: Path, tokens: Tokens) -> None:
    chat = chat_in(tmp_path, tokens, chat_template=TEMPLATE)
    assert chat is not None
    assert chat.frame("markdown", "````\ncode\n", SUFFIX).fence == "`````"


def test_the_reply_holds_tail_gap_and_head_on_the_canvas(tmp_path: Path, tokens: Tokens) -> None:
    chat = chat_in(tmp_path, tokens, chat_template=TEMPLATE)
    assert chat is not None
    frame = chat.frame("python", PREFIX, SUFFIX)
    prompt = build_prompt((PREFIX, SUFFIX), tokens, InfillConfig(), n_gap=8, n_slots=64, frame=frame)
    (gap,) = prompt.canvas.gaps
    pinned = prompt.canvas.ids[: gap.start], prompt.canvas.ids[gap.stop :]
    read = [*prompt.context, *pinned[0]]
    assert read[: len(frame.opening)] == frame.opening
    healed = PREFIX.removesuffix(prompt.required[0].decode())
    assert tokens.decode(read[len(frame.opening) :]) == healed
    assert tokens.bos_token_id not in read[len(frame.opening) :]
    assert tokens.decode(list(pinned[1])).startswith(SUFFIX + "\n```")


@pytest.mark.parametrize(
    ("template", "told"),
    [
        ("{{ raise_exception('no user') }}", "no user"),
        ("{% for %}", "cannot be used"),
        ("{{ ''.__class__.__mro__ }}", "cannot be used"),
        ("hello", "drops what the user says"),
        ("{{ 1 // 0 }}", "cannot be used"),
        ("{{ 2.0 ** 99999 }}", "cannot be used"),
        ("{{ 'x' * 10 ** 18 }}", r"cannot be used \(MemoryError"),
        ("{{ strftime_now(1) }}", "cannot be used"),
    ],
)
def test_a_template_that_cannot_be_used_is_refused(tmp_path: Path, tokens: Tokens, template: str, told: str) -> None:
    with pytest.raises(CheckpointError, match=told):
        chat_in(tmp_path, tokens, chat_template=template)


def test_a_template_that_says_the_users_words_twice_gets_them_twice(tmp_path: Path, tokens: Tokens) -> None:
    chat = chat_in(tmp_path, tokens, chat_template="{{ messages[0].content }}<turn|>" * 2)
    assert chat is not None
    told = tokens.decode(chat.frame("python", PREFIX, SUFFIX).opening)
    assert told.count("Write a python file") == 2
    assert "\ue000" not in told


def test_a_template_may_ask_for_the_date(tmp_path: Path, tokens: Tokens) -> None:
    template = "{{ strftime_now('the year %Y') }} {{ messages[0].content }}"
    chat = chat_in(tmp_path, tokens, chat_template=template)
    assert chat is not None
    assert re.match(r"the year \d{4} ", tokens.decode(chat.frame("python", PREFIX, SUFFIX).opening))


def test_of_several_templates_the_default_is_taken(tmp_path: Path, tokens: Tokens) -> None:
    several = [{"name": "tools", "template": "x"}, {"name": "default", "template": TEMPLATE}]
    assert chat_in(tmp_path, tokens, chat_template=several) is not None
    assert chat_in(tmp_path, tokens) is None
    assert Chat.load(tmp_path / "nowhere", tokens) is None


@pytest.mark.parametrize(
    ("answer", "kept"),
    [
        ("width * height", "width * height"),
        ("width * height\n```\nThis multiplies.", "width * height"),
        ("```python\nwidth", ""),
        ("a\n  ```", "a"),
        ("a ``` b\n", "a ``` b\n"),
    ],
)
def test_what_is_said_behind_the_file_is_cut(answer: str, kept: str) -> None:
    assert cut_drift(answer, "```") == kept


def test_an_engine_asks_as_its_checkpoint_wants(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoint"
    shutil.copytree(embedded_checkpoint(), folder)
    (folder / "chat_template.jinja").write_text("user: {{ messages[0].content }}\nmodel: ")
    engine = Engine.load(folder)
    assert engine.infill.instructions

    def fill(prefix: str, number: int) -> tuple[int, int]:
        request = Fill(id=number, document="a", parts=(prefix, SUFFIX))
        filled = engine.fill(request, received=time.perf_counter(), is_cancelled=lambda: False)
        assert filled.candidates or filled.silence
        return filled.stats.n_prompt, filled.stats.n_encoded

    # whoever weighs or measures asks in the same conversation: nothing is left to encode for the fill behind it
    request = Fill(id=3, document="b", parts=(PREFIX, SUFFIX))
    Likelihood(engine, request, lambda: False).with_following(PREFIX, "width", SUFFIX)
    assert engine.fill(request, received=time.perf_counter(), is_cancelled=lambda: False).stats.n_encoded == 0
    assert SUFFIX.strip() in Methods(engine).prompt_text(Case("b", "rest_of_line", PREFIX, "", SUFFIX))

    raw = Engine.load(embedded_checkpoint())
    request = Fill(id=1, document="a", parts=(PREFIX, SUFFIX))
    alone = raw.fill(request, received=time.perf_counter(), is_cancelled=lambda: False).stats.n_prompt
    n_prompt, n_encoded = fill(PREFIX, 1)
    assert n_prompt == n_encoded > alone + 20
    n_prompt, n_encoded = fill(PREFIX + "width * ", 2)
    assert n_encoded < 10

    config = json.loads((folder / "infill_config.json").read_text())
    (folder / "infill_config.json").write_text(json.dumps(config | {"prompt": "raw"}))
    assert Engine.load(folder).chat is None
    (folder / "infill_config.json").write_text(json.dumps(config | {"prompt": "chat"}))
    (folder / "chat_template.jinja").unlink()
    with pytest.raises(CheckpointError, match="no chat template"):
        Engine.load(folder)
