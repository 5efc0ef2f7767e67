"""Values in effect of fields that nobody typed."""

from __future__ import annotations

import pytest

from gpumon.sizing.instance import resolve
from gpumon.sizing.profile import Observed
from gpumon.tui.sizing.effects import Asked, Effect, effect
from gpumon.tui.sizing.fields import Place, field
from tests.records import replace
from tests.sizing.questions import KNOWN, NIM_70B, SEVENTY, changed


def shown(seen: Observed, key: str) -> Effect:
    """Of the first workload, with that seen."""
    scenario = changed(SEVENTY, seen=seen)
    instance = resolve(scenario.workload[0], scenario, KNOWN)
    return effect(Place("workload", 0, field("workload", key)), Asked(scenario, KNOWN, instance))


@pytest.mark.parametrize(("per_step", "points", "value", "origin"), [
    (None, NIM_70B.points, 1.0, "no speculation"),
    (1.0, NIM_70B.points, 1.0, "no speculation"),
    (2.5, NIM_70B.points, 2.5, "measured"),
    (2.5, (), 1.0, "no speculation"),
])  # fmt: skip
def test_what_an_engine_was_seen_to_draft_is_in_effect(
    per_step: float | None, points: tuple[object, ...], value: float, origin: str
) -> None:
    """Without points the latency is that of the roofline, which has no speculation in it."""
    seen = replace(NIM_70B, tokens_per_step=per_step, points=points)
    assert shown(seen, "tokens_per_step") == Effect(value, origin)
