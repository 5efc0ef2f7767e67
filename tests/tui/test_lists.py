"""The panes with rows, in the real application: filter, order, hidden columns, and what they say when empty."""

from __future__ import annotations

import re
from typing import Any

import pytest
from textual.pilot import Pilot

from gpumon.config.schema import Config, Screen
from gpumon.figures.gpu import GPU
from gpumon.readings.format import wall_of
from gpumon.readings.frame import Departure, EndpointState, GpuProcess, LastFigures
from gpumon.readings.missing import Missing, Reason
from gpumon.readings.snapshot import BandwidthSource, Engine, FaultShown, Snapshot
from gpumon.triage.engine_down import ended_text
from gpumon.tui.app import MonitorApp
from gpumon.tui.table import local_time_of
from gpumon.tui.widgets.list_pane import ListPane
from tests.records import replace
from tests.tui import scenes
from tests.tui.feed import Still
from tests.tui.painted import process
from tests.tui.running import running, text_of, until


def below(lines: list[str], title: str) -> list[str]:
    """The lines of a pane, its rule first."""
    start = next(at for at, line in enumerate(lines) if re.match(f"─.─ {title} ", line))
    end = next((at for at in range(start + 1, len(lines)) if lines[at].startswith("─")), len(lines) - 1)
    return lines[start:end]


async def zoom(app: MonitorApp, pilot: Pilot[int], key: str, name: str) -> None:
    """Give a pane the whole screen, whether it had a place or not."""
    await pilot.press(key)
    if app.monitor.body.zoomed != name:
        await pilot.press("z")


def without_processes(of: Snapshot, **fields: Any) -> Snapshot:
    return replace(of, gpus=tuple(replace(gpu, processes=(), **fields) for gpu in of.gpus))


def crowded() -> Snapshot:
    """A server with four processes: one on four GPUs, one without an engine."""
    of = scenes.snapshot(8, 2)
    first = process(100, vram_bytes=70 * scenes.GIB)
    second = process(2000, vram_bytes=71 * scenes.GIB, engine="vllm:8001", user="ml", container="0123456789ab")
    train = process(30, vram_bytes=20 * scenes.GIB, engine="", user="ann", command="python3 train.py", sm_ratio=0.9)
    silent = GpuProcess(4, "4 (host)", "", Missing(Reason.NO_PERMISSION))
    held = [(first,)] * 4 + [(second,)] * 2 + [(train,), (silent,)]
    return replace(of, gpus=tuple(replace(gpu, processes=each) for gpu, each in zip(of.gpus, held, strict=True)))


def pane(app: MonitorApp, name: str) -> ListPane[Any]:
    found = app.monitor.panes[name]
    assert isinstance(found, ListPane)
    return found


async def test_each_process_is_a_row_and_the_largest_comes_first() -> None:
    async with running(Still(crowded()), 120, 40) as (app, pilot):
        await zoom(app, pilot, "4", "processes")
        _, head, *rows = below(text_of(app), "processes")
        assert head.split() == [
            "pid",
            "user",
            "gpus",
            "GiB",
            "sm",
            "engine",
            "cpu",
            "rss",
            "GiB",
            "time",
            "container",
            "command",
        ]
        assert [row.replace("▸", " ").split()[0] for row in rows if row.strip()] == ["100", "2000", "30", "4"]
        assert rows[0].startswith("▸    100 llm       0-3     280  60% vllm:8000 ")
        assert " 51b1a7ed0c0d python3 -m" in rows[0]
        assert "hidden from this container" in rows[3]


async def test_processes_can_be_sorted_and_the_rule_says_how() -> None:
    async with running(Still(crowded()), 120, 40) as (app, pilot):
        await zoom(app, pilot, "4", "processes")
        processes = pane(app, "processes")
        for name, pids in (("SM", "30 100 2000 4"), ("pid", "4 30 100 2000"), ("user", "4 30 100 2000")):
            processes.sort(next(order for order in processes.listing.orders if order.name == name))
            rule, _, *rows = below(text_of(app), "processes")
            assert [row.replace("▸", " ").split()[0] for row in rows if row.strip()] == pids.split()
            assert f"by {name} " in rule
        processes.sort(processes.filter.order)
        assert "by user ↓" in below(text_of(app), "processes")[0]


