"""Engines that serve one model: their sums, their latencies over all requests, and which of them stands apart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from gpumon.efficiency.deviations import Deviations
from gpumon.efficiency.deviations import Member as Member
from gpumon.efficiency.engine import plus
from gpumon.efficiency.engine_track import LATENCIES
from gpumon.efficiency.frontends import FRONTENDS, model_key
from gpumon.efficiency.quantiles import mean_only, merge_common, no_quantiles, quantiles
from gpumon.readings.engine_snapshot import value_of
from gpumon.readings.frame import Phase
from gpumon.readings.missing import NOT_EXPOSED, Missing, Reading, Reason
from gpumon.readings.snapshot import Quantiles, Replicas

NO_COMMON: Final = Missing(Reason.NOT_SUPPORTED, "the replicas' buckets have too few bounds in common")
SUMS: Final = ("running", "waiting", "prefill_tokens_per_s", "decode_tokens_per_s", "requests_per_s")

MANY: Final = 16
"""Members from which on a group is worked out once in the shortest interval of their polls: each tick has new ones."""
COMPARED_S: Final = 15.0
"""How often so many are compared with each other: means of a minute, that have to hold for three, change little."""


class _Group(NamedTuple):
    """The replicas of one model as they were last shown."""

    who: object
    polls: object
    slot: float
    compared: float
    """Its slot of `COMPARED_S`."""
    replicas: Replicas
    apart: dict[str, tuple[str, ...]]


class ReplicaGroups:
    """The groups of a frame; what no new poll has changed is not worked out again."""

    def __init__(self) -> None:
        self._last: dict[tuple[str, ...], _Group] = {}
        self._deviations: dict[tuple[str, ...], Deviations] = {}

    def of(self, members: Sequence[Member], now_s: float) -> tuple[tuple[Replicas, ...], dict[str, tuple[str, ...]]]:
        """One for each model that two or more serve; and by `EngineReading.key` in what one stands apart.

        A group is worked out anew at once where another set of engines answers, else at the next new poll; that of
        many engines once in each interval of their polls, and held against each other once in `COMPARED_S`.
        """
        found: dict[tuple[str, ...], _Group] = {}
        for model, group in grouped(members).items():
            last = self._last.get(model)
            who = tuple((member.reading.key, member.engine.name, member.answers) for member in group)
            polls = tuple(
                (member.track.polls, member.engine.efficiency.mfu_ratio, member.engine.efficiency.mbu_ratio)
                for member in group
            )
            # On a grid of its own, not from the last time on: one who begins later finds the same moments.
            every_s = min(member.reading.interval_s for member in group)
            slot, compared = (now_s // every_s, now_s // COMPARED_S) if len(group) > MANY else (now_s, now_s)
            if last is None or last.who != who or (last.polls != polls and last.slot != slot):
                if last is not None and last.who == who and last.compared == compared:
                    apart = last.apart
                else:
                    apart = self._deviations.setdefault(model, Deviations()).of(group)
                last = _Group(who, polls, slot, compared, replicas_of(group, apart), apart)
            found[model] = last
        self._last = found
        self._deviations = {model: kept for model, kept in self._deviations.items() if model in found}
        apart = {key: texts for group in found.values() for key, texts in group.apart.items()}
        return tuple(group.replicas for group in found.values()), apart


def grouped(members: Sequence[Member]) -> dict[tuple[str, ...], list[Member]]:
    """Serving engines by model, however its name is written; frontends only where no worker is seen."""
    groups: dict[tuple[str, ...], list[Member]] = {}
    for member in members:
        if member.reading.phase is Phase.INFERENCE and (model := model_key(member.reading.model)):
            groups.setdefault(model, []).append(member)
    for model, group in groups.items():
        workers = [member for member in group if member.reading.kind not in FRONTENDS]
        groups[model] = workers or group
    return {model: group for model, group in groups.items() if len(group) > 1}


def replicas_of(group: Sequence[Member], apart: Mapping[str, tuple[str, ...]]) -> Replicas:
    """The sums and merged latencies of those that answer; MFU and MBU of those whose GPUs are known."""
    members = [member for member in group if member.answers]
    engines = [member.engine for member in members]
    mapped = [member for member in members if not isinstance(member.engine.hardware.gpu_count, Missing)]
    silent = Missing(Reason.UNREACHABLE)
    sums: dict[str, Any] = {
        name: plus(*(value_of(engine, name) for engine in engines)) if engines else silent for name in SUMS
    }
    usage = plus(*(engine.load.kv_usage_ratio for engine in engines)) if engines else silent
    latencies: dict[str, Any] = {field: _latency(members, quantity) for field, quantity in LATENCIES.items()}
    return Replicas(
        model=group[0].engine.model,
        engines=tuple(member.engine.name for member in group),
        answering=len(members),
        kv_usage_ratio=usage if isinstance(usage, Missing) else usage / len(engines),
        **sums,
        **latencies,
        mfu_ratio=_share(mapped or members, "flops_per_s", "peak_flops_per_s") if members else silent,
        mbu_ratio=_share(mapped or members, "bytes_per_s", "peak_bandwidth_bytes_per_s") if members else silent,
        mapped=len(mapped),
        deviating=tuple(member.engine.name for member in group if member.reading.key in apart),
    )


def _latency(members: Sequence[Member], quantity: str) -> Quantiles:
    """Over the requests of all that answer: missing where one of them has no such histogram, or no window yet."""
    windows = []
    for member in members:
        window = member.track.histogram(quantity, member.track.quantile_s)
        if window is None:
            return no_quantiles(member.track.not_yet if member.track.has_histogram(quantity) else NOT_EXPOSED)
        windows.append(window)
    if not windows:
        return no_quantiles(Missing(Reason.UNREACHABLE))
    merged = merge_common(windows)
    return mean_only(windows, NO_COMMON) if merged is None else quantiles(merged)


def _share(members: Sequence[Member], part: str, whole: str) -> Reading:
    """Sum of the parts / sum of the peaks; a GPU that several of them share counts once."""
    sharers = Counter(uuid for member in members for uuid in set(member.reading.gpus))
    peaks: list[Reading] = []
    for member in members:
        peak, gpus = value_of(member.engine, whole), set(member.reading.gpus)
        alone = sum(1 / sharers[uuid] for uuid in gpus) / len(gpus) if gpus else 1.0
        peaks.append(peak if isinstance(peak, Missing) else peak * alone)
    done, most = plus(*(value_of(member.engine, part) for member in members)), plus(*peaks)
    if isinstance(done, Missing) or isinstance(most, Missing):
        return done if isinstance(done, Missing) else most
    return done / most if most > 0.0 else Missing(Reason.UNKNOWN_GPU)
