"""A fleet printed: tables of hosts, of models and of owners, or one JSON object."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from typing import Any, Final

import msgspec

from gpumon.efficiency.merged import Known
from gpumon.figures.engine import ENGINE
from gpumon.figures.figure import Figure
from gpumon.figures.gpu import GPU
from gpumon.fleet.capacity import capacity_of
from gpumon.fleet.common_faults import CommonFault, common_faults, hosts_text
from gpumon.fleet.order import natural_order, sort_fleet_rows
from gpumon.fleet.owners import by_owner, owner_labels
from gpumon.fleet.parts import MERGED, ONE, RowLatency
from gpumon.fleet.row import FleetRow, row_maintenance
from gpumon.fleet.snapshot import FleetSnapshot, HostShown, HostState
from gpumon.fleet.sums import sum_fleet
from gpumon.fleet.troubles import count_troubles, worst_level
from gpumon.outputs.capacity import capacity_lines, capacity_object
from gpumon.outputs.figure_column import cell_writer, figure_column
from gpumon.outputs.json import MOST_CHARACTERS, as_object
from gpumon.outputs.tables import NEVER_DROPPED, ColumnSpec, PrintedColumn, columns_of, join_stripped, table
from gpumon.outputs.units import FORMAT_BY_UNIT, NONE, as_line, as_word, seconds_text
from gpumon.readings.flat import value_of
from gpumon.readings.format import counted, least_time, rfc3339
from gpumon.readings.missing import Missing, Reading
from gpumon.readings.snapshot import SCHEMA, Level, Limit, Verdict
from gpumon.readings.text import clean
from gpumon.readings.verdict import Acknowledged
from gpumon.triage.marks import MARKS, URGENCY
from gpumon.triage.render import LIMIT_NAMES, actions_text
from gpumon.triage.roots import Root, root_text, roots_of

_NOT_PRINTED: Final = frozenset({"parts", "labels", "worst"})
"""Fields of a row that are not printed: things that it is made of."""
ROW_KEYS: Final = tuple(name for name in FleetRow.__struct_fields__ if name not in _NOT_PRINTED)
"""Figures of a row as it is printed."""
_LONGEST_NAME: Final = 48
"""Characters of the name of a row."""
_LONGEST_VERDICT: Final = 70
"""Characters of the worst verdict in a row."""
_MOST_TROUBLE_LINES: Final = 30
"""Lines of trouble."""
_COST: Final = "cost"
"""Column that stands where there are prices."""
_ENCODER: Final = msgspec.json.Encoder()


def encode(snapshot: FleetSnapshot, prices: Mapping[str, float], owners: Sequence[str] = ()) -> bytes:
    """The fleet as one line of JSON, without a newline: the hosts with their snapshots, and the rows over them.

    `owners`: labels that the config names; without any those that group the fleet.
    """
    snapshot, rows, models, whole = sum_fleet(snapshot, prices)
    groups = {
        clean(label): [_row_object(row) for row in by_owner(snapshot, label, prices)]
        for label in owner_labels(snapshot, owners)
    }
    hosts = []
    for host, row in zip(snapshot.hosts, rows, strict=True):
        seen = rfc3339(host.seen_wall_s) if host.seen_wall_s else None
        hosts.append(
            {
                "name": clean(host.name),
                "labels": {clean(name): clean(value, MOST_CHARACTERS) for name, value in host.labels.items()},
                "state": host.state.value,
                "seen": seen,
                "own_gpumon": host.own_gpumon,
                "maintenance": as_object(host.maintenance) if host.maintenance is not None else None,
                "figures": _row_object(row),
                "snapshot": {"schema": SCHEMA, **as_object(host.snapshot)},
            }
        )
    return _ENCODER.encode(
        {
            "schema": SCHEMA,
            "time": snapshot.time or None,
            "interval_s": snapshot.interval_s,
            "queries": snapshot.queries,
            "cost_s": round(snapshot.cost_s, 3),
            "faults": [as_object(fault) for fault in snapshot.faults],
            "hosts": hosts,
            "models": [_row_object(row) for row in models],
            "owners": groups,
            "total": _row_object(whole),
            "capacity": capacity_object(capacity_of(snapshot, models)),
            "common_faults": [_fault_object(fault) for fault in common_faults(snapshot)],
        }
    )


def _fault_object(fault: CommonFault) -> dict[str, Any]:
    """A fault of several hosts."""
    label = {"name": clean(fault.label[0]), "value": clean(fault.label[1])} if fault.label is not None else None
    return {
        "name": fault.name,
        "level": fault.level.value,
        "hosts": [clean(name) for name in fault.hosts],
        "label": label,
    }


def _row_object(row: FleetRow) -> dict[str, Any]:
    """The figures by key; what is missing is null, and its reason stands under `missing`."""
    printed: dict[str, Any] = {}
    missing: dict[str, str] = {}
    for name in ROW_KEYS:
        value = getattr(row, name)
        reading: Reading | object = value.value if isinstance(value, Known | RowLatency) else value
        if isinstance(reading, Missing):
            missing[name] = reading.reason.value
        printed[name] = _json_value(value)
    return {**printed, "missing": missing}


def _json_value(value: Any) -> Any:
    """The value of a row's field as JSON has it."""
    if isinstance(value, Missing):
        return None
    if isinstance(value, Known):
        return {"value": _json_value(value.value), "gpus": value.gpus, "of": value.of}
    if isinstance(value, RowLatency):
        return {"value": _json_value(value.value), "how": value.how, "is_least": value.is_least}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, str):
        return clean(value, MOST_CHARACTERS)
    if isinstance(value, tuple):
        return [_json_value(item) for item in value]
    return value


