"""Snapshots in which chosen verdicts stand, one after the other."""

from __future__ import annotations

from gpumon.readings.format import rfc3339
from gpumon.readings.snapshot import RaisedAlert, Snapshot
from gpumon.readings.verdict import Action, Evidence, Kind, Level, Limit, Verdict
from tests.records import replace
from tests.tui import scenes

START_S = scenes.WALL_S
SCENE = scenes.snapshot()
ENGINE = SCENE.engines[0]
KV_FULL = Verdict(
    ENGINE.name,
    Limit.KV_CACHE_FULL,
    "kv_waiting",
    rfc3339(START_S - 30.0),
    Kind.ENGINE,
    ENGINE.key,
    level=Level.WARN,
    evidence=(Evidence("kv_usage", 0.97, 0.9, "vllm:kv_cache_usage_perc"),),
    actions=(Action("more_replicas"),),
)
THROTTLED = Verdict(
    "gpu 3", Limit.THROTTLED, "thermal", rfc3339(START_S), Kind.GPU, SCENE.gpus[3].reading.uuid, level=Level.CRITICAL
)
NOTE = replace(THROTTLED, code=Limit.LOW_EFFICIENCY, level=Level.NOTE, cause="")
ALERT = RaisedAlert("hot rack", "gpu 2", "temperature_c 91 > 90", rfc3339(START_S), 91.0)


def moment(after_s: float, *verdicts: Verdict, interval_s: float = 1.0, **others: object) -> Snapshot:
    """The server so many seconds after the start, with these verdicts and no others."""
    kept: Snapshot = replace(
        SCENE, wall_s=START_S + after_s, interval_s=interval_s, verdicts=verdicts, alerts=(), **others
    )
    return kept


def storm(size: int) -> tuple[Verdict, ...]:
    """Warnings on so many GPUs, each for another reason."""
    return tuple(
        replace(THROTTLED, scope=f"gpu {index}", key=f"GPU-{index}", cause=f"reason {index}") for index in range(size)
    )


def alike(size: int) -> tuple[Verdict, ...]:
    """The same warning on so many GPUs."""
    return tuple(replace(THROTTLED, scope=f"gpu {index}", key=f"GPU-{index}") for index in range(size))
