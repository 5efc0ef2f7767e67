"""The fleet's screen in the real application over the real control: keys, drill-down, filter, order, time, faults."""

from __future__ import annotations

import re

import pytest

from gpumon.config.keymap import COMMANDS
from gpumon.config.schema import Config, Prices, Prometheus
from gpumon.config.schema import Fleet as FleetSettings
from gpumon.fleet.fleet import GONE_HOST_S
from gpumon.readings.fleet import HostFrame
from gpumon.readings.format import cells
from gpumon.readings.frame import Fault
from gpumon.readings.missing import Missing
from gpumon.tui.fleet.app import FleetApp
from gpumon.tui.fleet.moment import HOSTS, MODELS
from gpumon.tui.screens.monitor import MonitorScreen
from tests.history.frames import WALL_S
from tests.records import replace
from tests.tui.fleet_feed import CONFIG, MIXED, NEWEST_S, Scrapes, bare, has_rates, lost, owned, watching
from tests.tui.running import foot, text_of, until

LONG_FAULT = "http://prometheus.example:9090 " + "refuses the connection for a long reason " * 3 + "- start it"


def rows_of(app: FleetApp) -> list[str]:
    """Names in the table, in order."""
    return [row.name for row in app.monitor.body.table.listed_items()]


def cursor_of(app: FleetApp) -> str:
    """The name under the cursor."""
    found = [line for line in text_of(app) if line.startswith("▸")]
    assert len(found) == 1, text_of(app)
    return found[0][1:].split()[0]


async def test_the_title_says_where_how_many_and_how_old_and_never_a_secret() -> None:
    config = Config(prometheus=Prometheus(url="http://reader:secret@prometheus.example:9090/api?x=1"))
    async with watching(Scrapes(5), 120, 40, config=config) as (app, _):
        title, screen = text_of(app)[0], "\n".join(text_of(app))
    assert title.startswith(" gpumon  fleet · prometheus.example:9090 · 5 hosts · 40 GPUs · 20 engines ")
    assert title.endswith("● 12s ago 08:03:00")
    assert "secret" not in screen
    assert "reader" not in screen


async def test_sums_and_shares_say_of_how_many_gpus_they_are() -> None:
    async with watching(Scrapes(5), 120, 40) as (app, _):
        lines = text_of(app)
        row = app.monitor.body.table.selected
    assert " tok/s " in lines[1]
    assert lines[2].startswith(" busy ")
    assert "mfu mbu of 31/40  busy of 39/40" in lines[2]
    assert lines[3].startswith(" waiting ")
    assert "idle" in lines[3]
    assert "$" not in lines[3]
    assert row is not None
    assert row.mfu_ratio.gpus < row.mfu_ratio.of
    assert "%~" in next(line for line in lines if line.startswith("▸"))
    assert any(f"MFU of {row.mfu_ratio.gpus} of {row.mfu_ratio.of} GPUs" in line for line in lines)


async def test_with_prices_what_lies_idle_is_money_and_wide_sums_have_the_price_of_tokens() -> None:
    config = replace(CONFIG, prices=Prices(gpu_hour=2.5))
    async with watching(Scrapes(5), 120, 40, config=config) as (app, pilot):
        lines = text_of(app)
        shown = app.monitor.shown
        await pilot.resize_terminal(240, 40)
        await until(lambda: any("per 1M output" in line and " $" in line for line in text_of(app)[:5]), pilot)
    assert shown is not None
    cost = shown.total.idle_cost_per_h.value
    idle = shown.total.idle_gpus.value
    assert cost == pytest.approx(2.5 * idle)  # type: ignore[operator]
    assert any("$/h" in line and " GPUs" in line for line in lines[:5])
    assert any("idle/h" in line for line in lines)
    assert shown.total.cost_per_million_output_tokens == pytest.approx(
        shown.total.cost_per_h.value / 3600.0 / shown.total.decode_tokens_per_s * 1e6  # type: ignore[operator]
    )


async def test_keys_move_and_the_view_follows() -> None:
    async with watching(Scrapes(30, single=True), 80, 24) as (app, pilot):
        names = rows_of(app)
        for keys, at in (
            (("home",), 0),
            (("down", "j"), 2),
            (("up",), 1),
            (("G",), 29),
            (("k",), 28),
            (("g",), 0),
            (("end",), 29),
            (("home",), 0),
        ):
            await pilot.press(*keys)
            assert cursor_of(app) == names[at]
        await pilot.press("pagedown")
        assert cursor_of(app) == names[app.monitor.body.table.page_step()]
        await pilot.press("pageup")
        assert cursor_of(app) == names[0]
        assert f"1-{app.monitor.body.table.size.height - 2} of 30" in text_of(app)[3]


