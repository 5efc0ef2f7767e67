"""Filter and order: what is typed is looked for in what is seen, and what is missing comes last."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gpumon.readings.missing import Missing, Reading, Reason
from gpumon.tui import engine_table, gpu_table, process_table
from gpumon.tui.engine_table import FIGURE_NAMED
from gpumon.tui.gpu_table import GPU_LISTING
from gpumon.tui.rows import Order, matches, order_rows
from tests.each_row import each_row
from tests.tui import scenes
from tests.tui.painted import process

NONE = Missing(Reason.NOT_SUPPORTED)


@each_row(
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
    got = order_rows(values, order, turned=turned)
    known = [value for value in got if not isinstance(value, Missing)]
    assert got[: len(known)] == known
    assert known == sorted(known, reverse=not turned)
    assert sorted(map(repr, got)) == sorted(map(repr, values))


@given(st.lists(st.tuples(st.integers(0, 3), st.integers())), st.booleans(), st.booleans())
def test_equal_rows_keep_their_order(values: list[tuple[int, int]], turned: bool, descending: bool) -> None:
    order: Order[tuple[int, int]] = Order("value", lambda value: float(value[0]), descending)
    got = order_rows(values, order, turned=turned)
    for each in range(4):
        assert [value for value in got if value[0] == each] == [value for value in values if value[0] == each]


def test_no_order_is_the_order_in_which_rows_came() -> None:
    assert order_rows([3, 1, 2], None, turned=True) == [3, 1, 2]


@each_row(
    ("change", "wasted"),
    [
        ({"mfu_ratio": 0.3, "mbu_ratio": 0.6}, 0.4),
        ({"mfu_ratio": 0.6, "mbu_ratio": 0.3}, 0.4),
        ({"mfu_ratio": 0.3, "mbu_ratio": NONE}, 0.7),
        ({"mfu_ratio": NONE, "mbu_ratio": 0.6}, 0.4),
        ({"mfu_ratio": 0.6012, "mbu_ratio": 0.3}, 0.4),
        ({"mfu_ratio": 1.04, "mbu_ratio": 0.3}, 0.0),
        ({"mfu_ratio": NONE, "mbu_ratio": NONE, "sm_active_ratio": 0.5, "busy_ratio": 0.9}, 0.5),
        ({"mfu_ratio": NONE, "mbu_ratio": NONE, "sm_active_ratio": NONE, "busy_ratio": 0.9}, 0.1),
        ({"mfu_ratio": 0.3, "mbu_ratio": 0.6, "busy_ratio": NONE}, 0.4),
    ],
)
def test_waste_is_what_does_nothing_that_counts(change: dict[str, Any], wasted: float) -> None:
    value = gpu_table.waste(scenes.gpu(0, **change))
    assert not isinstance(value, Missing)
    assert math.isclose(value, wasted)


def test_waste_is_missing_where_nothing_says_what_was_done() -> None:
    none = dict.fromkeys(("mfu_ratio", "mbu_ratio", "sm_active_ratio", "busy_ratio"), NONE)
    assert isinstance(gpu_table.waste(scenes.gpu(0, **none)), Missing)


def named(orders: tuple[Order[Any], ...], name: str) -> Order[Any]:
    return next(order for order in orders if order.name == name)


def test_the_ways_to_sort() -> None:
    assert {order.name for order in gpu_table.ORDERS} == {
        *("index", "busy", "SM active", "VRAM", "memory bandwidth", "MFU", "MBU", "power", "temperature", "waste")
    }
    assert {order.name for order in engine_table.ORDERS} == {
        *("name", "running", "waiting", "KV cache", "decode", "prefill", "TTFT p95", "ITL p95", "MFU", "MBU", "waste"),
        *("TTFT in goal", "ITL in goal"),
    }
    assert [order.name for order in process_table.ORDERS] == ["VRAM", "SM", "GPU", "CPU", "pid", "user"]


@each_row("table", [gpu_table, engine_table, process_table])
def test_every_order_sorts_every_scene(table: Any) -> None:
    snapshots = [make() for make in scenes.SCENES.values()]
    rows: list[list[Any]] = {
        gpu_table: [list(of.gpus) for of in snapshots],
        engine_table: [list(of.engines) for of in snapshots],
        process_table: [
            process_table.running_processes([scenes.gpu(0, processes=(process(), process(7, vram_bytes=NONE)))])
        ],
    }[table]
    for order in table.ORDERS:
        for items in rows:
            once, back = (order_rows(items, order, turned=turned) for turned in (False, True))
            assert sorted(map(id, once)) == sorted(map(id, back)) == sorted(map(id, items))


def test_the_most_wasted_gpu_comes_first() -> None:
    gpus = [scenes.gpu(at, busy_ratio=0.9, mfu_ratio=0.01, mbu_ratio=0.1 * at) for at in (3, 1, 2)]
    assert [gpu.reading.index for gpu in order_rows(gpus, named(gpu_table.ORDERS, "waste"), turned=False)] == [1, 2, 3]


def test_an_idle_gpu_whose_memory_is_held_is_wasted_most_and_small_changes_move_no_row() -> None:
    none = {"mfu_ratio": NONE, "mbu_ratio": NONE, "engines": (), "busy_ratio": 0.0, "sm_active_ratio": 0.0}
    for small in (0.0, 0.004):
        gpus = [
            scenes.gpu(0, mfu_ratio=0.3, mbu_ratio=0.64 + small),
            scenes.gpu(1, mfu_ratio=0.3, mbu_ratio=0.643 - small),
            scenes.gpu(2, **none, vram_used_bytes=0.4e9),
            scenes.gpu(3, **none, vram_used_bytes=38.0 * scenes.GIB + small),
            scenes.gpu(4, **none, vram_used_bytes=38.1 * scenes.GIB - small),
            scenes.gpu(5, mfu_ratio=0.02, mbu_ratio=0.04, busy_ratio=1.0),
        ]
        of = order_rows(gpus, named(gpu_table.ORDERS, "waste"), turned=False)
        assert [gpu.reading.index for gpu in of] == [3, 4, 2, 5, 0, 1]


@each_row(
    ("wanted", "gpus"),
    [
        ("gpu7", [(7,), (6, 7)]),
        ("GPU7", [(7,), (6, 7)]),
        ("gpu 7", [(7,), (6, 7)]),
        ("-gpu7", [(1,), (17,), (70,), ()]),
        ("-gpu 7", [(1,), (17,), (70,), ()]),
        ("python gpu17", [(17,)]),
        ("gpu0", []),
        ("gpu" + "7" * 5000, []),
    ],
)
def test_a_gpu_with_its_number_means_that_one_and_no_other(wanted: str, gpus: list[tuple[int, ...]]) -> None:
    rows: list[tuple[int, ...]] = [(7,), (1,), (17,), (70,), (6, 7), ()]
    assert [of for of in rows if matches("4711 python gpu7.py --gpu 7", wanted, of)] == gpus


def test_processes_can_stand_by_gpu() -> None:
    of = [
        scenes.gpu(at, processes=tuple(process(pid) for pid in pids)) for at, pids in enumerate(((5, 9), (5,), (1, 7)))
    ]
    got = order_rows(process_table.running_processes(of), named(process_table.ORDERS, "GPU"), turned=False)
    assert [(running.process.pid, running.gpus) for running in got] == [(9, (0,)), (5, (0, 1)), (1, (2,)), (7, (2,))]


def test_names_are_sorted_from_a_to_z_whatever_their_case() -> None:
    engines = [scenes.engine(0, name=name) for name in ("b", "A", "c")]
    got = order_rows(engines, named(engine_table.ORDERS, "name"), turned=False)
    assert [engine.name for engine in got] == ["A", "b", "c"]


def test_processes_come_with_the_most_vram_first_and_the_unknown_last() -> None:
    held = {1: 1e9, 2: NONE, 3: 3e9, 4: 3e9}
    processes = tuple(process(pid, vram_bytes=vram) for pid, vram in held.items())
    got = process_table.running_processes([scenes.gpu(0, processes=processes)])
    assert [running.process.pid for running in got] == [3, 4, 1, 2]


@each_row(
    ("wanted", "passes"),
    [
        ("kv>80", False),
        ("kv<80", True),
        ("kv>=41", True),
        ("kv>40%", True),
        ("-kv>80", True),
        ("ttft>200ms", True),
        ("ttft>0.3s", False),
        ("wait<1 llama", True),
        ("decode>1k", True),
        ("power>3kw", False),
        ("ttft_ok>0", False),
        ("kv>80gib", False),
        ("nothing>3", False),
    ],
)
def test_a_word_of_a_filter_may_bound_a_figure(wanted: str, passes: bool) -> None:
    """One that is missing is in no bounds; where the row has no such figure, it is a word like any other."""
    engine = scenes.engine(0)
    assert matches("vllm:8000 llama", wanted, (), partial(FIGURE_NAMED, engine)) is passes


@each_row(
    ("wanted", "memory_unit", "passes"),
    [
        ("vram>41", "GiB", False),
        ("vram>41", "GB", True),
        ("vram>41g", "GB", True),
        ("vram>41gib", "GB", False),
        ("vram>41gb", "GiB", True),
    ],
)
def test_memory_is_bounded_in_the_unit_of_its_column(wanted: str, memory_unit: str, passes: bool) -> None:
    figure_named = partial(GPU_LISTING.figure_named, scenes.gpu(0, vram_used_bytes=40.0 * (1 << 30)))
    assert matches("gpu 0", wanted, (), figure_named, memory_unit) is passes


def test_words_that_look_like_bounds_are_words_where_there_is_no_such_figure() -> None:
    assert matches("a kv>80 b", "kv>80")