@pytest.mark.parametrize(
    ("name", "wanted", "left"),
    [
        ("processes", "train", "30"),
        ("processes", "ANN", "30"),
        ("processes", "0123456789ab", "2000"),
        ("processes", "vllm:8001", "2000"),
        ("processes", "-vllm -train", "4"),
        ("gpus", "qwen", "4 5"),
        ("gpus", "vllm:8000 -gpu", ""),
        ("gpus", "GPU-00000003", "3"),
        ("engines", "qwen", "8001"),
        ("engines", "127.0.0.1:8000", "8000"),
        ("engines", "0.11.2", "8000 8001"),
        ("gpus", "gpu7", "7"),
        ("gpus", "-gpu7 -gpu 0", "1 2 3 4 5 6"),
        ("engines", "gpu4", "8001"),
        ("processes", "gpu7", "4"),
        ("processes", "gpu3", "100"),
    ],
)
async def test_what_is_seen_in_a_row_can_be_found(name: str, wanted: str, left: str) -> None:
    async with running(Still(crowded()), 120, 40) as (app, _):
        found = pane(app, name)
        found.filter.text = wanted
        keys = [found.listing.key(item) for item in found.listed_items()]
        prefix = {"processes": "", "gpus": "GPU-0000000", "engines": "http://127.0.0.1:"}[name]
        assert keys == [prefix + key for key in left.split()]


async def test_a_state_that_is_shown_can_be_found() -> None:
    async with running("other_kinds", 120, 40) as (app, _):
        gpus = pane(app, "gpus")
        for wanted, count in (("xid 79", 1), ("hot", 1), ("reset", 1), ("under", 0), ("1g.10gb", 1), ("idle", 1)):
            gpus.filter.text = wanted
            assert len(gpus.listed_items()) == count, wanted
    async with running("engines_down", 120, 40) as (app, _):
        engines = pane(app, "engines")
        for wanted, count in (("refused", 1), ("UNAUTHORIZED", 1), ("--disable-log-stats", 1), ("ok", 1)):
            engines.filter.text = wanted.replace("--", "")
            assert len(engines.listed_items()) == count, wanted


async def test_the_rule_says_what_the_filter_leaves() -> None:
    async with running(Still(crowded()), 120, 40) as (app, _):
        gpus = pane(app, "gpus")
        gpus.filter.text = "qwen"
        gpus.sort(next(order for order in gpus.listing.orders if order.name == "waste"))
        rule = below(text_of(app), "gpus")[0]
        assert 'filter "qwen": 2 of 8 (Esc: all) · by waste ↓' in rule
        gpus.filter.text = "nothing like it"
        gpus.update()
        assert 'none of 8 gpus matches "nothing like it"; Esc: all rows' in "".join(below(text_of(app), "gpus"))


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_a_bound_on_a_figure_of_another_list_says_where_the_figure_is(size: tuple[int, int]) -> None:
    """In one line: at 80x24 the pane without rows has no second."""
    async with running(Still(crowded()), *size) as (app, _):
        for title, filter_text, hint in (
            ("gpus", "kv>50", "no column kv here: it is in engines"),
            ("gpus", "colour>5", "no column colour here"),
            ("engines", "vram>1t", ": it is in gpus"),
            ("engines", "kv>99", ""),
        ):
            listed = pane(app, title)
            listed.filter.text = filter_text
            listed.update()
            lines = below(text_of(app), title)
            assert ("no column" in lines[2]) is (hint != "")
            assert (hint or f'matches "{filter_text}"') in lines[2]
            assert ": all rows" in lines[2]
            listed.filter.text = ""


async def test_a_rule_that_is_too_short_leaves_the_key_of_a_filter_out_whole() -> None:
    async with running(Still(crowded()), 60, 15) as (app, _):
        processes = pane(app, "gpus")
        processes.filter.text = "a filter of many words"
        processes.update()
        rule = below(text_of(app), "gpus")[0]
        assert 'filter "a filter of many wo…": 0 of 8' in rule
        assert "(" not in rule


async def test_without_the_focus_the_rule_names_the_key_of_the_pane_before_the_one_that_drops_the_filter() -> None:
    async with running(Still(crowded()), 120, 40) as (app, pilot):
        engines = pane(app, "engines")
        engines.filter.text = "qwen"
        engines.update()
        assert 'filter "qwen": 1 of 2 (2 Esc: all)' in below(text_of(app), "engines")[0]
        engines.filter.text = "no such"
        engines.update()
        assert 'matches "no such"; 2 Esc: all rows' in "".join(below(text_of(app), "engines"))
        await pilot.press("2")
        assert 'filter "no such": 0 of 2 (Esc: all)' in below(text_of(app), "engines")[0]
        await pilot.press("escape")
        assert "filter" not in below(text_of(app), "engines")[0]


