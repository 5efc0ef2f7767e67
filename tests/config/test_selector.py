"""The selectors of a [[feed]]: what they take, and where a wrong one goes wrong."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.config.selector import GRAMMAR, Matcher, Selector, parse_selector
from tests.each_row import each_row

RIGHT = {
    "my_tokens_total": Selector("my_tokens_total"),
    " a:b ": Selector("a:b"),
    "m{}": Selector("m"),
    'm{a="1"}': Selector("m", (Matcher("a", "1"),)),
    'm{a="1",}': Selector("m", (Matcher("a", "1"),)),
    'm { a = "1" , b != "2" }': Selector("m", (Matcher("a", "1"), Matcher("b", "2", must_equal=False))),
    'm{a!="1",a!="2"}': Selector("m", (Matcher("a", "1", must_equal=False), Matcher("a", "2", must_equal=False))),
    r'm{a="x\"y\\z\n"}': Selector("m", (Matcher("a", 'x"y\\z\n'),)),
    'm{a="},{="}': Selector("m", (Matcher("a", "},{="),)),
    'm{a=""}': Selector("m", (Matcher("a", ""),)),
}
WRONG = {
    "": "begins with no metric name",
    "7m": "begins with no metric name",
    "my tokens": "'t' at character 4 is one too many",
    "rate(m[5m])": "'(' at character 5 is one too many",
    "m{": 'no label="value" at character 3',
    "m{a": 'no label="value" at character 3',
    "m{a=": 'no label="value" at character 3',
    "m{a=1}": 'no label="value" at character 3',
    "m{a='1'}": 'no label="value" at character 3',
    'm{a="1}': 'no label="value" at character 3',
    'm{a="1" b="2"}': 'no label="value" at character 3',
    'm{a="1",b}': 'no label="value" at character 9',
    'm{a="1"}}': "'}' at character 9 is one too many",
    'm{a=~"x.*"}': "=~ of a: gpumon has no patterns, only = and !=: list values with !=",
    'm{a!~"x"}': "!~ of a: gpumon has no patterns, only = and !=: list values with !=",
    'm{a="1",a="2"}': "label a stands there twice: one series has it once",
    r'm{a="\x"}': 'no label="value" at character 3',
    '{a="1"}': "begins with no metric name",
}


@each_row("text", RIGHT)
def test_what_it_says(text: str):
    assert parse_selector(text) == RIGHT[text]


@each_row("text", WRONG)
def test_where_it_goes_wrong(text: str):
    with pytest.raises(ValueError) as wrong:  # noqa: PT011 - the whole text is compared
        parse_selector(text)
    assert str(wrong.value).removesuffix(f": {GRAMMAR}") == WRONG[text]


def test_a_series_without_the_label_has_it_empty():
    assert parse_selector('m{a=""}').takes({"b": "1"})
    assert parse_selector('m{a!="1"}').takes({})
    assert not parse_selector('m{a="1"}').takes({})
    assert not parse_selector('m{a!="1"}').takes({"a": "1"})
    assert parse_selector('m{a="1",b!="2"}').takes({"a": "1", "b": "3", "c": "4"})


@given(st.text(max_size=40))
def test_any_text_is_a_selector_or_a_line_that_says_why_not(text: str):
    try:
        found = parse_selector(text).name
    except ValueError as wrong:
        found = str(wrong).partition("\n")[0]
    assert found


@given(st.text(max_size=20))
def test_any_value_can_be_asked_for(value: str):
    quoted = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    assert parse_selector(f'm{{a="{quoted}"}}').takes({"a": value})
