"""The assumption of even routing: that it does not hold is what triage finds, not a rule of the plan's own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpumon.sizing.live import UnevenRouting, uneven_routing
from tests.each_row import each_row
from tests.triage.engines import WORKS
from tests.triage.test_engine_replicas import FULL, ROOMY, played


def test_replicas_at_their_limit_beside_those_that_triage_finds_room_on() -> None:
    assert uneven_routing(played(FULL, ROOMY)) == {"m": UnevenRouting(at_limit=1, with_room=1)}
    assert uneven_routing(played(FULL, ROOMY, ROOMY, FULL)) == {"m": UnevenRouting(at_limit=2, with_room=2)}


@each_row(
    ("engines", "others"),
    [
        ((FULL, FULL), {}),
        ((FULL, ROOMY), {"info": ({"role": "decode"}, {"role": "prefill"})}),
        ((FULL, {**ROOMY, "running": 64.0}), {"slots": 64.0}),
        ((FULL, {**ROOMY, "running": 0.0, "asleep": "weights offloaded"}), {}),
        (({**WORKS, "running": 1.0, "waiting": 1.0}, {**WORKS, "running": 1.0}), {"seconds": 1}),
        (({**WORKS, "running": 50.0, "kv_usage_ratio": 0.9}, {**WORKS, "running": 1.0, "kv_usage_ratio": 0.3}), {}),
    ],
    named=["all full", "prefill and decode", "no slot left", "asleep", "one instant", "full, and nobody waits"],
)
def test_what_triage_sends_no_requests_to_has_no_room_beside_the_plan_either(
    engines: tuple[Mapping[str, Any], ...], others: dict[str, Any]
) -> None:
    assert uneven_routing(played(*engines, **others)) == {}
