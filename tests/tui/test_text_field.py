"""The line of text in the drawer."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gpumon.tui.text_field import TextField
from tests.each_row import each_row

KEYS = ["left", "right", "home", "end", "ctrl+a", "ctrl+e", "backspace", "delete", "ctrl+u", "ctrl+k", "ctrl+w"]


@each_row(
    ("keys", "text", "at"),
    [
        (["left", "x"], "one twxo", 7),
        (["home", "x"], "xone two", 1),
        (["ctrl+a", "delete"], "ne two", 0),
        (["backspace"], "one tw", 6),
        (["ctrl+w"], "one ", 4),
        (["ctrl+w", "ctrl+w"], "", 0),
        (["ctrl+u"], "", 0),
        (["home", "right", "ctrl+k"], "o", 1),
        (["home", "backspace", "left"], "one two", 0),
        (["end", "delete", "right"], "one two", 7),
        (["left", "left", "left", "ctrl+u"], "two", 0),
        (["ctrl+a", "ctrl+e", "ü"], "one twoü", 8),
    ],
)
def test_each_key_does_what_a_shell_does(keys: list[str], text: str, at: int) -> None:
    field = TextField("one two")
    for key in keys:
        assert field.take(key, key if len(key) == 1 else None)
    assert (field.text, field.cursor) == (text, at)


@each_row(
    ("keys", "text", "at"),
    [
        (["5"], "5", 1),
        (["5", "0"], "50", 2),
        (["backspace"], "", 0),
        (["delete"], "", 0),
        (["ctrl+w"], "", 0),
        (["home", "x"], "xone two", 1),
        (["end", "x"], "one twox", 8),
        (["left", "backspace"], "one to", 5),
        ([], "one two", 7),
    ],
)
def test_what_is_typed_takes_the_place_of_a_selected_text(keys: list[str], text: str, at: int) -> None:
    field = TextField("one two", selected=True)
    for key in keys:
        assert field.take(key, key if len(key) == 1 else None)
    assert (field.text, field.cursor) == (text, at)


def test_a_paste_of_nothing_printable_takes_no_place() -> None:
    field = TextField("one", selected=True)
    field.insert("\x1b")
    assert field.text == "one"
    field = TextField("one", selected=True)
    field.insert("two")
    assert field.text == "two"


@each_row(("key", "character"), [("f1", None), ("escape", "\x1b"), ("ctrl+x", "\x18"), ("up", None)])
def test_other_keys_are_not_for_it(key: str, character: str | None) -> None:
    field = TextField("one")
    assert not field.take(key, character)
    assert field.text == "one"


def test_a_paste_is_cut_and_holds_nothing_that_is_not_printable() -> None:
    field = TextField("a")
    field.insert("b\x1b[31m\n\u202ec" + "x" * 1000)
    assert field.text.startswith("ab[31mc")
    assert field.text.isprintable()
    assert len(field.text) <= 200
    field.insert("y")
    assert len(field.text) <= 200


@given(st.text(max_size=20), st.lists(st.sampled_from(KEYS) | st.characters(), max_size=30))
def test_the_cursor_is_always_in_the_text(text: str, keys: list[str]) -> None:
    field = TextField(text)
    for key in keys:
        field.take(key, key if len(key) == 1 else None)
        assert 0 <= field.cursor <= len(field.text)