async def test_the_cursor_stays_on_its_host_through_orders_and_refreshes() -> None:
    source = Scrapes(30, single=True)
    async with watching(source, 80, 24) as (app, pilot):
        await pilot.press("down", "down", "down")
        chosen = cursor_of(app)
        await pilot.press("o", "down", "down", "enter")
        assert app.monitor.body.table.filter.order is app.monitor.body.table.listing.orders[2]
        assert cursor_of(app) == chosen
        assert rows_of(app) == sorted(rows_of(app), reverse=rows_of(app)[0] > rows_of(app)[-1])
        asked = len(source.asked)
        await pilot.press("r")
        await until(lambda: len(source.asked) > asked and not app.control.fleet.asking, pilot)
        assert cursor_of(app) == chosen


async def test_models_and_hosts() -> None:
    async with watching(Scrapes(5), 120, 40) as (app, pilot):
        await pilot.press("m")
        assert app.monitor.body.table.grouping == MODELS
        lines = text_of(app)
        assert any(line.startswith("─── models ") for line in lines)
        assert any("Qwen3-30B-A3B" in name for name in rows_of(app))
        await pilot.press("enter")
        assert app.monitor.body.table.grouping == HOSTS
        assert app.monitor.body.table.filter.text.startswith('model="')
        assert rows_of(app)
        await pilot.press("escape")
        assert len(rows_of(app)) == 5
        await pilot.press("m", "m")
        assert app.monitor.body.table.grouping == HOSTS
        await pilot.press("f")
        assert "z shows the wall of GPUs first" in foot(app)
        await pilot.press("z", "m")
        await until(lambda: "z shows the hosts first" in text_of(app)[-1], pilot)


async def test_orders_turn_round_and_have_a_column_at_every_width() -> None:
    async with watching(Scrapes(5), 80, 24) as (app, pilot):
        await pilot.press("o", *["down"] * 2, "enter")
        first = rows_of(app)
        await pilot.press("o", "enter")
        assert rows_of(app) == first[::-1]
        table = app.monitor.body.table
        for order in table.listing.orders:
            table.sort(None)
            table.sort(order)
            await pilot.pause()
            shown = {column.name for column in table.columns().columns(80, app.view.hidden)}
            assert {"waste": "idle", "level": "name"}.get(order.name, order.name) in shown
            head = next(line for line in text_of(app) if line.startswith(" host "))
            assert head.rstrip().endswith("verdict")
        table.sort(None)
        await pilot.press("m", "o")
        assert any("sort models by" in line for line in text_of(app))
        await pilot.press("escape")
        assert not any(line[1:].startswith(("Qwen/", "meta-llama/")) for line in text_of(app))
        assert any(line[1:].startswith("Qwen3-30B-A3B") for line in text_of(app))
        assert any("idle gpu" in line for line in text_of(app))


async def test_a_resize_lays_out_anew_and_who_waits_has_a_column_at_every_width() -> None:
    async with watching(Scrapes(5), 80, 24) as (app, pilot):
        assert not app.monitor.body.foot.display
        for width, height, foot in ((120, 40, True), (60, 15, False), (200, 60, True), (80, 29, False), (80, 30, True)):
            await pilot.resize_terminal(width, height)
            await pilot.pause(0.05)
            assert app.monitor.body.foot.display is foot, (width, height)
            assert len(text_of(app)) == height
        for width in (60, 80, 100):
            await pilot.resize_terminal(width, 24)
            await until(lambda width=width: len(text_of(app)[0]) <= width, pilot)  # type: ignore[misc]
            head = next(line for line in text_of(app) if line.startswith(" host "))
            assert " wait " in head
            assert " ttft p95" in head
            assert width < 80 or " mfu" in head


