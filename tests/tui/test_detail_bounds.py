"""What the detail page says at the edges: of small, large, missing and old figures, never more than is known."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial

from hypothesis import given
from hypothesis import strategies as st

from gpumon.config.schema import Config, Goals
from gpumon.readings.flat import flat_fields, value_of
from gpumon.readings.format import cells
from gpumon.readings.frame import EndpointState, GpuProcess, GpuState
from gpumon.readings.missing import Missing, Reason
from gpumon.readings.snapshot import Quantiles, TokensTotal
from gpumon.tui.detail import engine as engine_page
from gpumon.tui.detail import gpu as gpu_page
from gpumon.tui.detail import values
from gpumon.tui.detail.blocks import Figure, ReadyLine
from gpumon.tui.pages.detail import DetailPage
from gpumon.tui.view import View
from tests.each_row import each_row
from tests.records import replace
from tests.tui import scenes
from tests.tui.detail_scenes import NOW_S, VIEW, flat, full_engine, full_gpu, full_snapshot, page_of, whole

URL = full_engine().url
UUID = full_gpu().reading.uuid
LARGE = TokensTotal(31_000_000.0, 123_456_789.0, 9_999_999.0)
WRITERS: dict[str, Callable[[float], tuple[str, str]]] = {
    name: write
    for name, write in vars(values).items()
    if isinstance(write, partial) or getattr(write, "__annotations__", {}) == {"value": "float", "return": "Written"}
}
WRITERS["memory"] = values.memory(VIEW)


@given(
    st.sampled_from(sorted(WRITERS)),
    st.one_of(st.just(0.0), st.floats(1e-15, 1e24), st.floats(-12.0, 22.0).map(lambda at: 10**at)),
)
def test_a_number_fits_its_column_and_is_zero_only_for_zero(name: str, value: float) -> None:
    number, unit = WRITERS[name](value)
    assert cells(number) <= values.NUMBER_CELLS, (number, unit)
    assert cells(unit) <= 8
    assert (float(re.sub("[<>,]", "", number)) == 0.0) == (value == 0.0), number


def test_large_amounts_have_a_prefix() -> None:
    assert len(WRITERS) > 15
    text = flat(page_of(full_snapshot(engines=(full_engine(tokens_total=LARGE),)), "engine", URL))
    assert "decode 9,999,999 tok" in text
    assert "prefill 31.00 Mtok" in text
    assert "prefill cached 123.5 Mtok" in text


@each_row("factor", [1e-4, 1.0, 1e3, 1e6, 1e9])
def test_no_figure_is_cut(factor: float) -> None:
    engine, gpu = (
        replace(
            thing,
            **{
                name: value * factor
                for name in flat_fields(type(thing))
                if isinstance(value := value_of(thing, name), float) and name != "age_s"
            },
        )
        for thing in (full_engine(tokens_total=LARGE), full_gpu())
    )
    snapshot = full_snapshot(gpus=(gpu,), engines=(engine,))
    for sections in (engine_page.sections(engine, snapshot, VIEW), gpu_page.sections(gpu, snapshot, VIEW, None)):
        for figure in (each for section in sections for each in section.entries if isinstance(each, Figure)):
            assert "…" not in figure.number
            assert cells(figure.number) <= values.NUMBER_CELLS, figure


def throttled(page: DetailPage, slowed_s: float, after_s: float) -> str:
    """The page once the counter stands at `slowed_s`, `after_s` after it was opened."""
    gpu = full_gpu(throttle_s={"sw_power_cap": slowed_s, "hw_thermal_slowdown": 0.0}, age_s=0.0)
    page.show(full_snapshot(gpus=(gpu,), wall_s=NOW_S + after_s))
    return flat(page)


def test_throttled_time_and_its_share_of_the_time_between_two_changes() -> None:
    """The counter is read each 4 s: what is shown in between is as old as its last change."""
    page = page_of(full_snapshot(), "gpu", UUID)
    assert "sw power cap 12.5 s" in flat(page)
    assert "0 s since gpumon started: hw thermal slowdown" in flat(page)
    for after_s in (1.0, 2.0):
        assert "of the time" not in throttled(page, 12.5, after_s).partition("throttling")[2]
    for after_s in (3.0, 6.9):
        assert "of the time" not in throttled(page, 14.5, after_s).partition("throttling")[2]
    told = "of it 2.0 s in the 4.0 s from 08:53:25 to 08:53:29: 50.00% of the time"
    for after_s in (7.0, 8.0, 10.9):
        assert told in throttled(page, 16.5, after_s)
    lost = scenes.dead_gpu(0, GpuState.LOST, 600.0, scenes.LOST)
    page.show(full_snapshot(gpus=(lost,), wall_s=NOW_S + 610.0))
    assert told in flat(page)
    assert "of it 6.0 s in the 12 s from 08:53:25 to 08:53:37: 50.00%" in throttled(page, 20.5, 15.0)


def test_no_cause_of_slower_clocks_is_cut() -> None:
    slowed_s = {"hw_thermal_slowdown": 12.4, "hw_power_brake_slowdown": 3.5, "sw_thermal_slowdown": 0.0}
    text = flat(page_of(full_snapshot(gpus=(full_gpu(throttle_s=slowed_s),)), "gpu", UUID))
    assert "hw thermal 12.4 s" in text
    assert "hw power brake 3.5 s" in text
    assert "0 s since gpumon started: sw thermal slowdown" in text


def test_a_gpu_that_comes_back_brings_no_throttled_time_along() -> None:
    lost = scenes.dead_gpu(0, GpuState.LOST, 14.0, scenes.LOST)
    page = page_of(full_snapshot(gpus=(lost,)), "gpu", lost.reading.uuid)
    for slowed_s, after_s in ((100.0, 10.0), (100.0, 12.0), (104.0, 14.0)):
        assert "of it" not in throttled(page, slowed_s, after_s).partition("throttling")[2]


def test_the_textbook_form_at_one_stream_differs_by_the_kv_cache() -> None:
    def text(**changed: object) -> str:
        return flat(page_of(full_snapshot(engines=(full_engine(**changed),)), "engine", URL))

    alone = {"batch": 1.0, "weight_bytes_per_s": 3.43e12, "kv_bytes_per_s": 0.07e12, "bytes_per_s": 3.5e12}
    said = text(**alone, mbu_ratio=0.5, mbu_single_stream_ratio=0.49)
    assert "0.98 times MBU: the textbook form leaves out the KV cache, here 2.00% of all that is read" in said
    assert "1.00 times MBU the single-stream form" in text(
        batch=1.0, mbu_ratio=0.5, mbu_single_stream_ratio=0.5, weight_bytes=2e12
    )
    assert "single-stream" not in text(batch=2.0, mbu_ratio=0.25, mbu_single_stream_ratio=0.5, weight_bytes=2e12)


def test_a_quantile_in_the_open_bucket_is_a_bound() -> None:
    gone = Missing(Reason.INVALID)
    beyond = Quantiles(6.0, 60.0, 60.0, 80.0, 60.0, gone, 0.3, 5.0, 10.0, 60.0, gone)
    engine = full_engine(e2e_s=beyond)
    assert "E2E 80.00 s 6.000 s >60 s >60 s" in flat(page_of(full_snapshot(engines=(engine,)), "engine", URL))
    sections = engine_page.sections(engine, full_snapshot(), View(Config(goals=Goals(e2e_p95_ms=60_000.0))))
    rows = [each.row for section in sections for each in section.entries if isinstance(each, ReadyLine)]
    row = next(row for row in rows if "E2E" in row[0][0])
    assert [tone for _, tone in row[1:5]] == ["text", "text", "warn", "text"]


def test_an_nvlink_counter_that_fell_is_the_gpu_s() -> None:
    gpu = full_gpu(nvlink_tx_bytes_per_s=Missing(Reason.RESET))
    text = flat(page_of(full_snapshot(gpus=(gpu,)), "gpu", UUID))
    assert "? NVLink sent: the GPU's counter fell: the GPU was reset, or its driver reloaded" in text
    assert "engine was restarted" not in text


def test_a_pid_of_the_host_seen_from_a_container() -> None:
    def text(name: str) -> str:
        process = GpuProcess(12345, name, "", 1e9)
        return flat(page_of(full_snapshot(gpus=(full_gpu(processes=(process,)),)), "process", "12345"))

    inside = text("12345 (host)")
    assert inside.count("seen from inside a container: run gpumon on the host or with --pid=host") == 2
    assert "the kernel hides" not in inside
    assert text("python").count("the kernel hides") == 2


def test_reserved_memory_is_told_apart_only_where_it_is_known() -> None:
    told = "reserved is the driver's own, and not part of used"
    assert told in flat(page_of(full_snapshot(), "gpu", UUID))
    old = full_gpu(vram_reserved_bytes=Missing(Reason.NOT_SUPPORTED))
    assert told not in flat(page_of(full_snapshot(gpus=(old,)), "gpu", UUID))


@each_row(
    ("state", "reason"), [(EndpointState.REFUSED, Reason.UNREACHABLE), (EndpointState.STARTING, Reason.WARMING_UP)]
)
def test_an_engine_that_never_answered_was_never_read(state: EndpointState, reason: Reason) -> None:
    for age_s, said in ((0.0, "never read"), (7.0, "read 7.0 s ago")):
        engine = full_engine(state=state, age_s=age_s, running=Missing(reason))
        assert f" · {said}" in whole(page_of(full_snapshot(engines=(engine,)), "engine", URL), 80)[1]
