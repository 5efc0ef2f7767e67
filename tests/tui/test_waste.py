"""Who wastes most among the engines: an order, a column, and its formula."""

from __future__ import annotations

from gpumon.config.schema import Config
from gpumon.readings.missing import NOT_EXPOSED, Missing, Reading
from gpumon.tui.detail.cell import explain_cell
from gpumon.tui.engine_table import TABLE, wasted_gpus
from gpumon.tui.view import View
from gpumon.tui.widgets.list_pane import ListPane
from tests.each_row import each_row
from tests.records import replace
from tests.tui import scenes
from tests.tui.feed import Still
from tests.tui.running import running, text_of, until
from tests.tui.test_keys import type_keys

SNAPSHOT = scenes.SCENES["live"]()


@each_row(
    ("count", "mfu", "mbu", "wanted"),
    [
        (8.0, 0.25, 0.5, 4.0),
        (8.0, 0.25, NOT_EXPOSED, 6.0),
        (2.0, 1.2, 0.1, 0.0),
        (4.0, 0.0, 0.0, 4.0),
        (NOT_EXPOSED, 0.3, 0.3, None),
        (4.0, NOT_EXPOSED, NOT_EXPOSED, None),
    ],
)
def test_wasted_gpus_are_those_that_the_larger_share_leaves(
    count: Reading, mfu: Reading, mbu: Reading, wanted: float | None
) -> None:
    engine = replace(SNAPSHOT.engines[0], gpu_count=count, mfu_ratio=mfu, mbu_ratio=mbu)
    wasted = wasted_gpus(engine)
    if wanted is None:
        assert isinstance(wasted, Missing)
    else:
        assert wasted == wanted
        snapshot = replace(SNAPSHOT, engines=(engine,))
        text = explain_cell(("engine", engine.key), "waste", snapshot, View(Config())).text
        bound = "≤" if isinstance(mbu, Missing) else ""
        assert text.startswith(f"wasted GPUs {bound}{wanted:.1f} = {count:.0f} GPUs x (1 - ")
        assert f" {bound}{wanted:.1f}" in "".join(piece for piece, _ in TABLE.row(engine, 240, View(Config()), "text"))


async def test_the_order_waste_puts_the_largest_first() -> None:
    engines = tuple(
        replace(engine, gpu_count=4.0, mfu_ratio=0.1, mbu_ratio=share)
        for engine, share in zip(SNAPSHOT.engines, (0.9, 0.2, 0.5), strict=True)
    )
    snapshot = replace(SNAPSHOT, engines=engines)
    async with running(Still(snapshot, scenes.history(snapshot)), 200, 60) as (app, pilot):
        await type_keys(app, pilot, "2", "o", "G", "enter")
        await until(lambda: "by waste ↓" in "\n".join(text_of(app)), pilot)
        pane = app.monitor.panes["engines"]
        assert isinstance(pane, ListPane)
        assert [engine.name for engine in pane.listed_items()] == ["vllm:8001", "vllm:8002", "vllm:8000"]
        assert "waste gpu" in "\n".join(text_of(app))