async def test_m_goes_on_to_the_owners_by_each_label() -> None:
    config = replace(CONFIG, prices=Prices(gpu_hour=2.0), fleet=FleetSettings(owners=("namespace", "rack")))
    source = Scrapes(5, wrong={"gpu01": owned, "gpu02": lost})
    async with watching(source, 80, 24, config=config) as (app, pilot):
        assert "m models" in foot(app)
        await pilot.press("m")
        assert "m namespace" in foot(app)
        await pilot.press("m")
        assert set(rows_of(app)) == {"chat", "search", "no namespace label"}
        lines = text_of(app)
        assert any(line.startswith("─── owners (namespace) ") for line in lines)
        head = next(line for line in lines if " cost/h" in line)
        titles = {"owner", "gpus", "idle", "decode", "mfu", "cost/h", "idle/h", "verdict"}
        assert titles <= set(head.split())
        chat = next(line for line in lines if line[1:].startswith("chat "))
        assert chat.split()[1] == "4"
        assert "8.00" in chat, "4 GPUs at 2.00 an hour"
        await pilot.press("g", *["down"] * rows_of(app).index("chat"), "enter")
        assert app.monitor.body.table.grouping == HOSTS
        assert app.monitor.body.table.filter.text == 'namespace="chat"'
        assert rows_of(app) == ["gpu01"]
        await pilot.press("escape", "m", "m", "m")
        assert set(rows_of(app)) == {"0", "1", "2"}
        await pilot.press("m")
        assert app.monitor.body.table.grouping == HOSTS


async def test_below_the_row_of_an_owner_stand_its_hosts_and_what_it_holds_there() -> None:
    config = replace(CONFIG, fleet=FleetSettings(owners=("rack",)))
    async with watching(Scrapes(6, wrong={"gpu02": lost}), 120, 40, config=config) as (app, pilot):
        await pilot.press("m", "m")
        row = app.monitor.body.table.selected
        assert row is not None
        lines = text_of(app)
        below = lines[next(at for at, line in enumerate(lines) if line.startswith(f"─── {row.name} ")) + 1 :]
        for host in row.hosts:
            assert any(line.split()[:3] == [host, "8", "GPUs,"] for line in below), host


UNSCRAPED = "the Prometheus cannot scrape this host's dcgm-exporter (up is 0): see its page /targets for the reason"


def unscraped(host: HostFrame) -> HostFrame:
    """Its exporter is not scraped, and nothing else of it is known."""
    fault = Fault("prometheus", UNSCRAPED, WALL_S)
    return replace(host, gpus=(), engines=(), faults=(fault,))


async def test_what_is_cut_behind_a_row_goes_on_below_it_where_there_is_room() -> None:
    """Further lines belong to their row for a click, and take no row's place."""
    source = Scrapes(5, wrong={"gpu01": unscraped, "gpu02": lost})
    async with watching(source, 120, 40) as (app, pilot):
        table = app.monitor.body.table
        lines = text_of(app)
        top = next(number for number, text in enumerate(lines) if text.startswith(" host "))
        [place] = [number for number, row in enumerate(table.listed_items()) if row.name == "gpu01"]
        [number] = [number for number, text in enumerate(lines) if text[1:].startswith("gpu01 ")]
        column = lines[number].index("✗ ")
        sentence = " ".join(text[column:].strip() for text in lines[number : number + 4])
        assert UNSCRAPED in sentence
        assert not lines[number + 1][:column].strip()
        assert all(any(text[1:].startswith(name) for text in lines[top:]) for name in rows_of(app))
        await pilot.press("G", "g")
        await pilot.click(offset=(30, number + 1))
        await until(lambda: table.selected is table.listed_items()[place], pilot)
        await pilot.resize_terminal(120, 30)
        await until(lambda: len(text_of(app)) == 30, pilot)
        assert all(any(text[1:].startswith(name) for text in text_of(app)) for name in rows_of(app))


async def test_m_goes_to_a_group_of_the_host_that_was_left() -> None:
    """Without a move the cursor stays on the first row, which may be the worst one."""
    async with watching(Scrapes(4, single=True), 80, 24) as (app, pilot):
        table = app.monitor.body.table
        await pilot.press("m")
        assert rows_of(app)[0] != "no engine"
        assert table.selected.name == rows_of(app)[0]
        await pilot.press("m")
        assert table.grouping == HOSTS
        for place in range(1, 4):
            await pilot.press("g", *["down"] * place)
            host = table.selected.name
            await pilot.press("m")
            assert host in table.selected.hosts
            await pilot.press("m")
            assert table.selected.name == host


async def test_enter_on_gpus_without_engine_says_why_it_does_nothing() -> None:
    async with watching(Scrapes(4, single=True), 80, 24) as (app, pilot):
        await pilot.press("m", "G")
        names = rows_of(app)
        at = names.index("no engine")
        await pilot.press("g", *["down"] * at, "enter")
        assert app.monitor.body.table.grouping == MODELS
        assert "no engine runs there" in foot(app)


