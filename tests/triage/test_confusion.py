"""Every scenario of the demo has its verdict and no other, whatever is missing; docs/triage.md shows it."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import chain

import pytest

from gpumon.readings.frame import Frame, HostReading
from gpumon.readings.missing import NOT_SUPPORTED
from gpumon.readings.snapshot import EventKind, Limit
from gpumon.sources.simulator.scenario import Scenario
from gpumon.sources.simulator.scenarios import SCENARIOS, scenario
from tests.records import replace
from tests.triage.confusion import (
    BEGIN,
    DOCS,
    EASY,
    END,
    Timed,
    judged,
    marks,
    recorded,
    watched,
    written,
    wrong,
)

NEIGHBOURS = (
    # Two scenarios that differ in one thing, and what only the first of them is.
    (Limit.KV_CACHE, "kv-cache-full", "queue-at-the-limit"),
    (Limit.QUEUE, "queue-at-the-limit", "kv-cache-full"),
    (Limit.QUEUE, "queue-at-the-limit", "burst"),
    (Limit.QUEUE, "queue-at-the-limit", "prefill-bound"),
    (Limit.KV_CACHE, "kv-cache-full", "decode-bound-long-context"),
    (Limit.COMPUTE, "prefill-bound", "decode-bound"),
    (Limit.BANDWIDTH, "decode-bound", "healthy-chat"),
    (Limit.COMMUNICATION, "tp-over-pcie", "tp-over-nvlink"),
    (Limit.BANDWIDTH, "tp-over-nvlink", "tp-over-pcie"),
    (Limit.COMMUNICATION, "locked-clock", "tp-over-nvlink"),
    (Limit.STALLED, "engine-hang", "long-prefill"),
    (Limit.STALLED, "engine-hang-idle", "quiet-night"),
    (Limit.STALLED, "engine-mute", "engine-restart"),
    (Limit.INPUT_STARVED, "cpu-bound-server", "batch-client"),
    (Limit.INPUT_STARVED, "data-loader", "training"),
    (Limit.INPUT_STARVED, "data-loader-cpu", "busy-host"),
    (Limit.INPUT_STARVED, "data-loader", "training-waits"),
    (Limit.UNDER_USED, "training-low-mfu", "training"),
    (Limit.UNDER_USED, "replicas-half-asleep", "healthy-chat"),
    (Limit.MEMORY_IDLE, "notebook-holds-memory", "notebook-at-work"),
    (Limit.MEMORY_IDLE, "notebook-holds-memory", "bare-context"),
    (Limit.MEMORY_IDLE, "notebook-holds-memory", "vllm-reserves-memory"),
    (Limit.MEMORY_FULL, "notebook-nearly-full", "notebook-at-work"),
    (Limit.MEMORY_FULL, "notebook-nearly-full", "vllm-reserves-memory"),
    (Limit.THROTTLED, "thermal", "power-cap"),
    (Limit.THROTTLED, "one-slow-gpu", "locked-clock"),
    (Limit.HARDWARE, "ecc-uncorrectable", "ecc-corrected"),
)


Change = Callable[[Frame], Frame]
GPU_FIELDS = {
    "tensor": ("tensor_active_ratio",),
    "sm": ("sm_active_ratio", "sm_occupancy_ratio"),
    "dram": ("dram_active_ratio",),
    "nvlink": ("nvlink_tx_bytes_per_s", "nvlink_rx_bytes_per_s"),
    "pcie": ("pcie_tx_bytes_per_s", "pcie_rx_bytes_per_s"),
    "power": ("power_w", "power_limit_w"),
    "memory busy": ("memory_busy_ratio",),
}
"""Signals of GPUs that a generation, a driver or a container does not give."""
SIGNALS = (*GPU_FIELDS, "host", "model")


def without(signals: frozenset[str]) -> Change:
    """Takes signals from a frame, as hardware or a container that lacks them would."""
    fields = {field: NOT_SUPPORTED for signal in signals & GPU_FIELDS.keys() for field in GPU_FIELDS[signal]}

    def change(frame: Frame) -> Frame:
        gpus = tuple(replace(gpu, **fields) for gpu in frame.gpus)
        engines = frame.engines
        if "model" in signals:
            info = {"model_missing": "no such model"}
            engines = tuple(replace(each, llm=None, info={**each.info, **info}) for each in engines)
        host = HostReading(name=frame.host.name) if "host" in signals else frame.host
        return replace(frame, gpus=gpus, engines=engines, host=host)

    return change


def mixes(name: str) -> list[frozenset[str]]:
    """All that the GPUs measure of their activity, and a mix drawn by the scenario's name."""
    draw = random.Random(name)
    return [frozenset({"tensor", "sm", "dram"}), frozenset(signal for signal in SIGNALS if draw.random() < 0.4)]