def report(snapshot: FleetSnapshot, prices: Mapping[str, float], width: int = 160, owners: Sequence[str] = ()) -> str:
    """A table of hosts with their sum, those with the worst verdicts first, one of models, one of each label of
    `owners`, and what does not work."""
    return join_stripped(_lines(snapshot, prices, width, owners))


def _lines(snapshot: FleetSnapshot, prices: Mapping[str, float], width: int, owners: Sequence[str]) -> Iterator[str]:
    """The lines of a report: title, tables, verdicts and faults."""
    snapshot, rows, models, whole = sum_fleet(snapshot, prices)
    yield f"gpumon fleet  {snapshot.time or 'no answer yet'}  {_summary(whole)}"
    trouble = count_troubles(rows)
    if trouble:
        yield f"{MARKS[worst_level(rows)].glyph} {', '.join(trouble)}"
    if snapshot.queries:
        queries = "query" if snapshot.queries == 1 else "queries"
        yield f"{snapshot.queries} {queries}, {snapshot.cost_s:.2f} s"
    if rows:
        hosts = sort_fleet_rows(rows)
        yield ""
        yield from table(_row_columns("host", [*hosts, whole]), width)
        yield ""
        yield from table(_row_columns("model", sort_fleet_rows(models, "tokens")), width)
        for label in owners:
            yield ""
            yield from table(
                _row_columns(clean(label, _LONGEST_NAME), [*by_owner(snapshot, label, prices), whole]), width
            )
        yield from capacity_lines(capacity_of(snapshot, models), width)
    yield from _trouble_lines(snapshot, sort_fleet_rows(rows))
    for fault in snapshot.faults:
        yield ""
        yield f"fault {as_word(fault.source)}  since {fault.since}"
        yield f"  {as_line(fault.text)}"


def urgent_verdicts(snapshot: FleetSnapshot) -> list[tuple[str, Verdict]]:
    """Host and verdict of all that is known not to be well, the worst first."""
    verdicts = []
    for host in snapshot.hosts:
        if host.state is not HostState.GONE:
            for verdict in host.snapshot.verdicts:
                if verdict.level is not Level.OK and verdict.code is not Limit.UNKNOWN:
                    verdicts.append((host.name, verdict))
    return sorted(verdicts, key=_by_urgency)


def _by_urgency(verdict_of_host: tuple[str, Verdict]) -> tuple[Any, ...]:
    """Key by which a host and its verdict are sorted: the worst first, then by the names of the hosts."""
    host, verdict = verdict_of_host
    return (URGENCY[verdict.level], natural_order(host))


def _roots_by_urgency(snapshot: FleetSnapshot) -> list[tuple[HostShown, Root]]:
    """Host and cause of all that is known not to be well, the worst first."""
    roots = []
    for host in snapshot.hosts:
        if host.state is HostState.GONE or host.maintenance is not None:
            continue
        for root in roots_of(host.snapshot.verdicts):
            if root.first.code is not Limit.UNKNOWN:
                roots.append((host, root))
    return sorted(roots, key=_root_order)


def _trouble_lines(snapshot: FleetSnapshot, rows: Iterable[FleetRow]) -> Iterator[str]:
    """Lines of trouble under their title: hosts and engines that do not answer, the verdicts, and what is expected."""
    all_rows = list(rows)
    in_service = [row for row in all_rows if row_maintenance(row) is None]
    lines = [*_silent_lines(in_service), *_verdict_lines(snapshot)]
    for row in all_rows:
        silence = row_maintenance(row)
        if silence is not None:
            lines.append(f"{as_word(row.name)}: {_silence_words(silence)}")
        elif row.state is HostState.STARTING:
            lines.append(_host_trouble(row))
    if not lines:
        return
    yield ""
    yield "trouble, worst first"
    for line in lines[:_MOST_TROUBLE_LINES]:
        yield f"  {line}"
    if len(lines) > _MOST_TROUBLE_LINES:
        yield f"  +{len(lines) - _MOST_TROUBLE_LINES} more"


