"""Replicas of a model in the engines' table: a row of their sums above them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gpumon.readings.flat import flat_fields, replace_fields
from gpumon.readings.frame import EndpointState, EngineKind, Phase
from gpumon.readings.snapshot import Efficiency, Engine, Goodput, Hardware, Replicas, Snapshot
from gpumon.readings.verdict import Evidence

REPLICAS_PREFIX: Final = "replicas:"
"""The URL of a row of sums begins so; the model follows."""
_SUMMED_FIELDS: Final = tuple(
    name for name in Replicas.__struct_fields__ if name in flat_fields(Engine) and name != "model"
)
"""Fields that replicas have as an engine has them."""


def with_replica_rows(snapshot: Snapshot) -> list[Engine]:
    """The engines in their order; where one has replicas, they follow it, below the row of their sums."""
    if not snapshot.replicas:
        return list(snapshot.engines)
    replicas_of_engine = {name: replicas for replicas in snapshot.replicas for name in replicas.engines}
    by_name = {engine.name: engine for engine in snapshot.engines}
    rows: list[Engine] = []
    models_listed: set[str] = set()
    for engine in snapshot.engines:
        its_replicas = replicas_of_engine.get(engine.name)
        if its_replicas is None:
            rows.append(engine)
        elif its_replicas.model not in models_listed:
            models_listed.add(its_replicas.model)
            members = [by_name[name] for name in its_replicas.engines if name in by_name]
            rows += [as_engine(its_replicas, members), *members]
    return rows


def _gpus_of(engines: Sequence[Engine]) -> tuple[int, ...]:
    """Numbers of the GPUs of some engines."""
    return tuple(sorted({index for engine in engines for index in engine.hardware.gpus}))


def mapped_note(replicas: Replicas) -> str:
    """`of 2 of 3` where MFU and MBU are not those of all that answer, as the GPUs of the others are not known."""
    if 0 < replicas.mapped < replicas.answering:
        return f"of {replicas.mapped} of {replicas.answering}"
    return ""


def as_engine(replicas: Replicas, members: Sequence[Engine] = ()) -> Engine:
    """The sums of replicas as an engine, for a row of the engines' table.

    It is marked where one of the replicas gives no figures, and so are MFU and MBU where they are not those of all.
    `members`: the replicas; their GPUs are those of the row.
    """
    figures = {name: getattr(replicas, name) for name in _SUMMED_FIELDS}
    is_partial = bool(mapped_note(replicas))
    number_down = len(replicas.engines) - replicas.answering
    deviates: tuple[Evidence, ...] = (Evidence("replicas_down", float(number_down)),) if number_down else ()
    sums = Engine(
        name=replicas.title,
        kind=EngineKind.UNKNOWN,
        phase=Phase.INFERENCE,
        url=f"{REPLICAS_PREFIX}{replicas.model}",
        state=EndpointState.OK,
        age_s=0.0,
        model=replicas.model,
        deviates=deviates,
        hardware=Hardware(gpus=_gpus_of(members)),
        costs=replicas.costs,
        goodput=Goodput(
            ttft_goal_assumed=any(member.goodput.ttft_goal_assumed for member in members),
            itl_goal_assumed=any(member.goodput.itl_goal_assumed for member in members),
        ),
        # The mark of a share in doubt: `engine_table` shows another one for sums.
        efficiency=Efficiency(peak_unverified=is_partial, bandwidth_peak_unverified=is_partial),
    )
    return replace_fields(sums, figures)


def is_sums(engine: Engine) -> bool:
    """Whether a row has the sums of replicas."""
    return engine.url.startswith(REPLICAS_PREFIX)
