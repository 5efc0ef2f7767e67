"""Engines that serve one model: their sums, their latencies over all requests, and which of them stands apart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any, Final

from gpumon.efficiency.checks import Deviations, Member
from gpumon.efficiency.goodput import share_of_all
from gpumon.efficiency.merged import merge_all
from gpumon.efficiency.quantiles import mean_only, merge_common, no_quantiles, quantiles
from gpumon.efficiency.ratio import divide, plus, times
from gpumon.efficiency.service import FRONTENDS, model_key
from gpumon.figures.gpu import SHARES_OF_PEAKS
from gpumon.figures.latency import LATENCIES
from gpumon.figures.merge import Merge
from gpumon.figures.model import MODEL
from gpumon.readings.flat import getter
from gpumon.readings.frame import Phase
from gpumon.readings.missing import NOT_EXPOSED, Missing, Reading, Reason
from gpumon.readings.snapshot import Engine, EngineCosts, Quantiles, Replicas
from gpumon.readings.verdict import Evidence

_SHARES: Final = attrgetter(*SHARES_OF_PEAKS)
"""Figures of `Efficiency` that may change without a poll, with the GPUs that an engine runs on."""
_SUMMED: Final = tuple(
    row for row in MODEL.values() if row.merge in (Merge.SUM, Merge.MEAN) and not hasattr(EngineCosts, row.field)
)
"""Rows of sums and means, without those of the costs, which are known later."""
NO_COMMON: Final = Missing(Reason.NOT_SUPPORTED, "the replicas' buckets have too few bounds in common")
_SILENT: Final = Missing(Reason.UNREACHABLE)


class ReplicaGroups:
    """The groups of engines that serve one model, from frame to frame."""

    def __init__(self) -> None:
        self._deviations: dict[tuple[str, ...], Deviations] = {}
        """Key of a model -> deviations of its replicas."""
        self._last: dict[tuple[str, ...], tuple[object, Replicas]] = {}
        """Key of a model -> what its replicas were made of, and the replicas: to merge the histograms of three engines
        takes 60 us, and most ticks bring no new poll."""

    def group(
        self, members: Sequence[Member], now_s: float
    ) -> tuple[tuple[Replicas, ...], dict[str, tuple[Evidence, ...]]]:
        """Replicas of each model that two or more serve; and `EngineReading.key` -> in what a replica stands apart."""
        groups = _members_by_model(members)
        self._deviations = {model: self._deviations.get(model) or Deviations() for model in groups}
        deviations: dict[str, tuple[Evidence, ...]] = {}
        newest = {}
        for model, group in groups.items():
            own_deviations = self._deviations[model].find(group, now_s)
            deviations |= own_deviations
            inputs = (own_deviations, [_figures_key(member) for member in group])
            last = self._last.get(model)
            if last is not None and last[0] == inputs:
                newest[model] = last  # nothing has changed
            else:
                newest[model] = (inputs, replicas_of(group, own_deviations))
        self._last = newest
        return tuple(replicas for _, replicas in newest.values()), deviations


def _figures_key(member: Member) -> tuple[object, ...]:
    """Key of an engine's figures: equal while they are the same."""
    shares = _SHARES(member.engine.efficiency)
    return (member.reading.key, member.engine.name, member.answers, member.track.polls, *shares)


def _members_by_model(members: Sequence[Member]) -> dict[tuple[str, ...], list[Member]]:
    """Serving engines by key of their model, of models with two and more; frontends only where no worker is seen."""
    groups: dict[tuple[str, ...], list[Member]] = {}
    for member in members:
        model = model_key(member.reading.model)
        if member.reading.phase is Phase.INFERENCE and model:
            groups.setdefault(model, []).append(member)
    for model, group in groups.items():
        workers = [member for member in group if member.reading.kind not in FRONTENDS]
        groups[model] = workers or group
    return {model: group for model, group in groups.items() if len(group) > 1}


def replicas_of(group: Sequence[Member], deviations: Mapping[str, tuple[Evidence, ...]]) -> Replicas:
    """The sums and merged latencies of those that answer; MFU and MBU of those whose GPUs are known."""
    members = [member for member in group if member.answers]
    mapped = [member for member in members if not isinstance(member.engine.hardware.gpu_count, Missing)]
    latencies: dict[str, Any] = {latency.field: _latency(members, latency.quantity) for latency in LATENCIES}
    return Replicas(
        model=group[0].engine.model,
        engines=_names(group),
        answering=len(members),
        **_merged(members),
        **_quotients(mapped or members),
        **latencies,
        ttft_goal=share_of_all(_figures(members, "ttft_goal")),
        itl_goal=share_of_all(_figures(members, "itl_goal")),
        tpot_goal=share_of_all(_figures(members, "tpot_goal")),
        mapped=len(mapped),
        deviating=_names([member for member in group if member.reading.key in deviations]),
    )


def _merged(members: Sequence[Member]) -> dict[str, Any]:
    """Sums and means over the replicas, of the figures that their rows say so of."""
    if not members:
        return {row.field: _SILENT for row in _SUMMED}
    return {row.field: merge_all(row, _figures(members, row.field)) for row in _SUMMED}


def _quotients(members: Sequence[Member]) -> dict[str, Any]:
    """Figures that are the sum of one over the sum of another."""
    return {row.field: _share(members, *row.quotient_of) for row in MODEL.values() if row.merge is Merge.QUOTIENT}


def _names(members: Iterable[Member]) -> tuple[str, ...]:
    """Names of the engines, in their order."""
    return tuple(member.engine.name for member in members)


def _figures(members: Sequence[Member], path: str) -> list[Any]:
    """One figure of every engine, by its flat path."""
    figure = getter(Engine, path)
    return [figure(member.engine) for member in members]


def _sum(parts: Sequence[Reading]) -> Reading:
    """The sum over all that answer; missing where one lacks it, and where none answers."""
    if parts:
        return plus(*parts)
    return _SILENT


def _latency(members: Sequence[Member], quantity: str) -> Quantiles:
    """Quantiles over the requests of all that answer; missing where one has no such histogram, or no window yet."""
    windows = []
    for member in members:
        window = member.track.long.histogram(quantity)
        if window is None and member.track.has_histogram(quantity):
            return no_quantiles(member.track.why_no_rate_yet)
        if window is None:
            return no_quantiles(NOT_EXPOSED)
        windows.append(window)
    if not windows:
        return no_quantiles(_SILENT)
    merged = merge_common(windows)
    if merged is None:
        return mean_only(windows, NO_COMMON)
    return quantiles(merged)


def _share(members: Sequence[Member], work: str, peak: str) -> Reading:
    """Sum of the work of all / sum of their peaks, both by flat path; a GPU that several share counts once."""
    sharers = Counter[str]()
    for member in members:
        sharers.update(set(member.reading.gpus))
    peaks: list[Reading] = []
    for member, engine_peak in zip(members, _figures(members, peak), strict=True):
        gpus = set(member.reading.gpus)
        own_share = 1.0
        if gpus:
            own_share = sum(1 / sharers[uuid] for uuid in gpus) / len(gpus)
        peaks.append(times(engine_peak, own_share))
    return divide(_sum(_figures(members, work)), _sum(peaks), Missing(Reason.UNKNOWN_GPU))