async def test_a_filter_follows_what_is_typed_the_sums_are_of_what_it_lets_through_and_escape_drops_it() -> None:
    others = {f"gpu{number:02d}": bare for number in range(5, 13)}
    async with watching(Scrapes(12, wrong={**MIXED, **others}), 80, 24) as (app, pilot):
        await pilot.press("slash", *"host=gpu0*")
        assert len(rows_of(app)) == 9
        await pilot.press("enter")
        assert len(rows_of(app)) == 9
        assert "9 of 12" in text_of(app)[2]
        await pilot.press("escape")
        assert len(rows_of(app)) == 12
        await pilot.press("slash", *"rack=0", "escape")
        assert len(rows_of(app)) == 12
        await pilot.press("slash", *"rack=0", "enter")
        assert rows_of(app) == sorted(rows_of(app), key=rows_of(app).index)
        assert set(rows_of(app)) == {"gpu01", "gpu02"}
        await pilot.press("escape")
        await pilot.resize_terminal(120, 40)
        await pilot.press("slash", *"host=gpu02", "enter")
        assert "1 of 12 hosts · 8 of 96 GPUs · 4 of 16 engines" in text_of(app)[0]
        assert text_of(app)[2].startswith(" 1 of 12 hosts:  busy 86%")
        await pilot.press("escape", "slash", *"nothing", "enter")
        assert text_of(app)[2:4] == [" 0 of 12 hosts", ""]
        await pilot.press("escape", "slash", *"zone=eu", "enter")
        said = " ".join(text_of(app))
        assert "nothing has a label zone: there are host model engine gpu verdict, and of the targets" in said
        await pilot.press("escape", "slash", *"rack=7", "enter")
        assert 'none of 12 hosts matches "rack=7"' in " ".join(text_of(app))
        await pilot.press("escape", "slash", *"wait>100", "enter")
        assert "the filter of a fleet bounds no figure: o sorts by one; Esc: all rows" in " ".join(text_of(app))
        await pilot.press("escape", "slash", *'"gpu')
        assert len(rows_of(app)) == 12
        assert any("no filter: a quote is not closed" in line for line in text_of(app))
        await pilot.press("escape")
        assert not any("no filter" in line for line in text_of(app))
        assert "12 hosts · 96 GPUs" in text_of(app)[0]
        assert text_of(app)[2].startswith(" busy ")


async def test_a_host_is_opened_and_left_again() -> None:
    async with watching(Scrapes(5), 120, 40) as (app, pilot):
        await pilot.press("down")
        name = cursor_of(app)
        await pilot.press("enter")
        await until(lambda: app.host_screen is not None and app.host_screen.shown is not None, pilot, 20.0)
        assert isinstance(app.screen, MonitorScreen)
        assert text_of(app)[0].startswith(f" gpumon  fleet > {name}")
        assert any("─2─ engines" in line for line in text_of(app))
        await pilot.press("enter")
        assert app.host_screen is not None
        assert app.host_screen.pages.shown is not None
        await pilot.press("escape")
        assert app.host_screen is not None
        assert app.host_screen.pages.shown is None
        await pilot.press("z", "escape")
        assert app.host_screen is not None
        await pilot.press("escape")
        await until(lambda: app.screen is app.monitor, pilot)
        assert app.host_screen is None
        assert cursor_of(app) == name
        await pilot.press("up", "enter")
        await until(lambda: app.host_screen is not None and app.host_screen.shown is not None, pilot, 20.0)
        assert name not in text_of(app)[0]


async def test_a_host_is_opened_at_the_moment_that_is_shown() -> None:
    async with watching(Scrapes(3), 120, 40) as (app, pilot):
        await pilot.press("space", "left", "left")
        await until(lambda: app.monitor.gone_back and not app.monitor.travel.seeking, pilot, 20.0)
        at_s = NEWEST_S - 30.0
        await pilot.press("enter")
        await until(lambda: app.host_screen is not None and app.host_screen.gone_back, pilot, 20.0)
        assert app.host_screen is not None
        assert app.host_screen.shown is not None
        assert app.host_screen.shown.wall_s == pytest.approx(at_s, abs=15.0)
        assert "AGO" in text_of(app)[0]


