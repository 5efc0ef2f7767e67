"""A plan is worded once: `gpumon size` and the panel say the same of it."""

from __future__ import annotations

from collections.abc import Iterable

from gpumon.config.keymap import Keymap
from gpumon.outputs.sizing import report
from gpumon.sizing.scenario import Scenario
from gpumon.tui.line import Row
from gpumon.tui.sizing.answer import about_rows, need_rows, note_rows
from gpumon.tui.sizing.state import PanelState
from gpumon.tui.sizing.table import Scene
from tests.each_row import each_row
from tests.records import replace
from tests.sizing.questions import KNOWN, NIM_70B, SEVENTY, changed
from tests.sizing.test_ranges import question


def words(rows: Iterable[Row]) -> str:
    """The text of rows of the panel, with one blank between two words."""
    lines = ("".join(text for text, _ in row) for row in rows)
    return " ".join(" ".join(lines).split())


@each_row(
    ("scenario", "needed"),
    [
        (SEVENTY, " server"),
        (changed(SEVENTY, seen=replace(NIM_70B, power_w=900.0)), " W (measured)"),
        (question(24.0), " by the fit, the ends are those of its error band"),
    ],
    named=["no power", "power", "a range"],
)
def test_the_panel_has_the_words_of_the_report(scenario: Scenario, needed: str) -> None:
    state = PanelState(KNOWN, scenario)
    scene = Scene(
        state=state,
        focused=True,
        ages={},
        picture="itl",
        picture_first=False,
        glyphs="braille",
        keymap=Keymap(),
        width=300,
        height=80,
    )
    shown = words([*need_rows(scene), *about_rows(scene), *note_rows(scene)])
    answer = state.calculation.answer
    plan = state.calculation.document
    workload = state.calculation.workload_document(0)
    assert answer is not None
    assert plan is not None
    assert workload is not None
    printed = " ".join(report(answer, scenario, width=10_000).split())
    assert needed in shown
    same = [*plan.need.parts, *plan.gpus_range.parts, *plan.other_packing.parts, *workload.load.parts]
    same += workload.goals.parts
    same += [row.text for row in (*workload.degraded, *plan.warnings)]
    assert [text for text in same if " ".join(text.split()) not in printed] == []
    assert [text for text in same if " ".join(text.split()) not in shown] == []
