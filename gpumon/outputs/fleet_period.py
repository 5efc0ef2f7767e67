"""Days of a fleet as text, Markdown or JSON: what `gpumon report --by` prints."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from gpumon.figures.engine import ENGINE
from gpumon.figures.gpu import GPU, USE
from gpumon.fleet.owners import unowned_row_name
from gpumon.outputs.figure_column import figure_column
from gpumon.outputs.goodput import goodput_text, share_text, token_goal
from gpumon.outputs.json import as_object
from gpumon.outputs.period import (
    COVERED_THROUGHOUT,
    duration_text,
    energy_cost_text,
    incident_duration,
    local_time,
    output_tokens,
    token_prices,
    tokens_text,
    unused_cost_text,
)
from gpumon.outputs.report_document import ReportDocument, ReportSection, as_markdown, as_text
from gpumon.outputs.schema import document
from gpumon.outputs.tables import ColumnSpec, PrintedColumn, columns_of, with_figures
from gpumon.outputs.units import FORMAT_BY_UNIT, NONE, join_known, money_text
from gpumon.readings import format as human
from gpumon.readings.fleet_period import FLEET_REPORT_SCHEMA, FleetIncident, FleetPeriod, GroupPeriod, Waster
from gpumon.readings.missing import Missing, Reading
from gpumon.readings.period import known_s_field
from gpumon.readings.prices import KWH_J
from gpumon.readings.text import clean
from gpumon.specs.units import HOUR_S

_MOST_SHOWN: Final = 20
"""Incidents, and hosts of one kind, that a text names."""
_MOST_MODELS: Final = 3
"""Models that a row of wasters names."""
NO_INCIDENTS: Final = (
    "not recorded: load the rules of `gpumon rules` into the Prometheus, or have it scrape `gpumon serve-metrics`"
)
"""Stands for incidents that nobody recorded."""


def encode(period: FleetPeriod) -> bytes:
    """One line of JSON, without a newline; the keys are in docs/fleet-report.md, `missing` as in docs/json.md."""
    return msgspec.json.encode({"schema": FLEET_REPORT_SCHEMA, **as_object(period)})


def schema() -> dict[str, object]:
    """The JSON Schema of it (draft 2020-12). Objects may gain keys: a reader ignores those it does not know."""
    definitions: dict[str, object] = {}
    root = document(FleetPeriod, "gpumon report --by", FLEET_REPORT_SCHEMA, definitions)
    return {**root, "$defs": dict(sorted(definitions.items()))}


def report(period: FleetPeriod, width: int = 100) -> str:
    """Totals, a table of groups, the largest wasters, incidents, and what is not known; in at most `width` cells."""
    return as_text(_document(period), width)


def markdown(period: FleetPeriod) -> str:
    """The same as tables to paste into a weekly report."""
    return as_markdown(_document(period))


def _document(period: FleetPeriod) -> ReportDocument:
    """The report; what there is nothing of has no section."""
    sections = []
    if len(period.groups) > 1 or period.by != "host":
        sections.append(ReportSection(f"by {clean(period.by, 60)}", _group_columns(period)))
    if period.wasters:
        sections.append(ReportSection("most unused", _waster_columns(period)))
    shown_incidents = period.incidents[:_MOST_SHOWN]
    if shown_incidents:
        more = len(period.incidents) - _MOST_SHOWN + period.incidents_left_out
        closing = f"and {more} more" if more > 0 else ""
        sections.append(ReportSection("incidents", columns_of(shown_incidents, _INCIDENT_COLUMNS), closing=closing))
    left_out = tuple(_left_out_lines(period))
    if left_out:
        sections.append(ReportSection("not in these figures", remarks=left_out))
    sections.append(ReportSection("words", remarks=tuple(_glossary_lines(period))))
    return ReportDocument(_title(period), tuple(_facts(period)), sections)


def _glossary_lines(period: FleetPeriod) -> Iterator[str]:
    """The words of the tables explained, for a reader who has only the report."""
    yield "unused: no engine on the GPU ran a request; without an engine it computed nothing, whoever held it"
    yield "mfu, mbu: arithmetic and memory traffic that the tokens need, as shares of what the GPUs could do"
    if goodput_text(period.total.goodput):
        yield "ttft ok, itl ok: requests whose first token came, and whose tokens followed, within the goals of [goals]"
    if not isinstance(period.total.cost, Missing):
        yield "cost: in your currency, by [prices]; $/1M out: per million generated tokens; tok/$: tokens for one of it"


def _title(period: FleetPeriod) -> str:
    """Grouping and time of a report."""
    begin = local_time(period.begin)
    end = local_time(period.end)
    simulated = "  SIMULATED" if period.simulated else ""
    by = clean(period.by, 60)
    return f"GPUs by {by}  {begin:%Y-%m-%d %H:%M} to {end:%Y-%m-%d %H:%M} {end.tzname() or ''}{simulated}"


def _facts(period: FleetPeriod) -> Iterator[tuple[str, str]]:
    """Labels and texts of the lines on all groups together."""
    total = period.total
    looks = f"looked at every {human.age(period.step_s)}"
    hosts = human.counted(period.hosts, "host")
    yield "measured", f"{duration_text(period.measured_s)} of {duration_text(period.seconds)}, {hosts}, {looks}"
    yield "GPUs", _gpu_hours_text(total)
    yield "use", ", ".join(_use_text(total, field) for field in USE)
    yield "tokens", tokens_text(total)
    served = goodput_text(total.goodput)
    if served:
        yield "goodput", served
    yield "cost", _cost_text(total)
    yield "energy", _energy_text(total)
    yield "incidents", _incidents_text(total)


def _gpu_hours_text(group: GroupPeriod) -> str:
    """`48 GPUs, 8,064 GPU-hours, unused 2,100 = 26%`."""
    text = f"{human.counted(group.gpus, 'GPU')}, {_hours_text(group.gpu_s)} GPU-hours"
    if isinstance(group.unused_gpu_s, Missing):
        return f"{text}; which of them were unused is not known"
    unused = (
        f"unused {_hours_text(group.unused_gpu_s)} = {_unused_share(group)}{_known_share(group, group.unused_known_s)}"
    )
    return f"{text}, {unused}"


def _unused_share(group: GroupPeriod) -> str:
    """Unused time as a share of the time of which it is known."""
    if isinstance(group.unused_gpu_s, Missing) or not group.unused_known_s:
        return NONE
    return FORMAT_BY_UNIT["ratio"](group.unused_gpu_s / group.unused_known_s)


def _known_share(group: GroupPeriod, known_s: float) -> str:
    """` (known for 80% of the GPU-hours)`, where that is not all."""
    if not group.gpu_s or known_s >= COVERED_THROUGHOUT * group.gpu_s:
        return ""
    return f" (known for {FORMAT_BY_UNIT['ratio'](known_s / group.gpu_s)} of the GPU-hours)"


def _use_text(group: GroupPeriod, field: str) -> str:
    """`MFU 31%`, with the share of the GPU-hours for which it is known."""
    ratio = FORMAT_BY_UNIT["ratio"](getattr(group, field))
    known = _known_share(group, getattr(group, known_s_field(field))) if ratio != NONE else ""
    return f"{GPU[field].name} {ratio}{known}"


def _cost_text(group: GroupPeriod) -> str:
    """Costs of a group: all, unused, and by tokens; or how to have them."""
    if isinstance(group.cost, Missing):
        return "no price: set gpu_hour of [prices]"
    parts = [money_text(group.cost), unused_cost_text(group.unused_cost), *token_prices(group)]
    if not isinstance(group.tokens_per_cost, Missing):
        parts.append(f"{FORMAT_BY_UNIT['number'](group.tokens_per_cost)} decode tokens per $")
    return join_known(parts)


def _energy_text(group: GroupPeriod) -> str:
    """Energy of a group, and its cost."""
    if isinstance(group.energy_j, Missing):
        return NONE
    return f"{_kwh_text(group.energy_j)} kWh{_known_share(group, group.energy_known_s)}{energy_cost_text(group)}"


def _incidents_text(group: GroupPeriod) -> str:
    """Number and length of the incidents of a group."""
    if isinstance(group.incidents, Missing):
        return NO_INCIDENTS
    if not group.incidents:
        return "none"
    total_s = 0.0 if isinstance(group.incident_s, Missing) else group.incident_s
    critical = _whole_text(group.critical_incidents)
    return f"{group.incidents:,.0f}, {critical} of them critical, {duration_text(total_s)} together"


def _whole_text(value: Reading) -> str:
    """A number without decimals."""
    if isinstance(value, Missing):
        return NONE
    return f"{value:,.0f}"


def _hours_text(seconds: Reading) -> str:
    """GPU-hours, with decimals where they are few."""
    if isinstance(seconds, Missing):
        return NONE
    hours = seconds / HOUR_S
    if 0.0 < hours < 1.0:
        return f"{hours:.2f}"
    if hours < 100.0:
        return f"{hours:,.1f}"
    return f"{hours:,.0f}"


def _kwh_text(joules: Reading) -> str:
    """Joules in kWh, with decimals where they are few."""
    if isinstance(joules, Missing):
        return NONE
    kwh = joules / KWH_J
    if kwh < 100.0:
        return f"{kwh:,.2f}"
    return f"{kwh:,.0f}"


_GROUP_COLUMNS: Final[tuple[ColumnSpec[GroupPeriod], ...]] = (
    ColumnSpec("GPUs", lambda group: str(group.gpus), right=True, keep=7),
    ColumnSpec("GPU-h", lambda group: _hours_text(group.gpu_s), right=True),
    ColumnSpec("unused h", lambda group: _hours_text(group.unused_gpu_s), right=True),
    ColumnSpec("unused", _unused_share, right=True, keep=8),
)
"""Columns of a group behind its name."""
_KNOWN_GROUP_COLUMNS: Final[tuple[ColumnSpec[GroupPeriod], ...]] = (
    ColumnSpec("cost", lambda group: money_text(group.cost), right=True, keep=8),
    ColumnSpec("unused cost", lambda group: money_text(group.unused_cost), right=True),
    figure_column(GPU["busy_ratio"], keep=3),
    figure_column(GPU["mfu_ratio"]),
    figure_column(GPU["mbu_ratio"], keep=2),
    ColumnSpec("prefill", lambda group: FORMAT_BY_UNIT["number"](group.prefill_computed_tokens), right=True, keep=4),
    ColumnSpec("cached", lambda group: FORMAT_BY_UNIT["number"](group.prefill_cached_tokens), right=True, keep=1),
    ColumnSpec("decode tokens", output_tokens, right=True, keep=8),
    ColumnSpec("$/1M out", lambda group: money_text(group.cost_per_million_tokens), right=True, keep=7),
    ColumnSpec("tok/$", lambda group: FORMAT_BY_UNIT["number"](group.tokens_per_cost), right=True, keep=2),
    figure_column(ENGINE["ttft_goal.low_ratio"], keep=5, text=lambda group: share_text(group.goodput.ttft_goal)),
    figure_column(ENGINE["itl_goal.low_ratio"], keep=4, text=lambda group: share_text(token_goal(group.goodput))),
    ColumnSpec("kWh", lambda group: _kwh_text(group.energy_j), right=True, keep=6),
    ColumnSpec("energy cost", lambda group: money_text(group.energy_cost), right=True, keep=5),
    ColumnSpec("incidents", lambda group: _whole_text(group.incidents), right=True, keep=6),
)
"""Columns behind those, each there once a group has a figure in it."""


def _group_columns(period: FleetPeriod) -> list[PrintedColumn]:
    """The groups, a row each, and their total if they are several."""
    names = [group_name(group.name, period.by) for group in period.groups]
    rows = period.groups
    if len(rows) > 1:
        rows = (*rows, period.total)
        names.append("total")
    columns = [PrintedColumn(clean(period.by, 40), names), *columns_of(rows, _GROUP_COLUMNS)]
    return columns + with_figures(columns_of(rows, _KNOWN_GROUP_COLUMNS))


def group_name(name: str, by: str) -> str:
    """Name of a group, as it is shown."""
    if name:
        return clean(name, 48)
    return clean(unowned_row_name(by), 48)


def _waster_columns(period: FleetPeriod) -> list[PrintedColumn]:
    """The GPUs that were unused for longest, a row each."""
    by = period.by
    group: ColumnSpec[Waster] = ColumnSpec(clean(by, 40), lambda waster: group_name(waster.group, by), keep=8)
    where = [_WASTER_HOST_COLUMN]
    if by != "host":
        where.append(group)
    wasters = period.wasters[:_MOST_SHOWN]
    return [
        *columns_of(wasters, where),
        *columns_of(wasters, _WASTER_COLUMNS),
        *with_figures(columns_of(wasters, (_WASTER_COST_COLUMN,))),
        *columns_of(wasters, (_WASTER_MODELS_COLUMN,)),
    ]


_WASTER_HOST_COLUMN: Final[ColumnSpec[Waster]] = ColumnSpec("host", lambda waster: clean(waster.host, 40))
_WASTER_COLUMNS: Final[tuple[ColumnSpec[Waster], ...]] = (
    ColumnSpec("gpu", lambda waster: human.spans(waster.gpus), keep=8),
    ColumnSpec("type", lambda waster: clean(waster.gpu_type, 32), keep=2),
    ColumnSpec("GPU-h", lambda waster: _hours_text(waster.gpu_s), right=True, keep=6),
    ColumnSpec("unused h", lambda waster: _hours_text(waster.unused_gpu_s), right=True),
)
"""Columns of GPUs that were unused, behind those of their host and group."""
_WASTER_COST_COLUMN: Final[ColumnSpec[Waster]] = ColumnSpec(
    "unused cost", lambda waster: money_text(waster.unused_cost), right=True
)


def _models_text(waster: Waster) -> str:
    """Models that ran there; what else did, as a training run, has no model that is known."""
    if not waster.models:
        return "no model known"
    return ", ".join(human.model_name(clean(model, 100), 32) for model in waster.models[:_MOST_MODELS])


_WASTER_MODELS_COLUMN: Final[ColumnSpec[Waster]] = ColumnSpec("ran", _models_text, keep=5)


def _what_happened(incident: FleetIncident) -> str:
    """An incident by its code or alert, and how many came of it: `hardware fault (xid); 2 came of it`."""
    text = clean(incident.what, 80)
    return f"{text}; {incident.consequences} came of it" if incident.consequences else text


_INCIDENT_COLUMNS: Final[tuple[ColumnSpec[FleetIncident], ...]] = (
    ColumnSpec("since", lambda incident: f"{local_time(incident.begin):%m-%d %H:%M}"),
    ColumnSpec("for", incident_duration, right=True),
    ColumnSpec("level", lambda incident: incident.level.value, keep=3),
    ColumnSpec("host", lambda incident: clean(incident.host, 40)),
    ColumnSpec("where", lambda incident: clean(incident.scope, 40), keep=8),
    ColumnSpec("what", lambda incident: _what_happened(incident)),
)
"""Columns of an incident."""


def _left_out_lines(period: FleetPeriod) -> Iterator[str]:
    """Hosts, GPUs and times that the sums leave out, and how to have them in."""
    if period.without_data:
        number = human.counted(len(period.without_data), "host")
        yield f"{number} without data: {_name_list(period.without_data)}"
    if period.partial:
        names = [f"{coverage.host} ({duration_text(coverage.measured_s)})" for coverage in period.partial]
        yield f"parts of the time, of {human.counted(len(names), 'host')}; measured: {_name_list(names)}"
    for unpriced in period.unpriced:
        name = clean(unpriced.gpu_type, 40) or "GPUs"
        hours = _hours_text(unpriced.gpu_s)
        yield f"no price of {unpriced.gpus} x {name} ({hours} GPU-hours), so they are in no cost: set [prices]"
    yield from _unplaced_lines(period)
    for note in period.notes:
        yield clean(note, 300)


def _unplaced_lines(period: FleetPeriod) -> Iterator[str]:
    """Hosts with engines whose GPU-hours are not known: nobody tells of the GPUs, or which engine ran on which."""
    without_gpus = []
    unplaced = []
    for host in period.unplaced:
        name = f"{host.host} ({human.counted(len(host.engines), 'engine')})"
        if host.gpus_told:
            unplaced.append(name)
        else:
            without_gpus.append(name)
    if without_gpus:
        names = _name_list(without_gpus)
        yield f"GPU-hours of hosts whose GPUs nobody tells of, so no cost of tokens for their groups: {names}"
    if unplaced:
        names = _name_list(unplaced)
        yield f"which GPUs some engines ran on, so no cost of tokens for their groups (docs/fleet.md): {names}"


def _name_list(names: Sequence[str]) -> str:
    """Names with commas between, and how many more there are."""
    shown_names = [clean(name, 60) for name in names[:_MOST_SHOWN]]
    if len(names) > _MOST_SHOWN:
        shown_names.append(f"and {len(names) - _MOST_SHOWN} more")
    return ", ".join(shown_names)


if __name__ == "__main__":
    sys.stdout.buffer.write(msgspec.json.format(msgspec.json.encode(schema()), indent=2) + b"\n")