def _silent_lines(rows: Iterable[FleetRow]) -> Iterator[str]:
    """Hosts that do not answer as they should, and engines that do not on a host that does."""
    for row in rows:
        if row.state not in (HostState.OK, HostState.STARTING):
            yield _host_trouble(row)
        if row.silent and row.state in (HostState.OK, HostState.PARTIAL):
            yield from _silent_engines(row)


def _verdict_lines(snapshot: FleetSnapshot) -> Iterator[str]:
    """One line for a fault that several hosts have, then one for each other cause."""
    folded: set[tuple[str, str]] = set()
    for fault in common_faults(snapshot):
        yield _common_fault_line(fault)
        folded.update((host.name, root.first.id) for host, root in fault.roots)
    for host, root in _roots_by_urgency(snapshot):
        if (host.name, root.first.id) not in folded:
            yield _root_line(host, root)


def _silence_words(silence: Acknowledged) -> str:
    """Until when a host is in maintenance, and why; without an end its scheduler has taken it out."""
    why = f": {as_line(silence.reason)}" if silence.reason else ""
    what = f"in maintenance until {silence.until}" if silence.until else "taken out"
    return f"{what}{why}"


def _host_trouble(row: FleetRow) -> str:
    """State and last fault of a host: `gpu07: unreachable: connection refused`."""
    faults = [fault.text for host in row.parts.hosts for fault in host.snapshot.faults]
    word = row.state.value
    if row.state is HostState.PARTIAL:
        word += ": an exporter is down"
    if not faults:
        return f"{as_word(row.name)}: {word}"
    return f"{as_word(row.name)}: {word}: {as_line(faults[-1])}"


def _silent_engines(row: FleetRow) -> Iterator[str]:
    """A line for each engine of a host that does not answer."""
    for part in row.parts.engines:
        if part.answers:
            continue
        fault = part.engine.fault
        why = f": {as_line(fault)}" if fault else ""
        yield f"{as_word(row.name)} {as_word(part.engine.name)}: does not answer{why}"


def _root_order(item: tuple[HostShown, Root]) -> tuple[Any, ...]:
    """Sort key: the most urgent first, then by the names of the hosts; what is acknowledged comes last."""
    host, root = item
    return (root.acknowledged is not None, URGENCY[root.level], natural_order(host.name))


def _root_line(host: HostShown, root: Root) -> str:
    """Host, thing, limit, what suffers from it, and what to do."""
    limit = LIMIT_NAMES[root.first.code]
    line = f"{as_word(host.name)} {as_line(root.scope)}: {limit}: {as_line(root_text(root, host.snapshot))}"
    if root.first.actions:
        line += f" - {as_line(actions_text(root.advised))}"
    return line


def _common_fault_line(fault: CommonFault) -> str:
    """The fault, its hosts, and what to do on each."""
    line = f"{as_line(fault.words)}: {as_line(hosts_text(fault.hosts))}"
    _, root = fault.roots[0]
    if root.first.actions:
        line += f" - on each: {as_line(actions_text(root.advised))}"
    return line


def _summary(whole: FleetRow) -> str:
    """Numbers of hosts, GPUs and engines of the fleet, and of those that are not well."""
    silent = f" ({whole.silent} without an answer)" if whole.silent else ""
    troubled = f" ({whole.troubled} not ok)" if whole.troubled else ""
    hosts = counted(len(whole.hosts), "host")
    engines = counted(whole.engines, "engine")
    return f"{hosts}{troubled}  {_gpus_text(whole)}  {engines}{silent}"


def _gpus_text(row: FleetRow) -> str:
    """Number of GPUs in words."""
    if isinstance(row.gpus, Missing):
        return f"{NONE} GPUs"
    return counted(row.gpus, "GPU")


def _row_columns(first: str, rows: Sequence[FleetRow]) -> list[PrintedColumn]:
    """The columns of a table of hosts, models or owners (`first`: its title); that of costs only with prices."""
    name: ColumnSpec[FleetRow] = ColumnSpec(first, lambda row: clean(row.name, _LONGEST_NAME))
    if first == "host":
        second: ColumnSpec[FleetRow] = ColumnSpec("state", _state_text, right=True, keep=8)
    else:
        second = ColumnSpec("hosts", lambda row: str(len(row.hosts)), right=True, keep=8)
    columns = columns_of(rows, (name, second, *_FIGURE_COLUMNS))
    return [column for column in columns if column.title != _COST or set(column.texts) != {NONE}]