async def test_a_host_of_the_past_alone_is_opened_as_it_was() -> None:
    source = Scrapes(3)
    async with watching(source, 120, 40) as (app, pilot):
        source.left = {"gpu02"}
        await pilot.press("r")
        await until(lambda: any("✗ gone" in line for line in text_of(app)), pilot, 20.0)
        source.later_s = GONE_HOST_S + 1.0
        await pilot.press("r")
        await until(lambda: "2 hosts" in text_of(app)[0], pilot, 20.0)
        await pilot.press("space", "left_square_bracket", "left_square_bracket", "left")
        await until(lambda: "3 hosts" in text_of(app)[0] and not app.monitor.travel.seeking, pilot, 20.0)
        await pilot.press(*["up"] * 3, *["down"] * rows_of(app).index("gpu02"), "enter")
        await until(lambda: app.host_screen is not None and app.host_screen.gone_back, pilot, 20.0)
        assert app.host_screen is not None
        assert app.host_screen.shown is not None
        assert app.host_screen.shown.wall_s == NEWEST_S - 14.0
        assert "26s AGO" in text_of(app)[0]
        assert any(isinstance(engine.rates.decode_tokens_per_s, float) for engine in app.host_screen.shown.engines)
        await pilot.press("end")
        await until(lambda: app.host_screen is not None and not app.host_screen.gone_back, pilot, 20.0)
        assert all(isinstance(engine.rates.decode_tokens_per_s, Missing) for engine in app.host_screen.shown.engines)
        assert any("has nothing of this host any more" in fault.text for fault in app.host_screen.shown.faults)


async def test_back_in_time_and_live_again() -> None:
    source = Scrapes(5)
    async with watching(source, 120, 40) as (app, pilot):
        await pilot.press("left")
        assert not app.monitor.travel.paused
        await pilot.press("right_square_bracket")
        assert "this is live" in foot(app)
        await pilot.press("space")
        assert "PAUSED at 08:02:48" in text_of(app)[0]
        await pilot.press("left")
        await until(lambda: app.monitor.gone_back and not app.monitor.travel.seeking, pilot, 20.0)
        assert "27s AGO 08:02:33" in text_of(app)[0]
        await pilot.press("comma", "comma", "full_stop")
        await until(lambda: "42s AGO" in text_of(app)[0] and not app.monitor.travel.seeking, pilot, 20.0)
        asked = len(source.asked)
        await pilot.press("r")
        await until(lambda: len(source.asked) > asked and not app.control.fleet.asking, pilot)
        assert "42s AGO" in text_of(app)[0], "a refresh does not take the display away from the past"
        await pilot.press("end")
        assert text_of(app)[0].endswith("● 12s ago 08:03:00")
        assert not app.monitor.gone_back


async def test_a_moment_that_is_asked_for_is_announced_and_keys_go_on_meanwhile() -> None:
    source = Scrapes(5)
    async with watching(source, 120, 40) as (app, pilot):
        await pilot.press("space")
        source.free.clear()
        await pilot.press("left")
        await until(lambda: "ASKING FOR 08:02:33" in text_of(app)[0], pilot)
        before = cursor_of(app)
        await pilot.press("down")
        assert cursor_of(app) != before
        await pilot.press("left", "left")
        source.free.set()
        await until(lambda: "57s AGO" in text_of(app)[0] and not app.monitor.travel.seeking, pilot, 20.0)


async def test_live_again_while_a_moment_is_asked_for() -> None:
    source = Scrapes(3)
    async with watching(source, 120, 40) as (app, pilot):
        await pilot.press("space")
        source.free.clear()
        await pilot.press("left")
        await until(lambda: "ASKING FOR" in text_of(app)[0], pilot)
        await pilot.press("space")
        assert "ASKING FOR" not in text_of(app)[0], "what hangs does not matter any more"
        await until(lambda: text_of(app)[0].endswith("● 12s ago 08:03:00"), pilot)
        await pilot.press("space", "left")
        await until(lambda: "ASKING FOR 08:02:33" in text_of(app)[0], pilot)
        source.free.set()
        await until(lambda: "27s AGO" in text_of(app)[0] and not app.monitor.travel.seeking, pilot, 20.0)
        await pilot.press("end")
        assert not app.monitor.gone_back
        await until(lambda: text_of(app)[0].endswith("● 12s ago 08:03:00"), pilot)


async def test_a_moment_that_can_not_be_had_leaves_what_is_shown() -> None:
    source = Scrapes(5)
    async with watching(source, 80, 24) as (app, pilot):
        source.fault = "it takes too long"
        await pilot.press("left_square_bracket")
        await until(lambda: "07:57:48 cannot be had: it takes too long" in foot(app), pilot, 20.0)
        assert not app.monitor.travel.paused
        assert text_of(app)[0].endswith("● 12s ago 08:03:00")
        await pilot.press("space", "left_square_bracket")
        await until(lambda: "it takes too long" in foot(app), pilot, 20.0)
        assert "PAUSED at 08:02:48" in text_of(app)[0]
        assert len(rows_of(app)) == 5


