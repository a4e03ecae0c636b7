"""What both Neovims show and accept when the server answers late, with nothing, or with half of what is expected."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from nvim_editor import VERSIONS, poll
from nvim_script import INLINE, Scripted, item

pytestmark = pytest.mark.e2e

LINE = "total = "


@pytest.fixture(params=VERSIONS)
def scripted(request: pytest.FixtureRequest) -> Iterator[Scripted]:
    """Neovim in insert mode behind `total = `."""
    with Scripted.opened(f"{LINE}\nprint(total)\n", request.param) as opened:
        opened.insert_after(len(LINE))
        opened.until_asked(INLINE)
        yield opened


def offer(scripted: Scripted, *items: str) -> None:
    scripted.answer(INLINE, f"{{ items = {{ {', '.join(items)} }} }}")


def ghost_text(scripted: Scripted) -> str:
    ghost = scripted.editor.ghost
    return ghost.text if ghost else ""


def until_ghost(scripted: Scripted, text: str) -> None:
    poll(lambda: ghost_text(scripted) == text, f"the ghost text is not {text!r}")


def show(scripted: Scripted, *texts: str) -> None:
    """Types a letter and has these texts suggested behind it."""
    offer(scripted, *(item(text, len(LINE) + 1) for text in texts))
    scripted.editor.type("x")
    until_ghost(scripted, texts[0])


def type_along(scripted: Scripted, answer: str) -> None:
    """Types what the ghost text says, which leaves the rest of it, and gets an answer to that."""
    show(scripted, "yz")
    scripted.hold(INLINE)
    n_asked = len(scripted.asked(INLINE))
    scripted.editor.type("y")
    scripted.until_asked(INLINE, n_asked + 1)
    until_ghost(scripted, "z")
    scripted.answer(INLINE, answer)
    scripted.release(INLINE)


def test_an_answer_of_null_clears_old_ghost_text(scripted: Scripted) -> None:
    type_along(scripted, "vim.NIL")
    until_ghost(scripted, "")


def test_an_error_clears_old_ghost_text_and_disturbs_nobody(scripted: Scripted) -> None:
    type_along(scripted, "function() return nil, { code = -32603, message = 'broken' } end")
    until_ghost(scripted, "")
    assert scripted.messages == []


def test_an_item_without_a_range_is_inserted_at_the_cursor(scripted: Scripted) -> None:
    offer(scripted, '{ insertText = "y + z" }')
    scripted.editor.type("x")
    until_ghost(scripted, "y + z")
    scripted.editor.press("<M-l>")
    poll(lambda: scripted.editor.line == f"{LINE}xy + z", "it was not accepted")


def test_a_late_answer_to_an_older_request_is_not_shown(scripted: Scripted) -> None:
    scripted.hold(INLINE)
    n_asked = len(scripted.asked(INLINE))
    offer(scripted, item("old", len(LINE) + 1))
    scripted.editor.type("x")
    first = scripted.until_asked(INLINE, n_asked + 1)
    scripted.editor.type("y")
    scripted.until_asked(INLINE, n_asked + 2)
    assert first["id"] in scripted.cancelled, "the superseded request was not withdrawn"
    offer(scripted, item("new", len(LINE) + 2))
    scripted.release(INLINE, 2)
    until_ghost(scripted, "new")
    offer(scripted, item("old", len(LINE) + 1))
    scripted.release(INLINE)
    scripted.editor.type("n")
    assert ghost_text(scripted) == "ew"


def test_accepting_what_was_typed_into_leaves_no_letter_behind(scripted: Scripted) -> None:
    show(scripted, "yz()")
    scripted.editor.press("yz<M-l>")
    poll(lambda: scripted.editor.line == f"{LINE}xyz()", f"stale accept: {scripted.editor.line!r}")


def test_typing_what_contradicts_the_suggestion_hides_it_and_accepts_nothing(scripted: Scripted) -> None:
    show(scripted, "yz()")
    scripted.hold(INLINE)
    scripted.editor.press("q<M-l>")
    poll(lambda: scripted.editor.line == f"{LINE}xq", "the letter was not typed")
    until_ghost(scripted, "")
    assert scripted.editor.line == f"{LINE}xq"


def test_several_lines_stand_below_and_are_accepted_line_by_line(scripted: Scripted) -> None:
    show(scripted, "(\n    1,\n)")
    scripted.editor.press("<M-j>")
    poll(lambda: scripted.editor.nvim.current.buffer[0] == f"{LINE}x(", "the first line was not accepted")
    until_ghost(scripted, "\n    1,\n)")
    scripted.editor.press("<M-j>")
    poll(lambda: scripted.editor.line == "    1,", "the second line was not accepted")
    until_ghost(scripted, "\n)")
    scripted.editor.press("<M-l>")
    poll(lambda: scripted.editor.nvim.current.buffer[:] == [f"{LINE}x(", "    1,", ")", "print(total)"], "not whole")


def test_next_and_previous_go_round_the_alternatives(scripted: Scripted) -> None:
    show(scripted, "1", "2", "3")
    for key, text in (("<M-n>", "2 (2/3)"), ("<M-n>", "3 (3/3)"), ("<M-n>", "1 (1/3)"), ("<M-p>", "3 (3/3)")):
        scripted.editor.press(key)
        until_ghost(scripted, text)
    scripted.editor.press("<M-l>")
    poll(lambda: scripted.editor.line == f"{LINE}x3", "the shown alternative was not accepted")


def test_the_alternative_that_is_shown_stays_shown_while_it_is_typed_along(scripted: Scripted) -> None:
    show(scripted, "yz", "yw")
    scripted.editor.press("<M-n>")
    until_ghost(scripted, "yw (2/2)")
    scripted.hold(INLINE)
    scripted.editor.type("y")
    until_ghost(scripted, "w")


def test_next_asks_for_alternatives_where_one_suggestion_is_known(scripted: Scripted) -> None:
    show(scripted, "1")
    offer(scripted, item("7", len(LINE) + 1), item("8", len(LINE) + 1))
    scripted.editor.press("<M-n>")
    until_ghost(scripted, "7")
    assert scripted.asked(INLINE)[-1]["params"]["context"] == {"triggerKind": 1}


def test_a_word_is_accepted_and_the_rest_stays(scripted: Scripted) -> None:
    scripted.hold(INLINE)
    offer(scripted, item(" + one.two", len(LINE) + 1))
    n_asked = len(scripted.asked(INLINE))
    scripted.editor.type("x")
    scripted.until_asked(INLINE, n_asked + 1)
    scripted.release(INLINE)
    until_ghost(scripted, " + one.two")
    for typed, rest in (("x +", " one.two"), ("x + one", ".two")):
        scripted.editor.press("<M-w>")
        poll(lambda typed=typed: scripted.editor.line == LINE + typed, f"{typed!r} was not accepted")
        assert ghost_text(scripted) == rest


def test_leaving_insert_mode_withdraws_the_request_and_the_ghost_text(scripted: Scripted) -> None:
    show(scripted, "yz")
    scripted.hold(INLINE)
    n_asked = len(scripted.asked(INLINE))
    scripted.editor.type("y")
    waiting = scripted.until_asked(INLINE, n_asked + 1)
    scripted.editor.press("<Esc>")
    until_ghost(scripted, "")
    poll(lambda: waiting["id"] in scripted.cancelled, "the request was not withdrawn")
    scripted.release(INLINE)
    scripted.editor.lua("vim.wait(50)")
    assert ghost_text(scripted) == ""


def test_a_dismissed_suggestion_stays_away_while_the_cursor_moves_and_comes_back_by_hand(scripted: Scripted) -> None:
    show(scripted, "yz")
    scripted.editor.press("<M-d>")
    until_ghost(scripted, "")
    n_sent = len(scripted.asked(INLINE))
    for key in ("<Left>", "<Right>"):
        n_tried = scripted.editor.lua("return watched.asked")
        scripted.editor.press(key)
        poll(lambda n=n_tried: scripted.editor.lua("return watched.asked") > n, f"the editor did not ask after {key}")
    assert len(scripted.asked(INLINE)) == n_sent
    scripted.editor.press("<M-n>")
    until_ghost(scripted, "yz")


def test_a_dismissed_suggestion_comes_back_with_the_next_change(scripted: Scripted) -> None:
    show(scripted, "yz")
    scripted.editor.press("<M-d>")
    until_ghost(scripted, "")
    offer(scripted, item("z", len(LINE) + 2))
    scripted.editor.type("y")
    until_ghost(scripted, "z")


def test_a_buffer_that_is_switched_off_is_asked_nothing_while_others_are(scripted: Scripted) -> None:
    show(scripted, "yz")
    scripted.editor.nvim.command("Midspan toggle buffer")
    until_ghost(scripted, "")
    assert scripted.messages == ["Midspan: suggestions off in this buffer"]
    n_asked = len(scripted.asked(INLINE))
    scripted.editor.type("y")
    poll(lambda: scripted.editor.lua("return watched.asked") > n_asked, "the editor did not ask")
    assert len(scripted.asked(INLINE)) == n_asked
    assert "off in this buffer" in scripted.editor.lua("vim.cmd('Midspan') return messages[#messages]")
    scripted.editor.lua("vim.cmd.edit(vim.fn.tempname() .. '.py')")
    scripted.editor.press("<Esc>ia")
    scripted.until_asked(INLINE, n_asked + 1)


@pytest.mark.parametrize("call", ["client:request", "client.request"])
def test_switched_off_the_server_is_not_asked_for_a_plugins_menu_either(scripted: Scripted, call: str) -> None:
    method = "textDocument/completion"
    scripted.answer(method, "{ isIncomplete = true, items = { { label = 'x' } } }")
    ask = f"""
        local client = vim.lsp.get_clients({{ name = "midspan" }})[1]
        menu = nil
        local params = vim.lsp.util.make_position_params(0, client.offset_encoding)
        {call}("{method}", params, function(_, result) menu = result end, 0)
    """
    scripted.editor.nvim.command("Midspan toggle")
    scripted.editor.lua(ask)
    poll(lambda: scripted.editor.lua("return menu") == {"isIncomplete": False, "items": []}, "no empty menu")
    assert not scripted.asked(method)
    scripted.editor.nvim.command("Midspan toggle")
    scripted.editor.lua(ask)
    poll(lambda: (scripted.editor.lua("return menu") or {}).get("items") == [{"label": "x"}], "no menu")


def test_ghost_text_that_replaces_a_bracket_hides_it(scripted: Scripted) -> None:
    scripted.editor.lua("vim.api.nvim_set_current_line(...)", f"{LINE})")
    offer(scripted, item("y)", len(LINE) + 1, len(LINE) + 2))
    scripted.editor.type("x")
    until_ghost(scripted, "y)")
    scripted.editor.press("<M-l>")
    poll(lambda: scripted.editor.line == f"{LINE}xy)", "the bracket was not replaced")