def _state_text(row: FleetRow) -> str:
    """State of a host, and how many of its engines answer if some do not; for all hosts, how many are `ok`."""
    if not row.key:
        well = ""
        if 0 < row.troubled < len(row.hosts):
            well = f" {len(row.hosts) - row.troubled}/{len(row.hosts)} hosts"
        return f"{row.state.value}{well}"
    silent = ""
    if row.silent and row.state in (HostState.OK, HostState.PARTIAL):
        silent = f" {row.engines - row.silent}/{counted(row.engines, 'engine')}"
    return f"{row.state.value}{silent}"


def _known_text(known: Known, write: Callable[[Reading], str]) -> str:
    """A figure in its unit, `31%`, or `31% 6/8` where it is known for 6 of 8 GPUs."""
    shown = write(known.value)
    if shown == NONE or known.gpus == known.of:
        return shown
    return f"{shown} {known.gpus}/{known.of}"


def _idle_text(row: FleetRow) -> str:
    """Cost of idle GPUs; their number if no price is known."""
    cost = row.idle_cost_per_h.value
    gpus = row.idle_gpus.value
    if not isinstance(cost, Missing):
        return f"{cost:,.2f}/h"
    if isinstance(gpus, Missing):
        return NONE
    return f"{gpus:.1f}"


def _cost_text(row: FleetRow) -> str:
    """Price of an hour of its GPUs, if they all have one."""
    cost = row.cost_per_h
    if isinstance(cost.value, Missing) or cost.gpus < cost.of:
        return NONE
    return f"{cost.value:,.2f}/h"


def _vram_text(row: FleetRow) -> str:
    """Used and whole memory in GiB; one dash where neither is known."""
    used = FORMAT_BY_UNIT["gib"](row.vram_used_bytes.value)
    whole = FORMAT_BY_UNIT["gib"](row.vram_total_bytes.value)
    if used == whole == NONE:
        return NONE
    return f"{used}/{whole}"


def _bandwidth_text(row: FleetRow) -> str:
    """Memory bandwidth as a share of its peak, with the sign of its source."""
    shown = _known_text(row.bandwidth_ratio, FORMAT_BY_UNIT["ratio"])
    if shown == NONE:
        return shown
    return row.bandwidth_source.sign + shown


def _latency_text(latency: RowLatency) -> str:
    """A latency; `^` marks the worst of several engines whose requests cannot be put together."""
    shown = least_time(latency.value) if latency.is_least else seconds_text(latency.value)
    if shown == NONE or latency.how in (ONE, MERGED):
        return shown
    return f"^{shown}"


def _worst_text(row: FleetRow) -> str:
    """The worst verdict, cut; empty where nothing is wrong."""
    return "" if row.level is Level.OK else clean(row.verdict, _LONGEST_VERDICT)


def _figure_column(title: str, text: Callable[[FleetRow], str], *, keep: int) -> ColumnSpec[FleetRow]:
    """A column of figures, flush right. `keep`: as in `PrintedColumn`."""
    return ColumnSpec(title, text, right=True, keep=keep)


def _known_column(figure: Figure, *, keep: int) -> ColumnSpec[FleetRow]:
    """A column of a figure that may be known for some of the GPUs alone."""
    write = cell_writer(figure)
    return _figure_column(figure.short, lambda row: _known_text(value_of(row, figure.field), write), keep=keep)


_FIGURE_COLUMNS: Final[tuple[ColumnSpec[FleetRow], ...]] = (
    _figure_column("gpus", lambda row: NONE if isinstance(row.gpus, Missing) else str(row.gpus), keep=NEVER_DROPPED),
    _known_column(GPU["busy_ratio"], keep=8),
    _figure_column(_COST, _cost_text, keep=4),
    _figure_column("idle", _idle_text, keep=8),
    _known_column(GPU["mfu_ratio"], keep=8),
    _known_column(GPU["mbu_ratio"], keep=8),
    figure_column(ENGINE["decode_tokens_per_s"], keep=7),
    figure_column(ENGINE["prefill_tokens_per_s"], keep=3),
    figure_column(ENGINE["running"], keep=5),
    figure_column(ENGINE["waiting"], keep=5),
    figure_column(ENGINE["kv_usage_ratio"], keep=6),
    _figure_column(ENGINE["ttft_s.p95"].short, lambda row: _latency_text(row.ttft_p95_s), keep=6),
    _figure_column(ENGINE["itl_s.p95"].short, lambda row: _latency_text(row.itl_p95_s), keep=5),
    _figure_column("vram GiB", _vram_text, keep=4),
    _figure_column(GPU["bandwidth_bytes_per_s"].short, _bandwidth_text, keep=3),
    _known_column(GPU["power_w"], keep=2),
    figure_column(ENGINE["tokens_per_j"], keep=2),
    ColumnSpec("worst", _worst_text, keep=1),
)
"""Columns of a host, a model or an owner behind its name."""
