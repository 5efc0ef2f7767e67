"""The tables of triage have every row that stands beside a rule."""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator, Mapping
from importlib import import_module

import pytest

from gpumon import triage
from gpumon.readings.verdict import Limit
from gpumon.triage import rules
from gpumon.triage.finding import Cause, Quantity, Remedy
from gpumon.triage.thresholds import Thresholds
from tests.each_row import each_row

TABLES: dict[type, Mapping[str, object]] = {
    Cause: rules.CAUSES,
    Quantity: rules.QUANTITIES,
    Remedy: rules.REMEDIES,
}


def rows() -> Iterator[tuple[str, Cause | Quantity | Remedy]]:
    """Rows of all modules of triage, with the names of these."""
    for module in pkgutil.walk_packages(triage.__path__, "gpumon.triage."):
        for row in vars(import_module(module.name)).values():
            if isinstance(row, Cause | Quantity | Remedy):
                yield module.name, row


def test_each_row_of_each_module_is_in_its_table() -> None:
    for module, row in rows():
        assert TABLES[type(row)].get(row.code) is row, (module, row.code)


@each_row("quantity", [quantity for quantity in rules.QUANTITIES.values() if quantity.limit])
def test_the_limit_of_a_figure_is_a_threshold(quantity: Quantity) -> None:
    assert isinstance(getattr(Thresholds(), quantity.limit), float)


def test_two_rows_of_one_code_are_told_at_once() -> None:
    causes = [Cause("queue", Limit.QUEUE_LIMIT, "it waits"), Cause("queue", Limit.DOWN, "it is gone")]
    with pytest.raises(ValueError, match="two rows have the code queue"):
        rules.rows_by_code(Cause, causes)
