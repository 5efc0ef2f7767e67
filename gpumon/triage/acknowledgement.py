"""Acknowledgements of verdicts: what each one covers now, and when it is over. Knows no clock and does no I/O."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from gpumon.readings.format import rfc3339
from gpumon.readings.snapshot import Snapshot
from gpumon.readings.verdict import URGENCY, Acknowledged, Level, Limit, Verdict
from gpumon.triage.marks import ABSENT_S, keys_of

USUAL_HOURS: Final = 8.0
"""Hours for which a verdict is acknowledged where nobody says for how long: a shift."""
MAINTENANCE: Final = "maintenance"
"""Id in place of a verdict's: the whole host, or all hosts with a label."""
MOST_HOURS: Final = 24.0 * 31
"""Longest time of an acknowledgement, in hours: what is left alone for longer is no acknowledgement but a decision."""
SETTLE_S: Final = 10.0
"""Seconds for which another cause must hold to break an acknowledgement, as for the event of it: causes of one trouble
take turns."""
_GAP_INTERVALS: Final = 3.0
"""Intervals between two snapshots above which the rest was not watched: the clock was set, or the host slept."""


class Acknowledgement(msgspec.Struct, frozen=True):
    """Somebody knows of a verdict. Written as JSON."""

    id: str
    """`Verdict.id`."""
    scope: str
    """Shown name of the thing."""
    code: Limit
    cause: str
    level: Level
    """The verdict's, when it was acknowledged: above it the acknowledgement breaks."""
    worst: Level
    """The most urgent of the verdict and its consequences then: consequences up to this level are covered."""
    who: str
    reason: str
    since_s: float
    """Unix time."""
    until_s: float
    """Unix time."""
    host: str = ""
    """Name of the host of a fleet that it is about; empty: this one."""

    @property
    def listed_id(self) -> str:
        """Its verdict's id, on a host of a fleet behind the host's name (`gpu07/host:limit`): each may have that id."""
        return f"{self.host}/{self.id}" if self.host else self.id

    @property
    def shown(self) -> Acknowledged:
        """The part of it that a verdict carries."""
        return Acknowledged(self.who, self.reason, until=rfc3339(self.until_s), since=rfc3339(self.since_s))


def acknowledge(
    verdict: Verdict,
    verdicts: Iterable[Verdict],
    who: str,
    reason: str,
    now_s: float,
    seconds: float,
    host: str = "",
) -> Acknowledgement:
    """The acknowledgement of a verdict that stands among `verdicts`, and with it of its consequences.

    `host`: the host of a fleet that it is about.
    """
    by_id = {other.id: other for other in verdicts}
    consequences = [other for other in by_id.values() if verdict.id in _ids_of_causes(other, by_id)]
    levels = [other.level for other in (verdict, *consequences)]
    return Acknowledgement(
        id=verdict.id,
        scope=f"{host} {verdict.scope}".strip(),
        code=verdict.code,
        cause=verdict.cause,
        level=verdict.level,
        worst=min(levels, key=URGENCY.__getitem__),
        who=who,
        reason=reason,
        since_s=now_s,
        until_s=now_s + seconds,
        host=host,
    )


def maintenance(what: str, who: str, reason: str, now_s: float, seconds: float) -> Acknowledgement:
    """The silence over all verdicts of a host of a fleet, or of all hosts with a label (`rack=B`)."""
    return Acknowledgement(
        id=MAINTENANCE,
        scope=what,
        code=Limit.UNKNOWN,
        cause="",
        level=Level.CRITICAL,
        worst=Level.CRITICAL,
        who=who,
        reason=reason,
        since_s=now_s,
        until_s=now_s + seconds,
        host=what,
    )


def maintenance_of(
    host: str, labels: Mapping[str, str], acknowledgements: Iterable[Acknowledgement], now_s: float
) -> Acknowledgement | None:
    """The maintenance that a host of a fleet is in: of several the one that ends last; None where it is in none."""
    names = {host, *(f"{label}={value}" for label, value in labels.items())}
    found = [
        record
        for record in acknowledgements
        if record.id == MAINTENANCE and record.host in names and now_s < record.until_s
    ]
    return max(found, key=lambda record: record.until_s, default=None)


def in_maintenance(snapshot: Snapshot, acknowledged: Acknowledged) -> Snapshot:
    """The snapshot whose verdicts are all acknowledged; those of somebody else stay so."""
    verdicts = []
    for verdict in snapshot.verdicts:
        if verdict.acknowledged is None:
            verdict = msgspec.structs.replace(verdict, acknowledged=acknowledged)
        verdicts.append(verdict)
    return msgspec.structs.replace(snapshot, verdicts=tuple(verdicts))


class _Watched(NamedTuple):
    """How the verdict of an acknowledgement went in this run. Seconds that were watched."""

    absent_s: float = 0.0
    """For how long it has not stood."""
    other_cause_s: float = 0.0
    """For how long it has had another cause."""
    was_listed: bool = False
    """Whether its thing was seen: of what this run never saw it knows nothing."""


class Marked(NamedTuple):
    """A snapshot whose verdicts say who knows of them, and the acknowledgements that are over."""

    snapshot: Snapshot
    over: tuple[Acknowledgement, ...]


