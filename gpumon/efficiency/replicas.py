"""Engines that serve one model: their sums, their latencies over all requests, and which of them stands apart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

from gpumon.efficiency.engine import plus
from gpumon.efficiency.engine_track import LATENCIES
from gpumon.efficiency.quantiles import mean_only, merge_common, no_quantiles, quantiles
from gpumon.efficiency.service import FRONTENDS
from gpumon.efficiency.windows import RATE_S, Track
from gpumon.readings.frame import EngineReading, Phase
from gpumon.readings.missing import NOT_EXPOSED, Missing, Reading, Reason, number
from gpumon.readings.quantities import KV_USAGE, WAITING
from gpumon.readings.snapshot import Engine, Quantiles, Replicas
from gpumon.specs.llm_names import llm_name

FULL: Final = 0.9
"""Share of the 10 s that a replica's window has to have before it is compared with others."""
NO_COMMON: Final = Missing(Reason.NOT_SUPPORTED, "the replicas' buckets have too few bounds in common")
SUMS: Final = ("running", "waiting", "prefill_tokens_per_s", "decode_tokens_per_s", "requests_per_s")


class Member(NamedTuple):
    """One engine of a frame."""

    reading: EngineReading
    engine: Engine
    track: Track
    answers: bool
    """It gave figures in this frame."""


class _Row(NamedTuple):
    """What replicas are compared by: apart is a factor and a difference of at least so much, both."""

    words: str
    unit: str
    of: Callable[[Member], float | None]
    factor: float
    least: float
    text: str
    """Format of a value."""


def _decode(member: Member) -> float | None:
    rate, gpus = number(member.engine.decode_tokens_per_s), number(member.engine.gpu_count)
    return None if rate is None else rate / (gpus or 1.0)


def _waiting(member: Member) -> float | None:
    return _mean(member.track.samples(WAITING, member.track.rate_s))


def _kv(member: Member) -> float | None:
    used = _mean(member.track.samples(KV_USAGE, member.track.rate_s))
    return None if used is None else used / max(1, len(member.track.points[-1].ranks))


def _itl(member: Member) -> float | None:
    return number(member.engine.itl_mean_s)


def _ttft(member: Member) -> float | None:
    return number(member.engine.ttft_s.mean)


ROWS: Final = (
    # Equal replicas behind one balancer stay within some ten per cent of each other over 10 s.
    _Row("decode", " tok/s per GPU", _decode, 1 / 0.7, 20.0, ",.0f"),
    # A queue of three is one burst of arrivals.
    _Row("queue", " waiting", _waiting, 3.0, 4.0, ",.1f"),
    # As between ranks: requests of one mix fill the caches of equal replicas alike.
    _Row("KV cache", "", _kv, 1.0, 0.3, ".0%"),
    # The ITL grows with the batch; at equal shares of the load half as much again is a slower replica.
    _Row("ITL", " s", _itl, 1.5, 0.005, ".3f"),
    # The TTFT is mostly queue and prompt: it varies more, and 100 ms more is nothing that a user notes.
    _Row("TTFT", " s", _ttft, 2.0, 0.1, ".2f"),
)
"""What is compared, each with the reason for its thresholds."""


class ReplicaGroups:
    """The groups of a frame; what no new poll has changed is not worked out again."""

    def __init__(self) -> None:
        self._last: dict[tuple[str, ...], tuple[object, Replicas, dict[str, tuple[str, ...]]]] = {}

    def of(self, members: Sequence[Member]) -> tuple[tuple[Replicas, ...], dict[str, tuple[str, ...]]]:
        """One for each model that two or more serve; and by `EngineReading.key` in what one stands apart."""
        found: dict[tuple[str, ...], tuple[object, Replicas, dict[str, tuple[str, ...]]]] = {}
        for model, group in grouped(members).items():
            signature = tuple(_signature(member) for member in group)
            last = self._last.get(model)
            if last is None or last[0] != signature:
                apart = deviations(group)
                last = (signature, replicas_of(group, apart), apart)
            found[model] = last
        self._last = found
        apart = {key: texts for _, _, each in found.values() for key, texts in each.items()}
        return tuple(group for _, group, _ in found.values()), apart


