"""The page of what is free in a fleet: GPUs by type and host, room for models, faults of many hosts, versions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar, Final, NamedTuple

from gpumon.fleet.capacity import Capacity, ModelSpare, TypeCapacity, VersionSkew, capacity_of
from gpumon.fleet.common_faults import CommonFault, common_faults, hosts_text
from gpumon.fleet.free import Domain, Use
from gpumon.fleet.order import natural_order
from gpumon.fleet.snapshot import FleetSnapshot
from gpumon.readings.format import cells, counted, left, spans
from gpumon.readings.missing import Missing, Reading
from gpumon.readings.text import clean
from gpumon.triage.marks import MARKS
from gpumon.tui.fleet.moment import FleetMoment
from gpumon.tui.fold import folded
from gpumon.tui.line import Row, wrap_line
from gpumon.tui.palette import Palette
from gpumon.tui.view import View
from gpumon.tui.widgets.pane import Pane

_LEAST_NAME: Final = 28
"""Cells of the name at the start of a line on a narrow screen."""
_MOST_NAME: Final = 48
"""Cells of it on a wide one."""
_NONE: Final = "–"


class FreePage(Pane):
    """Free GPUs and what would fit on them, at the moment that the fleet's screen shows."""

    heading: str = "what is free"
    ZOOMS: ClassVar[bool] = False

    def __init__(self, palette: Palette, view: View) -> None:
        super().__init__(palette, view)
        self._moment: FleetMoment | None = None
        self._capacity: Capacity | None = None
        self._faults: Sequence[CommonFault] = ()

    def show_fleet(self, moment: FleetMoment | None) -> None:
        """Work out what is free at a moment of the fleet, and paint it."""
        if moment is None or moment is self._moment:
            return
        self._moment = moment
        self._capacity = capacity_of(moment.fleet, moment.models)
        self._faults = common_faults(moment.fleet)
        self.update()

    def is_title(self, row: Row) -> bool:
        """Whether a line is the title of a section."""
        return len(row) == 1 and row[0][1] == "muted"

    def body(self, width: int, height: int) -> Sequence[Row]:  # noqa: ARG002 - the signature of Pane
        """The sections that have something to tell."""
        if self._capacity is None or self._moment is None:
            return wrap_line("waiting for the first answer …", width, "muted")
        lines: list[Row] = []
        for title, rows in _sections(self._capacity, self._faults, self._moment.fleet):
            if not rows:
                continue
            if lines:
                lines.append(())
            lines.append(((f" {title}", "muted"),))
            for row in rows:
                lines += _row_lines(row, width)
        return lines or wrap_line("no GPU is reported", width, "muted")


class _FreeRow(NamedTuple):
    """A row of the page; its details go on in the lines below where the screen is narrow."""

    name: str
    text: str
    details: str = ""
    tone: str = "text"
    """Tone of the name."""


def _row_lines(row: _FreeRow, width: int) -> Iterator[Row]:
    """The row in lines of `width` cells, none of them cut but for a long name."""
    name_cells = min(_MOST_NAME, max(_LEAST_NAME, width // 3))
    room = width - name_cells - 3
    text = f"{row.text}  " if row.text and row.details else row.text
    details = folded(row.details, room, max(0, room - cells(text)))
    yield ((f" {left(row.name, name_cells)} ", row.tone), (text, "text"), (details[0], "muted"))
    for more in details[1:]:
        yield ((" " * (name_cells + 2) + more, "muted"),)


def _sections(
    capacity: Capacity, faults: Sequence[CommonFault], fleet: FleetSnapshot
) -> Iterator[tuple[str, Sequence[_FreeRow]]]:
    """Title and rows of each section; a section may have none."""
    yield "the same on many hosts", [_fault_row(fault) for fault in faults]
    yield "GPUs by type", [*(row for of_type in capacity.types for row in _type_rows(of_type)), *_unknown_rows(fleet)]
    yield "free on", [_domain_row(domain) for domain in capacity.domains if domain.free]
    yield "room for more engines", [_spare_row(spare) for spare in capacity.models]
    yield "free of all, by label", [_label_row(label, values) for label, values in capacity.groups.items()]
    yield "versions that differ", [row for skew in capacity.skews for row in _skew_rows(skew)]


def _fault_row(fault: CommonFault) -> _FreeRow:
    """A fault of several hosts."""
    mark = MARKS[fault.level]
    return _FreeRow(f"{mark.glyph} {clean(fault.words, 80)}", "", clean(hosts_text(fault.hosts), 200), mark.tone)


def _type_rows(of_type: TypeCapacity) -> Iterator[_FreeRow]:
    """GPUs of a type by their use; then what fits."""
    free = of_type.uses.get(Use.FREE.value, 0)
    others = [f"{count} {use}" for use, count in of_type.uses.items() if use != Use.FREE.value]
    yield _FreeRow(clean(of_type.gpu_type, 80), f"{free} of {of_type.gpus} free", ", ".join(others))
    if not free:
        return
    fits = ", ".join(f"TP {size} x {count}" for size, count in of_type.fits.items() if count)
    where = hosts_text([clean(host, 40) for host in of_type.largest_on], 3)
    text = f"fits {fits}; TP {of_type.largest_tp} on {where}; {_percent(of_type.fragmented_ratio)} fragmented"
    yield _FreeRow("", "", text)


def _unknown_rows(fleet: FleetSnapshot) -> Iterator[_FreeRow]:
    """The hosts whose GPUs are in no count, as none of them is reported."""
    names = sorted((clean(host.name, 40) for host in fleet.hosts if not host.snapshot.gpus), key=natural_order)
    if names:
        yield _FreeRow("not reported", f"GPUs of {counted(len(names), 'host')}", hosts_text(names))


def _domain_row(domain: Domain) -> _FreeRow:
    """Free GPUs of one type on a host."""
    free = f"{len(domain.free)} of {domain.gpus}: {spans(domain.free)}"
    return _FreeRow(clean(domain.host, 80), free, f"{clean(domain.gpu_type, 40)} {domain.link}")


def _spare_row(spare: ModelSpare) -> _FreeRow:
    """Room for a model."""
    load = f"run {_count(spare.running)}, wait {_count(spare.waiting)}, KV {_percent(spare.kv_usage_ratio)}"
    details = f"{spare.replicas} x {_count(spare.gpus_each)} GPUs now; {load}"
    return _FreeRow(clean(spare.model, 80), f"{_count(spare.more)} more fit", details)


def _label_row(label: str, values: Mapping[str, tuple[int, int]]) -> _FreeRow:
    """Free and all GPUs by the values of a label. `values`: value -> both numbers."""
    texts = [f"{clean(value, 40) or _NONE} {free}/{gpus}" for value, (free, gpus) in values.items()]
    return _FreeRow(clean(label, 80), "", "  ".join(texts))


def _skew_rows(skew: VersionSkew) -> Iterator[_FreeRow]:
    """A row for each version of a program."""
    name = clean(skew.program, 80)
    for version, hosts in skew.versions:
        where = hosts_text([clean(host, 40) for host in hosts])
        yield _FreeRow(name, clean(version, 40), f"{len(hosts)}: {where}")
        name = ""


def _percent(reading: Reading) -> str:
    """A share in percent."""
    return _NONE if isinstance(reading, Missing) else f"{reading:.0%}"


def _count(reading: Reading) -> str:
    """A whole number."""
    return _NONE if isinstance(reading, Missing) else f"{reading:,.0f}"