def rows() -> dict[str, list[str]]:
    """The table on the page: cells of the limits by scenario."""
    table = DOCS.read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0]
    lines = [line for line in table.splitlines() if line.startswith("| `")]
    return {line.split("`")[1]: [cell.strip() for cell in line.strip("|").split("|")][2:] for line in lines}


@pytest.fixture(scope="module", params=[each.name for each in SCENARIOS])
def played(request: pytest.FixtureRequest) -> tuple[Scenario, list[Timed]]:
    """A scenario and all its frames, played once for all that is asked of them."""
    return scenario(request.param), recorded(scenario(request.param))


def test_it_has_its_verdict_and_no_other_and_the_page_says_so(played: tuple[Scenario, list[Timed]]) -> None:
    """After a change that is right, `make triage` writes the page anew."""
    of, frames = played
    seen = judged(of, frames).seen
    assert wrong(of, seen) == []
    assert rows()[of.name] == marks(of, seen)


def test_a_mix_of_missing_signals_is_never_another_verdict(played: tuple[Scenario, list[Timed]]) -> None:
    """They cost a verdict its confidence, or make it `cannot tell`."""
    of, frames = played
    meant = {of.expected, Limit.CANNOT_TELL}
    around = {*EASY, *meant, *of.elsewhere}
    for signals in mixes(of.name):
        for each in judged(of, frames, without(signals)).seen:
            allowed = meant if each.scope == of.scope else around
            assert each.limit in allowed, (sorted(signals), each)


@pytest.mark.parametrize(("limit", "first", "second"), NEIGHBOURS, ids=[f"{a}-{b}" for _, a, b in NEIGHBOURS])
def test_neighbours_are_told_apart(limit: Limit, first: str, second: str) -> None:
    """The test above holds both to this."""
    assert scenario(first).expected is limit
    assert scenario(second).expected is not limit


def test_every_limit_has_a_scenario_and_a_neighbour() -> None:
    assert {each.expected for each in SCENARIOS} == set(Limit)
    told = set(chain.from_iterable((first, second) for _, first, second in NEIGHBOURS))
    assert {limit for limit, _, _ in NEIGHBOURS} == set(Limit) - {Limit.HEALTHY, Limit.CANNOT_TELL}
    assert told <= {each.name for each in SCENARIOS}


def test_the_page_lists_every_scenario_and_no_other() -> None:
    assert set(rows()) == {each.name for each in SCENARIOS}


def test_a_page_without_marks_is_refused() -> None:
    with pytest.raises(ValueError, match="lacks the lines"):
        written("# Triage\n", "| a |\n")


def test_an_application_fault_is_not_to_be_drained() -> None:
    last = watched(scenario("xid-application")).last
    (said,) = [verdict for verdict in last.verdicts if verdict.limit is Limit.HARDWARE]
    assert "Xid 13" in said.text
    assert "no hardware action" in said.action
    broken = watched(scenario("ecc-uncorrectable")).last
    (worse,) = [verdict for verdict in broken.verdicts if verdict.limit is Limit.HARDWARE]
    assert "drain" in worse.action


def test_what_happens_is_told_as_events() -> None:
    kinds = {event.kind for event in watched(scenario("engine-restart")).events}
    assert {EventKind.ENGINE, EventKind.RESTART} <= kinds
    lost = watched(scenario("gpu-off-the-bus")).events
    assert {EventKind.XID, EventKind.GPU} <= {event.kind for event in lost}
    assert "gpu 2" in {event.scope for event in lost}