class Acknowledgements:
    """Which acknowledgements cover a verdict, from snapshot to snapshot."""

    def __init__(self) -> None:
        self._watched: dict[Acknowledgement, _Watched] = {}
        self._last_s = math.inf
        """Unix time of the snapshot before."""

    def mark(self, snapshot: Snapshot, acknowledgements: Sequence[Acknowledgement]) -> Marked:
        """The snapshot with what the acknowledgements cover, and those that are over by now."""
        elapsed_s = min(max(0.0, snapshot.wall_s - self._last_s), _GAP_INTERVALS * snapshot.interval_s)
        self._last_s = snapshot.wall_s
        if not acknowledgements:
            self._watched.clear()
            return Marked(snapshot, ())
        by_id = {verdict.id: verdict for verdict in snapshot.verdicts}
        keys = keys_of(snapshot)
        watched: dict[Acknowledgement, _Watched] = {}
        over: list[Acknowledgement] = []
        covering: dict[str, Acknowledgement] = {}
        for acknowledgement in acknowledgements:
            verdict = by_id.get(acknowledgement.id)
            before = self._watched.get(acknowledgement, _Watched())
            is_listed = _key_of(acknowledgement) in keys
            now = _watch(before, acknowledgement, verdict, elapsed_s, is_listed=is_listed)
            watched[acknowledgement] = now
            if _is_over(acknowledgement, verdict, now, snapshot.wall_s):
                over.append(acknowledgement)
            elif verdict is not None:
                covering[acknowledgement.id] = acknowledgement
        self._watched = watched
        return Marked(_covered(snapshot, covering), tuple(over))


def with_acknowledged(snapshot: Snapshot, acknowledgements: Iterable[Acknowledgement]) -> Snapshot:
    """The snapshot with what these acknowledgements cover; whether one is over by now is for `Acknowledgements`."""
    levels = {verdict.id: verdict.level for verdict in snapshot.verdicts}
    covering = {}
    for acknowledgement in acknowledgements:
        level = levels.get(acknowledgement.id)
        if level is not None and URGENCY[level] >= URGENCY[acknowledgement.level]:
            covering[acknowledgement.id] = acknowledgement
    return _covered(snapshot, covering)


def _covered(snapshot: Snapshot, covering: Mapping[str, Acknowledgement]) -> Snapshot:
    """The snapshot whose verdicts say who knows of them. `covering`: id of a verdict -> its acknowledgement."""
    if not covering:
        return snapshot
    by_id = {verdict.id: verdict for verdict in snapshot.verdicts}
    verdicts = tuple(_with_acknowledged(verdict, covering, by_id) for verdict in snapshot.verdicts)
    return msgspec.structs.replace(snapshot, verdicts=verdicts)


def _watch(
    before: _Watched, acknowledgement: Acknowledgement, verdict: Verdict | None, elapsed_s: float, *, is_listed: bool
) -> _Watched:
    """How it goes on, by the verdict that stands there now (None: none does), and whether its thing is listed."""
    was_listed = before.was_listed or is_listed
    if verdict is None:
        return _Watched(absent_s=before.absent_s + elapsed_s, was_listed=was_listed)
    if (verdict.code, verdict.cause) == (acknowledgement.code, acknowledgement.cause):
        return _Watched(was_listed=was_listed)
    return _Watched(other_cause_s=before.other_cause_s + elapsed_s, was_listed=was_listed)


def _is_over(acknowledgement: Acknowledgement, verdict: Verdict | None, watched: _Watched, now_s: float) -> bool:
    """Whether an acknowledgement covers nothing any more, for good."""
    if now_s >= acknowledgement.until_s:
        return True
    if verdict is not None:
        return URGENCY[verdict.level] < URGENCY[acknowledgement.level] or watched.other_cause_s >= SETTLE_S
    return watched.was_listed and watched.absent_s >= ABSENT_S[acknowledgement.level]


def _with_acknowledged(
    verdict: Verdict, covering: Mapping[str, Acknowledgement], by_id: Mapping[str, Verdict]
) -> Verdict:
    """The verdict with the acknowledgement of itself, or of what causes it."""
    acknowledgement = covering.get(verdict.id)
    if acknowledgement is None:
        for cause_id in _ids_of_causes(verdict, by_id):
            cover = covering.get(cause_id)
            if cover is not None and URGENCY[verdict.level] >= URGENCY[cover.worst]:
                acknowledgement = cover
                break
    if acknowledgement is None:
        return verdict
    return msgspec.structs.replace(verdict, acknowledged=acknowledgement.shown)


def _ids_of_causes(verdict: Verdict, by_id: Mapping[str, Verdict]) -> Sequence[str]:
    """Ids of the verdict that causes this one, of that which causes that one, and so on."""
    ids: list[str] = []
    cause_id = verdict.caused_by
    while cause_id and cause_id not in ids:
        ids.append(cause_id)
        cause = by_id.get(cause_id)
        cause_id = cause.caused_by if cause is not None else ""
    return ids


def _key_of(acknowledgement: Acknowledgement) -> str:
    """Key of the thing that an acknowledged verdict is about: `kind:key:family` without both ends."""
    return acknowledgement.id.partition(":")[2].rpartition(":")[0]