async def test_a_filter_on_an_empty_pane_does_not_hide_why_it_is_empty() -> None:
    async with running("empty", 80, 24) as (app, _):
        engines = pane(app, "engines")
        engines.filter.text = "vllm"
        engines.update()
        assert "no engine found" in "".join(below(text_of(app), "engines"))


@pytest.mark.parametrize(
    ("snapshot", "said"),
    [
        (scenes.snapshot(0, 0), "no process: this host's GPUs are not read"),
        (scenes.SCENES["stale"](), "no process: no GPU answers"),
        (
            without_processes(scenes.snapshot(2, 0)),
            "GPUs 0-1: memory in use by processes not visible here: start with",
        ),
    ],
)
async def test_a_pane_without_a_process_says_why(snapshot: Snapshot, said: str) -> None:
    async with running(Still(snapshot), 120, 40) as (app, pilot):
        await zoom(app, pilot, "4", "processes")
        lines = below(text_of(app), "processes")
        assert said in " ".join(line.strip() for line in lines)
        assert not any("command" in line for line in lines)


async def test_idle_gpus_just_have_no_process() -> None:
    of = scenes.snapshot(2, 0)
    async with running(Still(without_processes(of, vram_used_bytes=5e8)), 120, 40) as (app, pilot):
        await zoom(app, pilot, "4", "processes")
        assert below(text_of(app), "processes")[1].strip() == "no process on the GPUs"


async def test_empty_panes_say_what_to_do() -> None:
    fault = FaultShown("nvml", "no driver: install it", "2025-10-09T08:53:22Z")
    async with running(Still(replace(scenes.snapshot(0, 0), faults=(fault,))), 80, 24) as (app, _):
        lines = text_of(app)
        assert "no GPU found: no driver: install it" in "".join(below(lines, "gpus"))
        assert "no engine found: start one, or add --endpoint URL" in "".join(below(lines, "engines"))


async def test_hidden_columns_are_gone() -> None:
    hidden = ("gpus.power", "engines.version", "processes.command", "gpus.history")
    config = Config(screen=Screen(hidden_columns=hidden))
    async with running(Still(crowded()), 200, 60, config=config) as (app, pilot):
        _, head, first, *_ = below(text_of(app), "gpus")
        assert " power " not in head
        assert "last 5 min" not in head
        assert " 612W" not in first
        _, head, *_ = below(text_of(app), "engines")
        assert "version" not in head
        await zoom(app, pilot, "4", "processes")
        _, head, first, *_ = below(text_of(app), "processes")
        assert "command" not in head
        assert "python3" not in first


async def test_very_wide_screens_add_histories_in_line() -> None:
    snapshot = scenes.snapshot(4, 2)
    async with running(Still(snapshot, scenes.history(snapshot)), 300, 60) as (app, _):
        _, head, *rows = below(text_of(app), "gpus")
        start = head.index("mfu 0-50%, last 5 min")
        assert all("▅" in row[start : start + 40] for row in rows[:4])


@pytest.mark.parametrize(
    ("lacks", "shown"),
    [
        ({}, "mfu 0-50%, last 5 min"),
        ({"mfu_ratio": Missing(Reason.NOT_SUPPORTED)}, f"{GPU['bandwidth_bytes_per_s'].short} 0-100%, last 5 min"),
        (
            {"mfu_ratio": Missing(Reason.NOT_SUPPORTED), "bandwidth_source": BandwidthSource.ENGINE},
            "busy 0-100%, last 5 min",
        ),
    ],
)
async def test_the_history_behind_a_gpu_is_of_the_figure_that_says_most(lacks: dict[str, object], shown: str) -> None:
    snapshot = scenes.snapshot(4, 2)
    snapshot = replace(snapshot, gpus=tuple(replace(gpu, **lacks) for gpu in snapshot.gpus))
    async with running(Still(snapshot, scenes.history(snapshot)), 200, 60) as (app, _):
        _, head, *rows = below(text_of(app), "gpus")
        start = head.index(shown)
        assert all(row[start : start + 30].strip() for row in rows[:4])


