"""Text from outside never reaches the terminal as anything but text."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.readings.missing import Missing, Reason
from gpumon.readings.text import clean
from tests.each_row import each_row


@each_row(
    ("hostile", "shown"),
    [
        ("meta-llama/Llama-3.3-70B", "meta-llama/Llama-3.3-70B"),
        ("\x1b[31mred\x1b]0;title\x07", "\\x1b[31mred\\x1b]0;title\\x07"),
        ("\x9b2J", "\\x9b2J"),
        ("a\nb\rc\td", "a\\x0ab\\x0dc\\x09d"),
        ("\u202egnp.exe", "\\u202egnp.exe"),
        ("zero\u200bwidth", "zero\\u200bwidth"),
        ("模型-7B", "模型-7B"),
        ("[bold]markup[/bold]", "[bold]markup[/bold]"),
        ("\ud800", "\\ud800"),
        ("a\u3164b\uffa0", "a\\u3164b\\uffa0"),
        ("a\ufe0f\u034f\U000e0100", "a\\ufe0f\\u034f\\U000e0100"),
        ("\u2800", "\\u2800"),
        ("Ha\u0300\u0323 N\u1ed9i", "Ha\u0300\u0323 N\u1ed9i"),
        ("z" + "\u0301" * 6, "z" + "\u0301" * 4 + "\\u0301" * 2),
    ],
)
def test_what_a_terminal_would_interpret_and_what_nobody_sees_is_made_visible(hostile: str, shown: str):
    assert clean(hostile) == shown


def test_long_text_is_cut_and_marked():
    assert clean("x" * 10_000) == "x" * 255 + "…"
    assert clean("x" * 40, 10) == "x" * 9 + "…"


@given(st.text())
def test_nothing_unsafe_is_left_and_it_is_never_too_long(text: str):
    shown = clean(text, 64)
    assert len(shown) <= 64
    assert not {unicodedata.category(character) for character in shown} & {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}


def test_a_missing_reading_has_no_truth_value():
    with pytest.raises(TypeError, match="isinstance"):
        bool(Missing(Reason.STALE))
