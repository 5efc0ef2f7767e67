"""Numbers of the panel: what may be typed, what is refused and why, and where a step leads."""

from __future__ import annotations

import re

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.config.keymap import Keymap
from gpumon.sizing.document.plan import plan_document
from gpumon.sizing.scenario import Catalogues, Scenario, Server, Workload
from gpumon.sources.packaged import gpu_catalogue, llm_catalogue, network_catalogue
from gpumon.tui.sizing import kinds as numbers
from gpumon.tui.sizing.answer import need_rows
from gpumon.tui.sizing.fields import FIELDS_BY_SECTION, Field, FieldPlace, default_of, typed_value, with_value
from gpumon.tui.sizing.kinds import NumberKind
from gpumon.tui.sizing.state import PanelState
from gpumon.tui.sizing.table import Scene
from tests.each_row import each_row
from tests.sizing.questions import NIM_70B, SEVENTY, changed

KNOWN = Catalogues(gpu_catalogue(), llm_catalogue(), networks=network_catalogue())
ALL = [(section, each) for section, fields in FIELDS_BY_SECTION.items() for each in fields]
SCENARIO = Scenario(server=(Server("H100 SXM5 80GB"),), workload=(Workload("m", 512.0),))


@each_row(
    ("kind", "text", "value"),
    [
        (numbers.REQUESTS, "512", 512.0),
        (numbers.REQUESTS, "1.5k", 1500.0),
        (numbers.REQUESTS, "1e9", 1e9),
        (numbers.REQUESTS, "0", 0.0),
        (numbers.SHARE, "80", 0.8),
        (numbers.SHARE, "80%", 0.8),
        (numbers.GOAL, "40", 40.0),
        (numbers.GOAL, "1.5 s", 1500.0),
        (numbers.GB, "44,76", 44.76),
        (numbers.SECONDS, "2 min", 120.0),
        (numbers.COUNT, "4", 4),
        (numbers.TOKENS, "4k", 4000.0),
        (numbers.MONEY, "2.49", 2.49),
    ],
)
def test_these_are_numbers(kind: NumberKind, text: str, value: float) -> None:
    assert kind.read(text) == value


@each_row(
    ("kind", "text", "said"),
    [
        (numbers.REQUESTS, "1e", "is no number"),
        (numbers.REQUESTS, ".", "is no number"),
        (numbers.REQUESTS, "12x", "is no number"),
        (numbers.REQUESTS, "nan", "is no number"),
        (numbers.REQUESTS, "inf", "is no number"),
        (numbers.REQUESTS, "-5", "must be at least 0"),
        (numbers.REQUESTS, "1e999", "too large"),
        (numbers.REQUESTS, "1e99999999999", "too large"),
        (numbers.COUNT, "2.5", "whole number"),
        (numbers.COUNT, "0", "must be at least 1"),
        (numbers.SHARE, "0", "must be above 0%"),
        (numbers.SHARE, "120", "must be at most 100%"),
        (numbers.GB, "0", "must be above 0 GB"),
        (numbers.GOAL, "5 GB", "is no number"),
    ],
)
def test_these_are_none_and_say_why(kind: NumberKind, text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        kind.read(text)


@given(st.text(max_size=12))
def test_any_text_is_a_number_or_is_refused_in_words(text: str) -> None:
    for _, each in ALL:
        if each.kind is None:
            continue
        try:
            value = each.read(text)
        except ValueError:
            continue
        assert value is None or value >= 0


@given(st.floats(0.001, 1e12))
def test_what_is_shown_to_be_typed_reads_back(value: float) -> None:
    for kind in (numbers.REQUESTS, numbers.GB, numbers.GOAL, numbers.TOKENS):
        assert kind.read(kind.typed(value)) == pytest.approx(value, rel=1e-9)


@each_row(
    ("kind", "value", "up", "down"),
    [
        (numbers.REQUESTS, 1, 2, 0),
        (numbers.REQUESTS, 24, 26, 22),
        (numbers.REQUESTS, 512, 550, 500),
        (numbers.REQUESTS, 500, 550, 450),
        (numbers.REQUESTS, 0, 1, 0),
        (numbers.COUNT, 1, 2, 1),
        (numbers.COUNT, 8, 9, 7),
        (numbers.SHARE, 0.8, 0.85, 0.75),
        (numbers.SHARE, 1.0, 1.0, 0.95),
        (numbers.SHARE, 0.05, 0.1, 0.05),
        (numbers.GOAL, 40.0, 45.0, 35.0),
        (numbers.MONEY, 2.49, 3.0, 2.0),
        (numbers.MONEY, 0.5, 0.55, 0.45),
    ],
)
def test_a_step_leads_to_the_next_round_value(kind: NumberKind, value: float, up: float, down: float) -> None:
    assert kind.stepped(value, 1) == pytest.approx(up)
    assert kind.stepped(value, -1) == pytest.approx(down)


@each_row(("section", "of"), ALL)
def test_every_field_is_in_the_scenario_and_can_be_set(section: str, of: Field) -> None:
    place = FieldPlace(section, 0, of)
    assert of.means.endswith(".")
    default_of(place)
    value = of.read("1") if of.kind is not None else (of.choices(KNOWN) or ("",))[-1]
    changed = with_value(SCENARIO, place, value)
    assert typed_value(changed, place) == value
    assert of.shown(value)
    gone = FieldPlace(section, 7, of)
    if section != "goals":
        assert with_value(SCENARIO, gone, value) is SCENARIO
        assert typed_value(SCENARIO, gone) is None


@each_row(("tp", "end"), [(2, "W (measured)"), (4, "W (the boards' limit, at most)")])
def test_watts_that_were_not_seen_are_marked(tp: int, end: str) -> None:
    """The engine was seen with TP 2; of TP 4 only the boards' limit is known."""
    seen = msgspec.structs.replace(NIM_70B, power_w=900.0)
    scenario = changed(SEVENTY, seen=seen, tp=tp)
    state = PanelState(KNOWN, scenario)
    [row] = need_rows(
        Scene(
            state=state,
            focused=True,
            ages={},
            picture="itl",
            picture_first=False,
            glyphs="braille",
            keymap=Keymap(),
            width=120,
            height=40,
        )
    )
    parts = "".join(text for text, _ in row).split("  ")
    assert any(re.fullmatch(rf"[\d.,]+ k?{re.escape(end)}", part) for part in parts), parts
    assert state.calculation.answer is not None
    power = plan_document(state.calculation.answer).totals["power"]
    assert f"{power.text}{power.note}" in parts