async def test_the_cursor_stays_on_its_gpu_when_the_order_changes() -> None:
    async with running(Still(crowded()), 120, 40) as (app, pilot):
        await pilot.press("1", "j", "j")
        gpus = pane(app, "gpus")
        gpus.sort(next(order for order in gpus.listing.orders if order.name == "VRAM"))
        assert gpus.selected.reading.index == 2
        assert next(line for line in text_of(app) if line.startswith("▸")).split()[1] == "2"


def ended(number: int, since: str, *, planned: bool = False) -> Engine:
    """An engine whose process is gone."""
    departure = Departure(
        wall_s=wall_of(since),
        served_wall_s=wall_of(since) - 2.0,
        pid=4121,
        cause="" if planned else "signal",
        number=0 if planned else 9,
        planned=planned,
        source="" if planned else "systemd vllm.service",
        unit="vllm.service",
        log="journalctl -u vllm.service -n 100",
        start="systemctl start vllm.service",
        command="vllm serve m",
        figures=LastFigures(12.0, 3.0, 0.61, 1240.0),
    )
    down = scenes.down_engine(number, EndpointState.DOWN, ended_text(departure))
    return replace(down, departure=(departure,), since=since)


async def test_an_engine_that_ended_says_when_and_how_and_its_page_has_the_command_for_its_log() -> None:
    of = scenes.snapshot(2, 1)
    one, other = ended(0, "2025-10-09T08:43:22Z"), ended(1, "2025-10-09T08:43:22Z", planned=True)
    clock = local_time_of("2025-10-09T08:43:22Z")
    assert clock is not None
    async with running(Still(replace(of, engines=(one, other))), 110, 30) as (app, pilot):
        rows = "".join(below(text_of(app), "engines"))
        assert f"✗ down since {clock:%H:%M}  pid 4121, killed by signal 9 (systemd vllm.service)" in rows
        assert f"! stopped since {clock:%H:%M}  pid 4121, after 30 s without requests" in rows
        await pilot.press("2", "enter")
        page = "\n".join(text_of(app))
        assert "how it ended" in page
        assert "no figures now" not in page
        assert "✗ down since 08:43:22 (10 min)" in page
        assert "last figures      1,240.0 tok/s · running 12 · waiting 3 · KV 61.00%" in page
        assert "journalctl -u vllm.service -n 100" in page
        assert "systemctl start vllm.service" in page


async def test_the_row_of_an_engine_that_ended_can_be_hidden_here_and_shown_again() -> None:
    of = scenes.snapshot(2, 1)
    down, runs = ended(0, "2025-10-09T08:43:22Z"), scenes.engine(1)
    shown = replace(of, engines=(down, runs))
    async with running(Still(shown), 110, 30) as (app, pilot):
        await pilot.press("2", "j", "H")
        await until(lambda: "only an engine that has ended" in "\n".join(text_of(app)), pilot)
        await pilot.press("k", "H")
        engines = pane(app, "engines")
        await until(lambda: [engine.name for engine in engines.listed_items()] == [runs.name], pilot)
        assert app.monitor.shown.engines == (down, runs)
        again = replace(shown, engines=(ended(0, "2025-10-09T08:50:22Z"), runs))
        engines.show(again)
        assert len(engines.listed_items()) == 2
        engines.show(replace(shown, engines=(down,)))
        await until(lambda: "1 engine hidden: `show hidden rows again`" in "\n".join(text_of(app)), pilot)
        engines.show(shown)
        app.monitor.action_do("hide.none")
        await until(lambda: len(engines.listed_items()) == 2, pilot)


async def test_engines_that_are_down_say_since_when() -> None:
    of = scenes.snapshot(2, 1)
    down = scenes.engine(0, state=EndpointState.REFUSED, fault="connection refused", since="2025-10-09T08:43:22Z")
    async with running(Still(replace(of, engines=(down,))), 80, 24) as (app, _):
        assert "! REFUSED 10m  connection refused" in "".join(below(text_of(app), "engines"))


async def test_notes_that_have_no_room_on_a_rule_give_way_to_an_ellipsis_the_least_important_first() -> None:
    async with running(Still(crowded()), 80, 24) as (app, _):
        gpus = pane(app, "gpus")
        gpus.filter.text = "qwen"
        gpus.sort(next(order for order in gpus.listing.orders if order.name == "waste"))
        gpus.step_sideways(1)
        gpus.step_sideways(1)
        rule = below(text_of(app), "gpus")[0]
        assert 'filter "qwen": 2 of 8 (Esc: all) · by waste ↓ · Left 2 columns · … ─' in rule