async def test_before_all_there_is_the_screen_goes_to_where_it_begins() -> None:
    async with watching(Scrapes(5), 80, 24) as (app, pilot):
        for keys, asked in ((("left_square_bracket",), "07:57:48"), (("space", "home"), "08:02:48")):
            await pilot.press(*keys)
            await until(lambda: app.monitor.gone_back and not app.monitor.travel.seeking, pilot, 20.0)
            said = foot(app)
            assert re.search(rf"nothing at (2026-12-31 )?{asked}", said)
            assert "the first after it" in said
            assert "…" not in said
            assert app.monitor.shown is not None
            assert app.monitor.shown.fleet.wall_s - WALL_S < 30.0
            assert len(rows_of(app)) == 5
            await pilot.press("end")
            await until(lambda: text_of(app)[0].endswith("● 12s ago 08:03:00"), pilot)


async def test_a_host_of_a_frozen_fleet_is_opened_at_that_moment() -> None:
    source = Scrapes(3)
    async with watching(source, 120, 40) as (app, pilot):
        await pilot.press("space")
        source.later_s = 120.0
        await pilot.press("r")
        await until(lambda: app.monitor.latest is not app.monitor.shown, pilot, 20.0)
        await pilot.press("enter")
        await until(lambda: app.host_screen is not None and app.host_screen.gone_back, pilot, 20.0)
        assert app.host_screen is not None
        assert app.host_screen.shown is not None
        assert app.host_screen.shown.wall_s == pytest.approx(NEWEST_S, abs=15.0)


@pytest.mark.parametrize(("hosts", "lines"), [(5, 4), (30, 1)])
async def test_the_worst_verdict_of_the_row_is_a_whole_sentence_below_the_table(hosts: int, lines: int) -> None:
    others = {f"gpu{number:02d}": bare for number in range(5, hosts + 1)}
    async with watching(Scrapes(hosts, wrong={**MIXED, **others}), 80, 24) as (app, pilot):
        await pilot.press("g", *["down"] * rows_of(app).index("gpu02"))
        said = text_of(app)[-1 - app.monitor.body.row_line.size.height : -1]
        assert said[0].startswith(" ✗ gpu02: hardware fault: gpu 2: lost")
        assert len(said) <= lines
        assert ("…" not in " ".join(said)) is (hosts == 5)
        row = next(line for line in text_of(app) if line[1:].startswith("gpu02 "))
        assert row.rstrip().endswith("✗ hardware")


async def test_enter_on_a_triage_line_without_a_page_says_so() -> None:
    source = Scrapes(3, wrong={})
    async with watching(source, 120, 40) as (app, pilot):
        await pilot.press("enter")
        await until(lambda: app.host_screen is not None and app.host_screen.shown is not None, pilot, 20.0)
        source.fault = "it takes too long"
        app.control.refresh()
        await until(
            lambda: app.host_screen is not None and bool(app.host_screen.shown and app.host_screen.shown.faults),
            pilot,
            20.0,
        )
        await pilot.press("5", "g", "enter")
        assert app.host_screen is not None
        assert app.host_screen.pages.shown is None
        assert "no details" in foot(app)


async def test_a_prometheus_that_never_answered_is_none_that_does_not_answer_any_more() -> None:
    source = Scrapes(5)
    source.fault = LONG_FAULT
    async with watching(source, 80, 24, answered=False) as (app, pilot):
        await until(lambda: any("- start it" in line for line in text_of(app)), pilot, 20.0)
        title = text_of(app)[0]
        assert "no answer" in title
        assert "●" not in title
        assert "starting" not in "".join(text_of(app))
        source.fault = ""
        await pilot.press("r")
        await until(lambda: has_rates(app), pilot, 20.0)
        assert len(rows_of(app)) == 5
        source.fault = LONG_FAULT
        await pilot.press("r")
        await until(lambda: any("- start it" in line for line in text_of(app)), pilot, 20.0)
        assert "✗ NOT LIVE" in text_of(app)[2]
        assert len(rows_of(app)) == 5
        await pilot.resize_terminal(120, 40)
        source.fault = "http://prometheus.example:9090 refuses the connection"
        await pilot.press("r")
        await until(lambda: any("refuses the connection" in line for line in text_of(app)), pilot, 20.0)
        title, _, fault = text_of(app)[:3]
        assert "! no reading for 12s" in title
        assert "●" not in title
        assert "✗ NOT LIVE: 12s old, of 08:02:48" in fault
        assert "refuses the connection" in fault
        assert "a long reason" not in fault
        assert len(rows_of(app)) == 5
        source.fault = ""
        await pilot.press("r")
        await until(lambda: not any("NOT LIVE" in line for line in text_of(app)), pilot, 20.0)