def grouped(members: Sequence[Member]) -> dict[tuple[str, ...], list[Member]]:
    """Serving engines by model, however its name is written; frontends only where no worker is seen."""
    groups: dict[tuple[str, ...], list[Member]] = {}
    for member in members:
        if member.reading.phase is Phase.INFERENCE and (model := _model_key(member.reading.model)):
            groups.setdefault(model, []).append(member)
    for model, group in groups.items():
        workers = [member for member in group if member.reading.kind not in FRONTENDS]
        groups[model] = workers or group
    return {model: group for model, group in groups.items() if len(group) > 1}


def replicas_of(group: Sequence[Member], apart: Mapping[str, tuple[str, ...]]) -> Replicas:
    """The sums and merged latencies of those that answer."""
    members = [member for member in group if member.answers]
    engines = [member.engine for member in members]
    silent = Missing(Reason.UNREACHABLE)
    sums: dict[str, Any] = {
        name: plus(*(getattr(engine, name) for engine in engines)) if engines else silent for name in SUMS
    }
    usage = plus(*(engine.kv_usage_ratio for engine in engines)) if engines else silent
    latencies: dict[str, Any] = {field: _latency(members, quantity) for field, quantity in LATENCIES.items()}
    return Replicas(
        model=group[0].engine.model,
        engines=tuple(member.engine.name for member in group),
        answering=len(members),
        kv_usage_ratio=usage if isinstance(usage, Missing) else usage / len(engines),
        **sums,
        **latencies,
        mfu_ratio=_share(members, "flops_per_s", "peak_flops_per_s") if members else silent,
        mbu_ratio=_share(members, "bytes_per_s", "peak_bandwidth_bytes_per_s") if members else silent,
        deviating=tuple(member.engine.name for member in group if member.reading.key in apart),
    )


def deviations(group: Sequence[Member]) -> dict[str, tuple[str, ...]]:
    """Key -> in what a replica stands apart from the median of the others, in words with figures.

    Of two nobody can say which is the odd one: both are told that they differ.
    """
    members = [member for member in group if member.answers and _settled(member.track)]
    found: dict[str, tuple[str, ...]] = {}
    for row in ROWS:
        known = sorted(
            ((value, at) for at, member in enumerate(members) if (value := row.of(member)) is not None),
        )
        for place in range(len(known)):
            if text := _apart(row, known, place, members):
                key = members[known[place][1]].reading.key
                found[key] = (*found.get(key, ()), text)
    return found


def _apart(row: _Row, known: Sequence[tuple[float, int]], place: int, members: Sequence[Member]) -> str:
    """How the one at a place of the sorted values stands apart from the others; empty where it does not.

    Of an even number of others both middle ones count: one odd replica must not make its neighbours odd.
    """
    others, value = len(known) - 1, known[place][0]
    if others < 1:
        return ""
    low, high = (known[at + (at >= place)] for at in ((others - 1) // 2, others // 2))
    if not (_is_apart(row, value, low[0]) and _is_apart(row, value, high[0])):
        return ""
    own = f"{value:{row.text}}{row.unit}"
    if others == 1:
        return f"{row.words} differs: {own}, {members[low[1]].engine.name} has {low[0]:{row.text}}"
    return f"{row.words} {own}, median of the {others} others {(low[0] + high[0]) / 2:{row.text}}"


def _is_apart(row: _Row, one: float, other: float) -> bool:
    low, high = sorted((one, other))
    return high - low >= row.least and high >= row.factor * low


def _settled(track: Track) -> bool:
    return track.window(track.rate_s) is not None and track.length_s(track.rate_s) >= FULL * RATE_S


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
        peak, gpus = getattr(member.engine, whole), set(member.reading.gpus)
        alone = sum(1 / sharers[uuid] for uuid in gpus) / len(gpus) if gpus else 1.0
        peaks.append(peak if isinstance(peak, Missing) else peak * alone)
    done, most = plus(*(getattr(member.engine, part) for member in members)), plus(*peaks)
    if isinstance(done, Missing) or isinstance(most, Missing):
        return done if isinstance(done, Missing) else most
    return done / most if most > 0.0 else Missing(Reason.UNKNOWN_GPU)


def _signature(member: Member) -> tuple[object, ...]:
    engine = member.engine
    return member.reading.key, engine.name, member.answers, member.track.polls, engine.mfu_ratio, engine.mbu_ratio


@lru_cache(maxsize=512)
def _model_key(model: str) -> tuple[str, ...]:
    return llm_name(model).key or ((model,) if model else ())


def _mean(samples: Sequence[float]) -> float | None:
    return sum(samples) / len(samples) if samples else None
