"""The tables of triage have every row that stands beside a rule."""

from __future__ import annotations

import pkgutil
from importlib import import_module

import pytest

from gpumon import triage
from gpumon.readings.verdict import Limit
from gpumon.triage import rules
from gpumon.triage.finding import Cause


def test_each_cause_of_each_module_is_in_the_table() -> None:
    for module in pkgutil.iter_modules(triage.__path__):
        for row in vars(import_module(f"gpumon.triage.{module.name}")).values():
            if isinstance(row, Cause):
                assert rules.CAUSES.get(row.code) is row, (module.name, row.code)


def test_two_causes_of_one_code_are_told_at_once() -> None:
    rows = [Cause("queue", Limit.QUEUE_LIMIT, "it waits"), Cause("queue", Limit.DOWN, "it is gone")]
    with pytest.raises(ValueError, match="two causes have the code queue"):
        rules._by_code(rows)