async def test_a_notice_is_said_and_is_no_outage() -> None:
    source = Scrapes(5)
    source.notice = "two jobs scrape 3 engines"
    async with watching(source, 120, 40) as (app, pilot):
        for width, height in ((40, 10), (120, 40)):
            await pilot.resize_terminal(width, height)
            said = "\n".join(text_of(app))
            assert "! prometheus: two jobs scrape 3 engines" in said or "! two jobs scrape 3 engines" in said
            assert "NOT LIVE" not in said
        assert text_of(app)[0].endswith("● 12s ago 08:03:00")
        await pilot.press("space", "left")
        await until(lambda: "27s AGO" in text_of(app)[0] and not app.monitor.travel.seeking, pilot, 20.0)
        await pilot.press("home")
        await until(lambda: "nothing at" in foot(app), pilot, 20.0)


async def test_hosts_that_are_gone_have_no_figures_and_come_first_in_every_order_but_by_name() -> None:
    source = Scrapes(5, wrong={})
    async with watching(source, 120, 40) as (app, pilot):
        source.lacking = {"gpu04"}
        await pilot.press("r")
        await until(lambda: any("✗ gone" in line for line in text_of(app)), pilot, 20.0)
        line = next(line for line in text_of(app) if line[1:].startswith("gpu04 "))
        assert "✗ gone" in line
        assert "0/8" in line
        assert "gpu04 gone" in text_of(app)[1]
        assert not any("✗ hosts:" in line for line in text_of(app)), "the headline has told it"
        source.lacking = {"gpu02", "gpu04"}
        await pilot.press("r")
        await until(lambda: any("✗ hosts: 2 gone (gpu02, gpu04)" in line for line in text_of(app)), pilot, 20.0)
        table = app.monitor.body.table
        for order in table.listing.orders:
            table.sort(None)
            for _ in ("once", "turned round"):
                table.sort(order)
                known = ["gpu01", "gpu03", "gpu05"]
                if order.name == "name":
                    assert sorted(rows_of(app)) == rows_of(app)[:: -1 if table.filter.turned else 1]
                else:
                    assert rows_of(app)[:2] == ["gpu02", "gpu04"]
                    assert sorted(rows_of(app)[2:]) == known


HOSTILE = {
    "gpu01": "[bold red]evil[/]",
    "gpu02": "\x1b[31mred\x1b]0;title\x07",
    "gpu03": "主机主机主机主机主机主机主机主机",
    "gpu04": "\u202eabc\u2066def",
    "gpu05": "a\nb\tc" + "x" * 300,
}


async def test_names_from_outside_are_text() -> None:
    async with watching(Scrapes(5, names=HOSTILE), 60, 15) as (app, pilot):
        await pilot.press("down", "down")
        for width, height in ((60, 15), (200, 60), (40, 10), (80, 24)):
            await pilot.resize_terminal(width, height)
            lines = text_of(app)
            assert len(lines) == height
            assert all(cells(line) <= width for line in lines)
            said = "\n".join(lines)
            assert not any(bad in said for bad in ("\x1b", "\u202e", "\u2066", "\x07", "\t", "this pane failed"))
            assert width < 80 or "[bold red]evil[/]" in said
        await pilot.press("enter")
        await until(lambda: app.host_screen is not None and app.host_screen.shown is not None, pilot, 20.0)
        assert not any(bad in "\n".join(text_of(app)) for bad in ("\x1b", "\u202e", "this pane failed"))


async def test_a_terminal_that_is_too_small_shows_the_sums_and_how_to_quit() -> None:
    async with watching(Scrapes(5), 40, 10) as (app, pilot):
        lines = text_of(app)
        assert "5 hosts" in lines[0]
        assert any("busy" in line for line in lines)
        await pilot.press("slash", "m", "o", "s", "question_mark", "enter")
        assert app.monitor.question_bar is None
        app.host_screen = None
        await pilot.resize_terminal(80, 24)
        await until(lambda: any(line.startswith("─── hosts ") for line in text_of(app)), pilot)


async def test_the_foot_is_about_the_row_under_the_cursor() -> None:
    async with watching(Scrapes(5), 120, 50) as (app, pilot):
        for _ in range(2):
            name = cursor_of(app)
            foot = next(at for at, line in enumerate(text_of(app)) if line.startswith(f"─── {name} ─"))
            assert any("▇busy" in line for line in text_of(app)[foot:])
            await pilot.press("down")
        assert cursor_of(app) != name


