"""The catalogue of figures: every figure of a record has its row, every row its figure, and both their unit."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, get_type_hints

import msgspec

from gpumon.figures.figure import Figures
from gpumon.figures.gpu import GPU, IN_ROWS
from gpumon.figures.host import SELF
from gpumon.figures.latency import LATENCIES_OF_ENGINES
from gpumon.figures.merge import Merge
from gpumon.figures.unit import unit_of
from gpumon.readings import quantities
from gpumon.readings.catalogue import FIGURES_BY_RECORD
from gpumon.readings.engine_options import EngineOptions
from gpumon.readings.flat import Part
from gpumon.readings.frame import GpuReading, HostReading
from gpumon.readings.missing import Reading
from gpumon.readings.snapshot import Engine, Replicas
from tests.architecture.parsed import MODULES, PACKAGE
from tests.each_row import each_row

COUNTS = {"tp", "pp", "ranks", "answering", "mapped"}
"""Rows of whole numbers: they are no `Reading`, as 0 says that they are not known."""
NO_RECORDS_OF_FIGURES = (EngineOptions,)
"""Settings of an engine, which have a table of their own in `readings/engine_options.py`."""


COSTS_IN_HOST = {f"self_{field}" for field in SELF}
"""Fields of a host's reading whose rows are those of `Self`."""


def readings_of(record: type[Any], prefix: str = "") -> Iterator[str]:
    """Flat paths of all figures of a record: those of its parts are its own, those of its objects behind a dot."""
    for name, kind in get_type_hints(record).items():
        if kind == Reading:
            yield f"{prefix}{name}"
        elif isinstance(kind, type) and issubclass(kind, Part):
            yield from readings_of(kind, prefix)
        elif isinstance(kind, type) and issubclass(kind, msgspec.Struct) and kind not in NO_RECORDS_OF_FIGURES:
            yield from readings_of(kind, f"{prefix}{name}.")


@each_row("record", [*FIGURES_BY_RECORD], named=lambda record: record.__name__)
def test_each_figure_of_a_record_has_its_row(record: type[Any]) -> None:
    assert set(readings_of(record)) - COSTS_IN_HOST <= set(FIGURES_BY_RECORD[record])


def test_what_the_driver_tells_has_its_row() -> None:
    assert set(readings_of(GpuReading)) <= set(GPU)
    assert set(readings_of(HostReading)) >= COSTS_IN_HOST


@each_row("record", [*FIGURES_BY_RECORD], named=lambda record: record.__name__)
def test_each_row_has_its_figure(record: type[Any]) -> None:
    rows = FIGURES_BY_RECORD[record]
    fields = {row.field for row in rows.values() if not row.derived} - COUNTS
    assert fields <= set(readings_of(record)), "each is a field of the record, or of a part of it"


@each_row("rows", [*FIGURES_BY_RECORD.values()])
def test_the_unit_of_a_row_is_that_of_its_name(rows: Figures) -> None:
    for row in rows.values():
        told = unit_of(row.field.rpartition(".")[2])
        assert told.endings == row.unit.endings or not told.endings, row.field


def test_a_field_that_bounds_another_is_there() -> None:
    for rows in FIGURES_BY_RECORD.values():
        assert {row.within for row in rows.values() if row.within} <= set(rows)


def test_a_mean_that_rows_show_is_a_figure_of_the_same_record() -> None:
    assert IN_ROWS
    for rows in FIGURES_BY_RECORD.values():
        assert {row.in_rows for row in rows.values() if row.in_rows} <= set(rows)


def test_a_latency_is_observed_by_a_quantity_of_engines() -> None:
    known = {value for value in vars(quantities).values() if isinstance(value, str)}
    assert {latency.quantity for latency in LATENCIES_OF_ENGINES} <= known


def test_a_field_that_weighs_another_in_a_mean_is_there() -> None:
    for rows in FIGURES_BY_RECORD.values():
        for row in rows.values():
            assert not row.weight or (row.weight in rows and row.merge is Merge.MEAN), row.field


def test_words_bounds_and_exported_names_are_written_in_the_catalogue_alone() -> None:
    builders = []
    for path in MODULES:
        calls = re.findall(r"(?<!class )\bExported\(", path.read_text(encoding="utf-8"))
        builders += [path.relative_to(PACKAGE).parts[0] for _ in calls]
    assert set(builders) == {"figures"}
    assert len(builders) > 200


def test_replicas_share_the_names_of_engines() -> None:
    assert set(readings_of(Replicas)) <= set(readings_of(Engine))
