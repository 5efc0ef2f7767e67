"""Incidents that a Prometheus has recorded: verdicts that hosts' own gpumon exports, and alerts of gpumon's rules."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from gpumon.fleet.period import ALERT_SOURCE, VERDICT_SOURCE, IncidentSeen, RecordedIncidents
from gpumon.readings.text import clean
from gpumon.readings.verdict import Level
from gpumon.sources.prometheus.answers import Matrix
from gpumon.sources.prometheus.api import ApiFault
from gpumon.sources.prometheus.queries import join_matchers
from gpumon.sources.prometheus.source import FleetSource
from gpumon.triage.causes import root_of
from gpumon.triage.marks import URGENCY

_MOST_STEPS: Final = 5000
"""Moments at which it is asked what held; between two of them nothing is missed, but lengths are rounded up to them."""
_LEAST_STEP_S: Final = 60.0
"""Shortest time between two of these moments, in seconds."""
VERDICTS: Final = "gpumon_verdict{{{}}}"
"""Series of the verdicts that hosts' own gpumon exports."""
URGENT_VERDICTS: Final = 'level=~"critical|warn"'
"""Matcher of the verdicts that are incidents."""
ALERTS: Final = "ALERTS{{{}}}"
"""Series of the alerts of a Prometheus."""
URGENT_ALERTS: Final = 'alertstate="firing",alertname=~"Gpumon.+",severity=~"critical|warning"'
"""Matchers of the alerts of gpumon's rules that are incidents."""
CAUSES: Final = "gpumon_verdict_caused_by_info{{{}}}"
"""Series that say which verdict another one came of."""
_LATE_STEPS: Final = 2.0
"""Steps by which the verdict that another one came of may be seen later than that."""
_RULES: Final = ("gpumon:engine_target:known", "gpumon:gpu_target:known", "gpumon:gpu_busy:ratio")
"""Series of which gpumon's rules record one at least where there is anything to judge."""
_SEVERITIES: Final = {"critical": Level.CRITICAL, "warning": Level.WARN}
"""Label `severity` of an alert -> its level."""
_LEVELS: Final = {"critical": Level.CRITICAL, "warn": Level.WARN}
"""Label `level` of a verdict -> its level."""
_MOST_GAP_STEPS: Final = 1.5
"""Steps between two points of one incident, at most: a later point begins another one."""


class _Span(NamedTuple):
    """A time in Unix seconds, and the step at which it is asked what held."""

    begin_s: float
    end_s: float
    step_s: float


async def recorded_incidents(source: FleetSource, match: str, begin_s: float, end_s: float) -> RecordedIncidents:
    """All incidents between two Unix times, and whether gpumon's rules were evaluated then. Raises ApiFault."""
    step_s = max(_LEAST_STEP_S, (end_s - begin_s) / _MOST_STEPS)
    span = _Span(begin_s, end_s, step_s)
    incidents: list[IncidentSeen] = []
    for template, urgent_matchers, make_incident in (
        (VERDICTS, URGENT_VERDICTS, _incident_of_verdict),
        (ALERTS, URGENT_ALERTS, _incident_of_alert),
    ):
        series = template.format(join_matchers(urgent_matchers, match))
        for matrix in await _asked(source, series, span):
            incidents += _incidents(matrix, span, source, make_incident)
    causes = {}
    for matrix in await _asked(source, CAUSES.format(join_matchers(match)), span):
        labels = matrix.series.labels
        own = _verdict_key(labels)
        root = (own[0], own[1], labels.get("id", ""))
        causes[own, root] = [at_s for at_s, _ in matrix.points]
    return RecordedIncidents(tuple(_roots(incidents, causes, span)), await _has_rules(source, match, span))


async def _asked(source: FleetSource, series: str, span: _Span) -> Sequence[Matrix]:
    """The largest value of series within each step: what held only between two moments is not missed."""
    promql = f"max_over_time({series}[{round(span.step_s * 1000)}ms])"
    return await source.api.query_range(promql, span.begin_s, span.end_s, span.step_s)


_VerdictKey = tuple[str, str, str]
"""Job and instance of a gpumon, and id of one of its verdicts."""


def _verdict_key(labels: Mapping[str, str]) -> _VerdictKey:
    """Key of the verdict that a series is about."""
    verdict = ":".join(filter(None, (labels.get("kind", ""), labels.get("thing", ""), labels.get("family", ""))))
    return labels.get("job", ""), labels.get("instance", ""), verdict


