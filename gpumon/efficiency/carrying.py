"""Takes what is in a `Carry` out of tracks and puts it into others, which have the same windows."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping

from gpumon.efficiency.carry import ClaimCarry, EngineCarry, GpuCarry
from gpumon.efficiency.contradictions import Contradictions, Run
from gpumon.efficiency.deviations import Deviations
from gpumon.efficiency.engine_track import EngineTrack
from gpumon.efficiency.gpu_view import GpuTrack
from gpumon.efficiency.held import Held
from gpumon.efficiency.long_mean import MARK_S, Mark
from gpumon.efficiency.windows import TOTALS
from gpumon.readings.frame import EndpointState
from gpumon.readings.missing import number

NEXT_S = 80.0
"""A carry is of use for a minute: so far on, and a mark more, windows leave what is told one by one."""
_NEXT_MINUTES = 2

# The tracks' own parts are read and set here, and nowhere else outside of their classes: what is carried is no part of
# what they do, and stands in one place.


def engine_carry(key: str, track: EngineTrack, state: tuple[EndpointState, str] | None) -> EngineCarry:
    """What outlives the windows of an engine; `state` and since when."""
    mean = track._mean
    start_s = mean._marks[0].at_s if mean._marks else 0.0
    marks = [mark for mark in mean._marks if mark.at_s <= start_s + NEXT_S + MARK_S]
    newest = () if mean._newest is None else (mean._newest,)
    return EngineCarry(
        key,
        tuple(track.totals.get(name) for name in TOTALS),
        tuple((rank, tuple(counted.get(name) for name in TOTALS)) for rank, counted in track._counted.items()),
        tuple(track._started),
        track.last_s,
        track._good_wall_s,
        track.keep_s,
        track.several_servers,
        tuple((mark.at_s, mark.tokens, mark.seen_s) for mark in (*marks, *newest)),
        mean._longest_s,
        *(state or (None, "")),
    )


def set_engine(track: EngineTrack, carry: EngineCarry) -> None:
    """Let a track go on as the one that the carry was taken of; its windows stay."""
    track.totals = _named(carry.totals)
    track._counted = {rank: _named(counted) for rank, counted in carry.counted}
    track._started = deque(carry.started, maxlen=track._started.maxlen)
    track._added = None
    track.last_s, track._good_wall_s, track.keep_s = carry.last_s, carry.good_wall_s, carry.keep_s
    track.several_servers = carry.several_servers
    marks = [Mark(*mark) for mark in carry.marks]
    track._mean._marks, track._mean._newest = deque(marks[:-1]), marks[-1] if marks else None
    track._mean._longest_s = carry.longest_s


def _named(counts: Iterable[float | None]) -> dict[str, float]:
    return {name: count for name, count in zip(TOTALS, counts, strict=False) if count is not None}


def gpu_carry(uuid: str, track: GpuTrack) -> GpuCarry:
    """What outlives the windows of a GPU."""
    busy = [*track._busy]
    first, rest = busy[:_NEXT_MINUTES], busy[_NEXT_MINUTES:]
    if rest:
        first.append((rest[-1][0], sum(busy_s for _, busy_s, _ in rest), sum(seen_s for _, _, seen_s in rest)))
    throttled = {cause: seconds for cause, seconds in track.throttle_s.items() if seconds}
    return GpuCarry(uuid, number(track.energy_j), throttled, tuple(first), track.answered_s)


def set_gpu(track: GpuTrack, carry: GpuCarry) -> None:
    """Let a track go on as the one that the carry was taken of; its windows stay."""
    if carry.energy_j is not None:
        track.energy_j = carry.energy_j
    causes = dict.fromkeys((*track.throttle_s, *carry.throttle_s))
    track.throttle_s = {cause: carry.throttle_s.get(cause, 0.0) for cause in causes}
    track._busy = deque(carry.busy)
    track.answered_s = carry.answered_s


def claims_of(contradictions: Contradictions, deviations: Mapping[tuple[str, ...], Deviations]) -> Iterator[ClaimCarry]:
    """What is said, or about to be."""
    for key, said, since_s in _claims(contradictions._held):
        yield ClaimCarry((), key, 0, said, since_s)
    for model, kept in deviations.items():
        for (key, place), said, since_s in _claims(kept._held):
            yield ClaimCarry(model, key, place, said, since_s)


def _claims(held: Held) -> Iterator[tuple]:  # type: ignore[type-arg]
    for claim, said in held._said.items():
        if said or claim in held._since_s:
            yield claim, said, held._since_s.get(claim)


def set_claims(
    contradictions: Contradictions,
    deviations: dict[tuple[str, ...], Deviations],
    claims: Iterable[ClaimCarry],
    runs: Iterable[tuple[str, float, float]],
) -> None:
    """Let these say what was said, and nothing else."""
    contradictions._runs = {key: Run(least, most) for key, least, most in runs}
    contradictions._held = Held()
    for kept in deviations.values():
        kept._held = Held()
    for claim in claims:
        if claim.model:
            kept = deviations.setdefault(claim.model, Deviations())
            _say(kept._held, (claim.key, claim.place), claim)
        else:
            _say(contradictions._held, claim.key, claim)


def _say(held: Held, claim: object, carry: ClaimCarry) -> None:  # type: ignore[type-arg]
    held._said[claim] = carry.said
    if carry.since_s is not None:
        held._since_s[claim] = carry.since_s
