"""The naming of a Prometheus' targets as a table of text, for `gpumon doctor --prometheus`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from gpumon.outputs.tables import INDENT, ColumnSpec, columns_of, join_stripped, table, wrapped
from gpumon.readings.fleet import FleetFrame, NamedTarget
from gpumon.readings.format import counted
from gpumon.readings.text import clean

_COLUMNS: Final = (
    ColumnSpec[NamedTarget]("host", lambda row: row.host),
    ColumnSpec[NamedTarget]("named by", lambda row: row.how, keep=3),
    ColumnSpec[NamedTarget]("job", lambda row: row.job, keep=5),
    ColumnSpec[NamedTarget]("instance", lambda row: row.instance),
    ColumnSpec[NamedTarget]("read as", lambda row: row.kind),
    ColumnSpec[NamedTarget]("GPUs", lambda row: row.gpus, keep=4),
)
_NOTHING: Final = "no target of it is read"


def naming_report(rows: Sequence[NamedTarget], frame: FleetFrame, width: int) -> str:
    """The table of targets, and below it what is wrong with names, what is not read, and why GPUs are not known."""
    lines = list(table(columns_of(rows, _COLUMNS), width)) if rows else [_NOTHING]
    texts = [fault.text for fault in frame.faults]
    reasons = Counter(
        reading.gpus_source
        for host in frame.hosts
        for reading in host.engines
        if not reading.gpus and not reading.gpu_count
    )
    texts += [f"{counted(number, 'engine')}: {clean(reason, 400)}" for reason, number in reasons.items() if reason]
    if texts:
        lines.append("")
    for fault in texts:
        lines += wrapped(fault, width, "- ", INDENT)
    return join_stripped(lines)