async def test_the_sizing_panel_is_about_the_whole_fleet() -> None:
    async with watching(Scrapes(5, wrong={}), 80, 24) as (app, pilot):
        await pilot.press("s")
        await until(lambda: any("have   40 GPUs" in line for line in text_of(app)), pilot)
        await pilot.press("s")
        assert any(line.startswith("─── hosts ") for line in text_of(app))
        await pilot.resize_terminal(160, 50)
        await pilot.press("s")
        await until(lambda: any("have   40 GPUs" in line for line in text_of(app)), pilot)
        assert any(line.startswith("─── hosts ") for line in text_of(app))
        await pilot.press("tab")
        assert app.monitor.focused is app.monitor.body.table
        await pilot.press("tab")
        assert app.monitor.focused is app.monitor.dock.panel
        await pilot.press("escape")
        assert not app.monitor.dock.open


async def test_help_interval_a_small_host_and_the_way_out() -> None:
    source = Scrapes(3)
    async with watching(source, 120, 120) as (app, pilot):
        assert app.monitor.shown is not None
        assert app.monitor.shown.fleet.wall_s == NEWEST_S
        assert all(at is None or WALL_S <= at <= NEWEST_S for at in source.asked)
        await pilot.press("question_mark")
        said = "\n".join(text_of(app)[2:])
        assert "…" not in said
        assert "ttft p95         of all requests; engines may be worse" in said
        keymap = app.view.keymap
        for command in COMMANDS:
            assert (command.fleet is None) or keymap.shown(command.id) in said, command.id
        await pilot.press("escape")
        assert any(line.startswith("─── hosts ") for line in text_of(app))
        await pilot.press("f1", "question_mark")
        assert any(line.startswith("─── hosts ") for line in text_of(app))
        await pilot.resize_terminal(160, 40)
        await pilot.press("plus")
        assert app.control.interval_s == 30.0
        assert "every 30 s" in foot(app)
        await pilot.press(*["minus"] * 12)
        assert app.control.interval_s == 1.0
        await pilot.resize_terminal(80, 24)
        await pilot.press("enter")
        await until(lambda: app.host_screen is not None and app.host_screen.shown is not None, pilot, 20.0)
        await pilot.resize_terminal(40, 10)
        await pilot.press("escape")
        await until(lambda: app.screen is app.monitor, pilot)
        assert "3 hosts" in text_of(app)[0]
        await pilot.resize_terminal(80, 24)
        await pilot.press("enter")
        await until(lambda: app.host_screen is not None and app.host_screen.shown is not None, pilot, 20.0)
        await pilot.press("q")
        await until(lambda: app.host_screen is None, pilot, 20.0)
        assert not app._exit
        await pilot.press("q")
        await until(lambda: app._exit, pilot, 20.0)
    assert app.return_code == 0


async def test_keys_of_the_user_hold_here_too() -> None:
    config = Config(prometheus=Prometheus(url="http://a:1"), keys={"fleet.models": "v", "filter": "x"})
    async with watching(Scrapes(3), 80, 24, config=config) as (app, pilot):
        await pilot.press("v")
        assert app.monitor.body.table.grouping == MODELS
        await pilot.press("x")
        assert app.monitor.question_bar is not None


async def test_without_unicode_all_is_ascii() -> None:
    async with watching(Scrapes(5), 120, 40, ascii=True) as (app, pilot):
        assert all(line.isascii() for line in text_of(app))
        await pilot.press("question_mark")
        assert all(line.isascii() for line in text_of(app))


async def test_a_hundred_hosts() -> None:
    source = Scrapes(120, single=True)
    source.prepare()
    async with watching(source, 120, 40) as (app, pilot):
        assert "120 hosts · 120 GPUs" in text_of(app)[0]
        await pilot.press("G")
        assert "of 120" in "\n".join(text_of(app))
        last = cursor_of(app)
        assert last == rows_of(app)[-1]
        source.free.clear()
        await pilot.press("r")
        await until(lambda: app.control.fleet.asking, pilot)
        await pilot.press("up")
        assert cursor_of(app) == rows_of(app)[-2], "keys are answered while a refresh is under way"
        source.free.set()
        await until(lambda: not app.control.fleet.asking, pilot)
        assert cursor_of(app) == rows_of(app)[-2]


async def test_a_refresh_that_changes_nothing_paints_nothing_of_the_table() -> None:
    async with watching(Scrapes(30, single=True), 120, 40) as (app, pilot):
        await pilot.pause()
        assert app.monitor.body.table.update() == 0
        await pilot.press("down")
        before = list(app.monitor.body.table.painted)
        await pilot.press("down")
        after = app.monitor.body.table.painted
        changed = [line for line, other in zip(before, after, strict=True) if line is not other]
        assert len(changed) == 2, "the line that the cursor left, and the one that it came to"