def _roots(
    incidents: Sequence[IncidentSeen], causes: Mapping[tuple[_VerdictKey, _VerdictKey], Sequence[float]], span: _Span
) -> list[IncidentSeen]:
    """The incidents that came of no other one, each with the number of those that came of it, and as urgent as they.

    `causes`: Unix times at which one verdict was said to come of the other.
    """
    cause_of = _causes_by_index(incidents, causes, _LATE_STEPS * span.step_s)
    # What a verdict came of may be said to have come of another one later.
    root_by_index = {index: root_of(index, cause_of) for index in range(len(incidents))}
    members: dict[int, list[IncidentSeen]] = {}
    for index, root_index in root_by_index.items():
        if index != root_index:
            members.setdefault(root_index, []).append(incidents[index])
    roots = []
    for index, incident in enumerate(incidents):
        if root_by_index[index] == index:
            own_members = members.get(index, [])
            level = min((incident.level, *(member.level for member in own_members)), key=URGENCY.__getitem__)
            roots.append(incident._replace(consequences=len(own_members), level=level))
    return roots


def _causes_by_index(
    incidents: Sequence[IncidentSeen], causes: Mapping[tuple[_VerdictKey, _VerdictKey], Sequence[float]], late_s: float
) -> dict[int, int]:
    """Index of an incident -> index of the one that its verdict was said to come of while both were there, to `late_s`.

    `causes` as in `_roots`.
    """
    by_verdict: dict[_VerdictKey, list[int]] = {}
    for index, incident in enumerate(incidents):
        by_verdict.setdefault(_verdict_key(incident.labels), []).append(index)
    cause_of: dict[int, int] = {}
    for (own, root), times in causes.items():
        for index in by_verdict.get(own, ()):
            incident = incidents[index]
            if not any(incident.begin_s <= at_s <= incident.end_s for at_s in times):
                continue
            for root_index in by_verdict.get(root, ()):
                other = incidents[root_index]
                if other.begin_s - late_s <= incident.begin_s <= other.end_s + late_s:
                    cause_of[index] = root_index
    return cause_of


async def _has_rules(source: FleetSource, match: str, span: _Span) -> bool:
    """Whether gpumon's rules were evaluated in that time: without an alert nothing else tells it."""
    seconds = max(1, round(span.end_s - span.begin_s))
    parts = [f"count(present_over_time({name}{{{join_matchers(match)}}}[{seconds}s]))" for name in _RULES]
    try:
        return bool(await source.api.query(" or ".join(parts), span.end_s))
    except ApiFault as fault:
        if fault.refused:
            return False
        raise


_MakeIncident = Callable[[str, Mapping[str, str], float, float, bool], IncidentSeen]
"""An incident from its host, labels, begin, end, and whether it ended."""


def _incidents(
    matrix: Matrix, span: _Span, source: FleetSource, make_incident: _MakeIncident
) -> Iterator[IncidentSeen]:
    """The stretches of time in which one verdict or alert held."""
    labels = matrix.series.labels
    host = source.host_of_series(labels)
    for first_s, last_s in _stretches([at_s for at_s, _ in matrix.points], span.step_s):
        ended = last_s < span.end_s - span.step_s
        begin_s = max(span.begin_s, first_s - span.step_s)  # it began within the step before its first point
        yield make_incident(host, labels, begin_s, last_s, ended)


def _stretches(times: Sequence[float], step_s: float) -> list[tuple[float, float]]:
    """First and last time of each stretch without a gap."""
    stretches: list[tuple[float, float]] = []
    for at_s in times:
        if stretches and at_s - stretches[-1][1] <= _MOST_GAP_STEPS * step_s:
            stretches[-1] = (stretches[-1][0], at_s)
        else:
            stretches.append((at_s, at_s))
    return stretches


def _incident_of_verdict(
    host: str, labels: Mapping[str, str], begin_s: float, end_s: float, ended: bool
) -> IncidentSeen:
    """The incident of a verdict that a host's own gpumon exported."""
    code = labels.get("code", "")
    cause = labels.get("cause", "")
    what = code.replace("_", " ")
    if cause:
        what = f"{what} ({cause.replace('_', ' ')})"
    return IncidentSeen(
        host=host,
        key=labels.get("thing", ""),
        labels=labels,
        scope=clean(labels.get("scope", ""), 80),
        what=clean(what, 80),
        level=_LEVELS.get(labels.get("level", ""), Level.WARN),
        begin_s=begin_s,
        end_s=end_s,
        ended=ended,
        source=VERDICT_SOURCE,
    )


def _incident_of_alert(host: str, labels: Mapping[str, str], begin_s: float, end_s: float, ended: bool) -> IncidentSeen:
    """The incident of an alert of gpumon's rules."""
    model = labels.get("model_name", "")
    gpu = labels.get("gpu", "")
    key = labels.get("instance", "")
    scope = key
    if gpu:
        key = labels.get("UUID", "") or f"gpu {gpu}"
        scope = f"gpu {gpu}"
    elif model:
        scope = f"{model} on {key}"
    return IncidentSeen(
        host=host,
        key=key,
        labels=labels,
        scope=clean(scope, 80),
        what=clean(labels.get("alertname", ""), 80),
        level=_SEVERITIES.get(labels.get("severity", ""), Level.WARN),
        begin_s=begin_s,
        end_s=end_s,
        ended=ended,
        source=ALERT_SOURCE,
    )
