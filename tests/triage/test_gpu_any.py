"""Whatever GPUs, engines and the host report: nothing raises, every verdict has evidence, a level and an action."""

from __future__ import annotations

import math
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gpumon.readings.frame import EndpointState, EngineKind, GpuProcess, GpuState, Phase, XidEvent
from gpumon.readings.missing import Missing, Reason
from gpumon.readings.snapshot import Kind, Level, Limit
from gpumon.triage.render import actions_text, event_text, verdict_text
from gpumon.triage.samples import CLOCK_REASONS
from gpumon.triage.xid import XIDS
from tests.triage.stage import START_S, Of, Stage, engine, gpu

MISSING = st.sampled_from(list(Reason)).map(Missing)
ODD = st.sampled_from([0.0, -1.0, 1e300, math.inf, -math.inf, math.nan])
SHARE = st.one_of(st.floats(0.0, 1.0), MISSING, ODD)
BYTES = st.one_of(st.floats(0.0, 1e12), MISSING, ODD)
TEXT = st.text(max_size=12)
GPU_FIELDS: dict[str, st.SearchStrategy[Any]] = {
    **dict.fromkeys(("busy_ratio", "sm_active_ratio", "tensor_active_ratio"), SHARE),
    **dict.fromkeys(("vram_used_bytes", "vram_total_bytes", "sm_clock_hz", "sm_clock_max_hz", "power_w"), BYTES),
    **dict.fromkeys(("ecc_uncorrected", "remap_pending", "remap_failed", "power_limit_w", "temperature_c"), BYTES),
    "throttle": st.lists(st.sampled_from(CLOCK_REASONS), max_size=3, unique=True).map(tuple),
    "state": st.sampled_from(GpuState),
    "state_text": TEXT,
    "mig": st.booleans(),
    "mig_profile": st.sampled_from(["", "3g.40gb"]),
    "vram_shared": st.booleans(),
    "host": st.sampled_from(["", "", "node7"]),
    "xid": st.lists(
        st.builds(XidEvent, st.one_of(st.sampled_from(list(XIDS)), st.integers(0, 999)), st.floats(0.0, 2e9)),
        max_size=3,
    ).map(tuple),
    "processes": st.lists(st.builds(GpuProcess, st.integers(0, 9), TEXT, TEXT, BYTES, command=TEXT), max_size=3).map(
        tuple
    ),
}
HOST_FIELDS: dict[str, st.SearchStrategy[Any]] = {
    **dict.fromkeys(("cpu_ratio", "busiest_core_ratio", "iowait_ratio", "io_pressure_ratio"), SHARE),
    **dict.fromkeys(("cpu_pressure_ratio", "memory_pressure_ratio", "disk_busy_ratio"), SHARE),
    **dict.fromkeys(("network_rx_bytes_per_s", "memory_used_bytes", "memory_total_bytes"), BYTES),
}
ENGINE_FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "kind": st.sampled_from(EngineKind),
    "phase": st.sampled_from(Phase),
    "state": st.sampled_from(EndpointState),
    "model": TEXT,
    "started_s": st.floats(0.0, 2e9),
    "counters": st.one_of(st.none(), st.dictionaries(st.sampled_from("ab"), st.floats(0.0, 1e9))),
    "gpus": st.sampled_from([(), (0,), (0, 1), (5,)]),
    **dict.fromkeys(("running", "waiting", "decode_tokens_per_s", "trained_tokens_per_s", "samples_per_s"), BYTES),
}


def strategy(fields: dict[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=fields)


@given(
    st.lists(
        st.tuples(strategy(GPU_FIELDS), strategy(GPU_FIELDS), strategy(ENGINE_FIELDS), strategy(HOST_FIELDS)),
        min_size=1,
        max_size=4,
    ),
    st.integers(1, 40),
)
def test_nothing_that_is_reported_breaks_triage(
    scenes: list[tuple[dict[str, Any], dict[str, Any], dict[str, Any], dict[str, Any]]], length: int
) -> None:
    stage = Stage({"": 2.0}, hold_s=2.0, gpu_idle_s=20.0)
    for first, second, served, host in scenes:
        things: tuple[Of, ...] = (gpu(0, **first), gpu(1, **second), engine(**served))
        for _ in range(length):
            snapshot = stage.tick(*things, seconds=3.0, **host)
            for verdict in snapshot.verdicts:
                if verdict.kind is Kind.ENGINE:
                    continue
                assert verdict_text(verdict)
                assert verdict.evidence
                assert actions_text(verdict) or verdict.level in (Level.OK, Level.NOTE) or verdict.code is Limit.UNKNOWN
                assert "{" not in actions_text(verdict)
                assert (verdict.code is Limit.UNKNOWN) == bool(verdict.unknown)
            at = [(verdict.key, verdict.family) for verdict in snapshot.verdicts]
            assert len(at) == len(set(at)), "one verdict of a family"
            assert all(event_text(event).isprintable() and event.scope.isprintable() for event in snapshot.events)
            assert all(START_S <= event.wall_s <= snapshot.wall_s for event in snapshot.events)
