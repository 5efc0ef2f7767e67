"""Signals that are missing cost a verdict its confidence, or make it `cannot tell`; never do they make it another."""

from __future__ import annotations

import random
from collections.abc import Callable

import msgspec
import pytest

from gpumon.readings.frame import Frame, HostReading
from gpumon.readings.missing import NOT_SUPPORTED
from gpumon.readings.snapshot import Limit
from gpumon.sources.simulator.scenarios import SCENARIOS, scenario
from tests.triage.confusion import EASY, judged, recorded

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
        gpus = tuple(msgspec.structs.replace(gpu, **fields) for gpu in frame.gpus)
        engines = frame.engines
        if "model" in signals:
            info = {"model_missing": "no such model"}
            engines = tuple(msgspec.structs.replace(each, llm=None, info={**each.info, **info}) for each in engines)
        host = HostReading(name=frame.host.name) if "host" in signals else frame.host
        return msgspec.structs.replace(frame, gpus=gpus, engines=engines, host=host)

    return change


def mixes(name: str) -> list[frozenset[str]]:
    """All that the GPUs measure of their activity, and a mix drawn by the scenario's name."""
    draw = random.Random(name)
    return [frozenset({"tensor", "sm", "dram"}), frozenset(signal for signal in SIGNALS if draw.random() < 0.4)]


@pytest.mark.parametrize("name", [each.name for each in SCENARIOS])
def test_a_mix_of_missing_signals_is_never_another_verdict(name: str) -> None:
    played = scenario(name)
    frames = recorded(played)
    meant = {played.expected, Limit.CANNOT_TELL}
    around = {*EASY, *meant, *played.elsewhere}
    for signals in mixes(name):
        for each in judged(played, frames, without(signals)).seen:
            allowed = meant if each.scope == played.scope else around
            assert each.limit in allowed, (sorted(signals), each)
