"""Filter and order: what is typed is looked for in what is seen, and what is missing comes last."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.readings.missing import Missing, Reading, Reason
from gpumon.tui import engine_table, gpu_table, process_table
from gpumon.tui.rows import Order, matches, ordered
from tests.tui import scenes
from tests.tui.painted import process

NONE = Missing(Reason.NOT_SUPPORTED)


@pytest.mark.parametrize(
    ("wanted", "passes"),
    [
        ("", True),
        ("LLAMA", True),
        ("llama vllm", True),
        ("llama sglang", False),
        ("-sglang", True),
        ("llama -8000", False),
        ("-", False),
        ("  llama  ", True),
        ("ß", False),
    ],
)
def test_a_row_passes_where_every_word_is_in_it_and_no_excluded_one(wanted: str, passes: bool) -> None:
    assert matches("vllm:8000 meta/Llama_3.3", wanted) is passes


def test_case_is_folded_on_both_sides() -> None:
    assert matches("STRASSE", "straße")
    assert matches("straße", "STRASSE")


@given(
    st.lists(st.one_of(st.floats(allow_nan=False), st.sampled_from(Reason).map(Missing)), max_size=20), st.booleans()
)
def test_what_is_missing_comes_last_either_way(values: list[Reading], turned: bool) -> None:
    order: Order[Reading] = Order("value", lambda value: value)
    got = ordered(values, order, turned=turned)
    known = [value for value in got if not isinstance(value, Missing)]
    assert got[: len(known)] == known
    assert known == sorted(known, reverse=not turned)
    assert sorted(map(repr, got)) == sorted(map(repr, values))


@given(st.lists(st.tuples(st.integers(0, 3), st.integers())), st.booleans(), st.booleans())
def test_equal_rows_keep_their_order(values: list[tuple[int, int]], turned: bool, descending: bool) -> None:
    order: Order[tuple[int, int]] = Order("value", lambda value: float(value[0]), descending)
    got = ordered(values, order, turned=turned)
    for each in range(4):
        assert [value for value in got if value[0] == each] == [value for value in values if value[0] == each]


def test_no_order_is_the_order_in_which_rows_came() -> None:
    assert ordered([3, 1, 2], None, turned=True) == [3, 1, 2]


@pytest.mark.parametrize(
    ("change", "wasted"),
    [
        ({"busy_ratio": 0.9, "mfu_ratio": 0.3, "mbu_ratio": 0.6}, 0.36),
        ({"busy_ratio": 0.9, "mfu_ratio": 0.6, "mbu_ratio": 0.3}, 0.36),
        ({"busy_ratio": 0.9, "mfu_ratio": 0.3, "mbu_ratio": NONE}, 0.63),
        ({"busy_ratio": 0.9, "mfu_ratio": NONE, "mbu_ratio": 0.6}, 0.36),
        ({"busy_ratio": 0.9, "mfu_ratio": NONE, "mbu_ratio": NONE, "sm_active_ratio": 0.5}, 0.45),
    ],
)
def test_waste_is_the_busy_time_that_does_nothing_that_counts(change: dict[str, Any], wasted: float) -> None:
    value = gpu_table.waste(scenes.gpu(0, **change))
    assert not isinstance(value, Missing)
    assert math.isclose(value, wasted)


def test_waste_is_missing_where_nothing_says_what_was_done() -> None:
    none = {"mfu_ratio": NONE, "mbu_ratio": NONE, "sm_active_ratio": NONE}
    assert isinstance(gpu_table.waste(scenes.gpu(0, **none)), Missing)
    lost = Missing(Reason.LOST)
    assert gpu_table.waste(scenes.gpu(0, busy_ratio=lost)) is lost


def named(orders: tuple[Order[Any], ...], name: str) -> Order[Any]:
    return next(order for order in orders if order.name == name)


def test_the_ways_to_sort() -> None:
    assert {order.name for order in gpu_table.ORDERS} == {
        *("index", "busy", "SM", "VRAM", "bandwidth", "MFU", "MBU", "power", "temperature", "waste")
    }
    assert {order.name for order in engine_table.ORDERS} == {
        *("name", "running", "waiting", "KV", "decode", "prefill", "TTFT p95", "ITL p95", "MFU", "MBU")
    }
    assert [order.name for order in process_table.ORDERS] == ["VRAM", "SM", "pid", "user"]


@pytest.mark.parametrize("table", [gpu_table, engine_table, process_table])
def test_every_order_sorts_every_scene(table: Any) -> None:
    snapshots = [make() for make in scenes.SCENES.values()]
    rows: list[list[Any]] = {
        gpu_table: [list(of.gpus) for of in snapshots],
        engine_table: [list(of.engines) for of in snapshots],
        process_table: [process_table.merged([scenes.gpu(0, processes=(process(), process(7, vram_bytes=NONE)))])],
    }[table]
    for order in table.ORDERS:
        for items in rows:
            once, back = (ordered(items, order, turned=turned) for turned in (False, True))
            assert sorted(map(id, once)) == sorted(map(id, back)) == sorted(map(id, items))


def test_the_most_wasted_gpu_comes_first() -> None:
    gpus = [scenes.gpu(at, busy_ratio=0.9, mfu_ratio=0.01, mbu_ratio=0.1 * at) for at in (3, 1, 2)]
    assert [gpu.index for gpu in ordered(gpus, named(gpu_table.ORDERS, "waste"), turned=False)] == [1, 2, 3]


def test_names_are_sorted_from_a_to_z_whatever_their_case() -> None:
    engines = [scenes.engine(0, name=name) for name in ("b", "A", "c")]
    got = ordered(engines, named(engine_table.ORDERS, "name"), turned=False)
    assert [engine.name for engine in got] == ["A", "b", "c"]


def test_processes_come_with_the_most_vram_first_and_the_unknown_last() -> None:
    held = {1: 1e9, 2: NONE, 3: 3e9, 4: 3e9}
    processes = tuple(process(pid, vram_bytes=vram) for pid, vram in held.items())
    got = process_table.merged([scenes.gpu(0, processes=processes)])
    assert [running.process.pid for running in got] == [3, 4, 1, 2]
