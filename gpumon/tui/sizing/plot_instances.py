"""Instances over the target: a staircase, with the target and what runs here now marked."""

from __future__ import annotations

import math

from gpumon.readings.format import count, whole
from gpumon.readings.missing import number
from gpumon.readings.text import clean
from gpumon.sizing.answer import WorkloadPlan
from gpumon.tui.line import Row
from gpumon.tui.palette import Glyphs
from gpumon.tui.sizing.canvas import MARKS, usable
from gpumon.tui.sizing.plot_frame import Key, Plot, Scale, Title, said

_ROOM = 1.5
"""Times the target that is shown."""
_NEAR = 3.0
"""What the instances of now carry is shown up to so many times the target."""
_STEPS = 4.0
"""Steps that are shown of a target of nothing."""
_MOST = 1e300
"""Instances: those of next to no capacity are more than a number can be."""


def instances(width: int, height: int, plan: WorkloadPlan, here: int | None, glyphs: Glyphs) -> list[Row]:
    """Instances that each number of requests in flight takes. `here`: instances that run now; None: not known."""
    title = Title("instances over requests in flight", clean(plan.name), short="instances")
    each, target, needed = number(plan.capacity_per_instance), number(plan.concurrency), number(plan.instances)
    if each is None or not usable(each) or each <= 0.0:
        return said(title, plan.problem or "no capacity of one instance is known yet", width, height)
    if target is None or not usable(target):
        return said(title, plan.problem or "the target in requests in flight is not known", width, height)

    def steps(requests: float) -> float:
        return math.ceil(min(requests / each, _MOST) - 1e-9) + plan.spares

    mark = needed if needed is not None and usable(needed) else steps(target) if target else 0.0
    carried = here * each if here is not None and here > 0 else 0.0
    most_x = max(target * _ROOM or each * _STEPS, carried * 1.1 if carried <= _NEAR * target else 0.0)
    shown = here is not None and 0 <= here <= _NEAR * max(steps(most_x), mark)
    most_y = max(steps(most_x), mark, float(here or 0) if shown else 0.0, 1.0)
    marks = MARKS[glyphs]
    keys = [Key(marks.plan, "focus", f"target {_said(target)}: {_said(mark)} needed", f"{_said(mark)} needed")]
    if here is not None:
        carry = f", carry {_said(carried)}" if carried else ""
        where = "" if shown else ", above the scale"
        keys.append(Key(marks.goal * 2, "ok", f"{_said(here)} here now{carry}{where}", f"{_said(here)} here"))
    spare = f", {plan.spares} spare" if plan.spares else ""
    keys.append(Key(marks.solid, "accent", f"{count(each)} each{spare}"))
    if mark > steps(target) and target:
        keys.append(Key("", "muted", "more than the steps: a rate or queue bound", "above the steps"))
    plot = Plot((width, height), title, (Scale(most_x), Scale(most_y, whole=True)), "in flight", keys, glyphs)
    canvas = plot.canvas
    if canvas is not None:
        canvas.curve(steps, lambda _: True, "accent")
        if here is not None and shown:
            canvas.across(float(here), marks.goal, "ok")
        canvas.down(target, marks.limit, "muted")
        canvas.mark(target, mark, marks.plan, "focus")
    return plot.rows()


def _said(value: float) -> str:
    return f"{value:,.0f}" if value < 1e5 else whole(value)
