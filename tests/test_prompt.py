"""A request's text lies in context, canvas and healed text, each piece exactly once."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from midspan_engine.config import InfillConfig
from midspan_engine.errors import InputError
from midspan_engine.prompt import STRIDE_TOKENS, Prompt, build_prompt
from tiny_engine import BLANKS, REFERENCE, embedded_tokens

N_SLOTS = 32
LINES = st.lists(st.sampled_from(["x = 1\n", "def f(a):\n", "    return a\n", "\n", "s = 'é😀'\n", "#"]), max_size=40)
texts = st.tuples(LINES.map("".join), st.text("ab_ (\n=", max_size=12)).map("".join)


def prompt_of(
    *parts: str, n_gap: int = 12, infill: InfillConfig = BLANKS, n_slots: int = N_SLOTS, suffix_is_cut: bool = False
) -> Prompt:
    tokens = embedded_tokens()
    return build_prompt(parts, tokens, infill, n_gap=n_gap, n_slots=n_slots, suffix_is_cut=suffix_is_cut)


def spelled(ids: Sequence[int]) -> bytes:
    return b"".join(embedded_tokens().spellings[index] for index in ids)


def pinned(prompt: Prompt, first: int, stop: int) -> bytes:
    return spelled(prompt.canvas.ids[first:stop])


@given(prefix=texts, suffix=texts)
def test_context_tail_and_healed_text_are_the_prefix_and_the_head_begins_the_suffix(prefix: str, suffix: str) -> None:
    prompt = prompt_of(prefix, suffix)
    (gap,) = prompt.canvas.gaps
    before = spelled(prompt.context) + pinned(prompt, 0, gap.start) + prompt.required[0]
    assert before == prefix.encode()
    assert suffix.encode().startswith(pinned(prompt, gap.stop, N_SLOTS))
    assert gap.start <= BLANKS.tail_tokens
    assert len(prompt.canvas.ids) == N_SLOTS


@given(prefix=texts, middle=texts.filter(lambda text: len(text) < 12), suffix=texts)
def test_a_middle_part_stands_whole_between_its_gaps(prefix: str, middle: str, suffix: str) -> None:
    prompt = prompt_of(prefix, middle, suffix, n_gap=6)
    first, second = prompt.canvas.gaps
    assert pinned(prompt, first.stop, second.start) + prompt.required[1] == middle.encode()


@pytest.mark.parametrize("suffix", ["", "\n", ")\n"])
def test_an_end_that_is_near_is_pinned(suffix: str) -> None:
    prompt = prompt_of("x = f(", suffix)
    n_suffix = len(embedded_tokens().encode(suffix))
    assert prompt.canvas.ids[prompt.canvas.gaps[0].stop + n_suffix] == embedded_tokens().eos_token_id


def test_an_end_that_is_far_is_not_claimed() -> None:
    far = prompt_of("x = f(", "y\n" * 5000, n_slots=9000, infill=msgspec.structs.replace(BLANKS, head_tokens=8900))
    assert embedded_tokens().eos_token_id not in far.canvas.ids


def test_the_end_of_a_suffix_that_was_cut_is_not_taken_for_the_end_of_the_file() -> None:
    assert embedded_tokens().eos_token_id in prompt_of("x = f(", ")\n").canvas.ids
    assert embedded_tokens().eos_token_id not in prompt_of("x = f(", ")\n", suffix_is_cut=True).canvas.ids


@pytest.mark.parametrize("word", ["# Программирование", "# " + "这" * 11, '"' + "😀" * 9])
def test_a_last_piece_that_would_fill_the_gap_stays_pinned(word: str) -> None:
    prompt = prompt_of(word, "\n")
    assert prompt.required == (b"",)
    assert (spelled(prompt.context) + pinned(prompt, 0, prompt.canvas.gaps[0].start)).decode() == word


def test_the_start_of_the_file_is_marked() -> None:
    prompt = prompt_of("", "")
    assert prompt.context == []
    assert prompt.canvas.ids[0] == embedded_tokens().bos_token_id
    assert prompt.required == (b"",)


@pytest.mark.parametrize("suffix", ["", "secret\n"])
def test_without_a_head_the_suffix_leaves_no_trace(suffix: str) -> None:
    prompt = prompt_of("x = f(", suffix, infill=msgspec.structs.replace(BLANKS, head_tokens=0))
    assert set(prompt.canvas.ids[prompt.canvas.gaps[0].stop :]) <= {embedded_tokens().pad_token_id}


@pytest.mark.parametrize("parts", [(), ("x",)])
def test_fewer_than_two_parts_are_refused(parts: tuple[str, ...]) -> None:
    with pytest.raises(InputError, match="two parts"):
        prompt_of(*parts)


def test_gaps_share_a_canvas_too_narrow_for_them() -> None:
    prompt = prompt_of("a = ", ", b = ", ", c = ", "\nx = 1\n", n_gap=30)
    sizes = {len(gap) for gap in prompt.canvas.gaps}
    assert len(sizes) == 1
    assert 1 <= sizes.pop() < 12
    assert prompt.canvas.gaps[-1].stop < N_SLOTS, "something of the suffix stays pinned"


def test_middle_parts_that_leave_no_room_are_refused() -> None:
    with pytest.raises(InputError, match="canvas has 32"):
        prompt_of("a = ", "x = [1, 2, 3]\n" * 20, "\n")


def test_the_start_of_a_long_prompt_moves_in_strides() -> None:
    text = "".join(f"value_{number} = {number}\n" for number in range(400))
    ids = [embedded_tokens().bos_token_id, *embedded_tokens().encode(text)]
    dropped = set()
    for end in range(len(text) - 600, len(text), 7):
        prompt = prompt_of(text[:end], "")
        held = [*prompt.context, *prompt.canvas.ids[: prompt.canvas.gaps[0].start]]
        assert BLANKS.prompt_tokens - STRIDE_TOKENS < len(held) <= BLANKS.prompt_tokens
        start = next(n for n in range(0, len(ids), STRIDE_TOKENS) if ids[n : n + len(held)] == held)
        dropped.add(start)
    assert 1 < len(dropped) <= 4


def test_line_breaks_of_other_systems_are_kept() -> None:
    prompt = prompt_of("a = 1\r\nb = ", "\r\nc = 3\r\n")
    (gap,) = prompt.canvas.gaps
    assert spelled(prompt.context) + pinned(prompt, 0, gap.start) == b"a = 1\r\nb ="
    assert pinned(prompt, gap.stop, N_SLOTS) == b"\r\nc = 3\r\n"


def test_a_checkpoint_without_a_mask_token_is_laid_out_too() -> None:
    prompt = build_prompt(("x = ", "\n"), embedded_tokens(), REFERENCE, n_gap=4, n_slots=N_SLOTS)
    assert len(prompt.canvas.gap_slots) == 4
