"""Which replica of a model does worse than the others or gets less to do: who is named, in what, and for how long."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gpumon.efficiency.checks import Deviations, Minute
from gpumon.readings import quantities as q
from gpumon.readings.frame import EngineReading
from gpumon.readings.snapshot import Snapshot
from gpumon.readings.verdict import Evidence
from tests.each_row import each_row
from tests.efficiency.polls import after, there
from tests.efficiency.test_replicas import group, replica
from tests.records import replace

Engine = Callable[[float], EngineReading]
MINUTE = Minute("a", "a", "", 1.0, 60.0, 60.0, 8.0, 0.0, 0.4, 1000.0, 0.04, 0.2)
HOLD_S = 180.0


Figures = tuple[str, Any, Any]
"""Quantity, value, and the median or mean of the others."""


def figures(found: tuple[Evidence, ...]) -> tuple[Figures, ...]:
    return tuple((one.quantity, round(there(one.value), 3), round(there(one.limit), 3)) for one in found)


def named(snapshot: Snapshot) -> dict[str, tuple[Figures, ...]]:
    found = {engine.name: figures(engine.deviates) for engine in snapshot.engines if engine.deviates}
    assert tuple(found) == group(snapshot).deviating
    return found


def apart(*engines: Engine, seconds: int = 260) -> dict[str, tuple[Figures, ...]]:
    """What is said once the window is full and that has held for three windows."""
    return named(after(*(seldom(each) for each in engines), seconds=seconds, step=10))


def seldom(each: Engine) -> Engine:
    """Polled each 10 s: as few polls as there are means of."""
    return lambda at_s: replace(each(at_s), interval_s=10.0)


def minutes(**others: dict[str, Any]) -> list[Minute]:
    """Two alike, and one for each name with what differs."""
    more = [replace(MINUTE, key=name, name=name, **facts) for name, facts in others.items()]
    return [MINUTE, replace(MINUTE, key="b", name="b"), *more]


def said(*each: Minute) -> dict[str, tuple[Figures, ...]]:
    """Of minutes that stay as they are."""
    deviations = Deviations()
    assert deviations.compare(0.0, each, HOLD_S) == {}
    return {key: figures(found) for key, found in deviations.compare(HOLD_S, each, HOLD_S).items()}


# Who is named.


def test_equal_replicas_do_not_stand_apart():
    assert apart(*(replica(name, 100.0 + at) for at, name in enumerate("abcd"))) == {}


def test_the_slowest_is_named_and_the_fastest_is_not():
    found = apart(replica("a"), replica("b", 110.0), replica("slow", 40.0), replica("fast", 400.0))
    assert found == {"slow": (("replica_gpu_decode", 40.0, 110.0),)}


def test_tokens_are_compared_per_gpu():
    assert apart(replica("a"), replica("b"), replica("c", 200.0, gpu_count=2, gauges={q.RUNNING: 8.0})) == {}
    assert set(apart(replica("a"), replica("b"), replica("c", 100.0, gpu_count=2, gauges={q.RUNNING: 8.0}))) == {"c"}


def test_less_output_is_no_fault_of_one_that_has_less_to_do():
    assert apart(replica("a"), replica("b"), replica("c", 60.0, gauges={q.RUNNING: 3.0})) == {}
    queued = said(*minutes(c={"decode": 500.0, "running": 5.0, "waiting": 3.0}))
    assert queued == {"c": (("replica_gpu_decode", 500.0, 1000.0),)}
    assert said(*minutes(c={"decode": 500.0, "running": 5.0, "waiting": 0.0})) == {}


@each_row(
    ("facts", "told"),
    [
        ({"gauges": {q.WAITING: 12.0}}, ("replica_queue", 12.0, 0.0)),
        ({"gauges": {q.WAITING: 3.0}}, None),
        ({"gauges": {q.KV_USAGE: 0.95}}, ("replica_kv", 0.95, 0.4)),
        ({"gauges": {q.KV_USAGE: 0.65}}, None),
        ({"gauges": {q.KV_USAGE: 0.05}}, None),
        ({"seen": {q.ITL: (100.0, 0.17)}}, ("replica_itl", 0.17, 0.1)),
        ({"seen": {q.ITL: (100.0, 0.11)}}, None),
        ({"seen": {q.ITL: (100.0, 0.002)}}, None),
        ({"seen": {q.TTFT: (2.0, 0.8)}}, ("replica_ttft", 0.8, 0.15)),
        ({"seen": {q.TTFT: (2.0, 0.2)}}, None),
        ({"seen": {q.TTFT: (0.25, 0.8)}}, None),
    ],
)
def test_what_is_worse_is_said_with_figures(facts: dict[str, Any], told: Figures | None):
    assert apart(replica("a"), replica("b"), replica("c", **facts)) == ({"c": (told,)} if told else {})


def test_few_requests_tell_nothing():
    assert (
        said(*(replace(one, running=2.0) for one in minutes(c={"decode": 100.0, "kv_usage": 0.9, "itl_s": 0.4}))) == {}
    )


def test_workers_of_prefill_and_of_decode_are_not_compared():
    roles = [*minutes(c={"role": "prefill", "decode": 0.0, "kv_usage": 0.9, "ttft_s": 3.0})]
    assert said(*roles) == {}
    assert set(said(*roles, replace(MINUTE, key="d", role="prefill", ttft_s=0.2))) == {"c"}


# Traffic.


def test_one_that_gets_less_is_told_so_first_and_measures_nobody():
    starved = {"requests": 5.0, "running": 0.4, "kv_usage": 0.01, "decode": 80.0, "itl_s": 0.01, "ttft_s": 0.05}
    assert said(*minutes(c=starved)) == {"c": (("replica_requests", 0.083, 1.0),)}
    assert said(MINUTE, replace(MINUTE, key="c", **starved)).keys() == {"c"}


@each_row(
    "facts",
    [
        {"requests": 25.0, "running": 3.0},
        {"requests": 0.0, "running": 8.0, "decode": 0.0},
        {"requests": 5.0, "running": 0.4, "waiting": 6.0},
        {"requests": 10.0, "running": 1.0, "gpus": 0.125},
    ],
    named=["a little less", "it hangs", "it queues", "an eighth of the GPUs"],
)
def test_who_has_enough_to_do_is_not_told_to_get_less(facts: dict[str, Any]):
    assert not any(one[0] in ("replica_requests", "replica_running") for one in said(*minutes(c=facts)).get("c", ()))


# How long.


def test_what_comes_and_goes_is_not_said():
    deviations = Deviations()
    for at in range(0, 2000, 2):
        worse = {"ttft_s": 0.9 if at % 200 < 150 else 0.2}
        assert deviations.compare(float(at), minutes(c=worse), HOLD_S) == {}


def test_what_was_said_stays_with_the_figures_of_now_until_it_is_long_over():
    deviations = Deviations()
    for at in range(0, 182, 2):
        deviations.compare(float(at), minutes(c={"ttft_s": 0.9}), HOLD_S)
    later = [deviations.compare(float(at), minutes(c={"ttft_s": 0.3}), HOLD_S) for at in range(182, 400, 2)]
    assert figures(later[0]["c"]) == figures(later[89]["c"]) == (("replica_ttft", 0.3, 0.2),)
    assert later[90] == later[-1] == {}
