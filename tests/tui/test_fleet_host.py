"""A host of a fleet on its own screen, and the sizing panel over a fleet: what is of now, what is awaited, and why."""

from __future__ import annotations

import asyncio
from pathlib import Path

from gpumon.commands.files import ScreenFiles
from gpumon.config.load import Loaded
from gpumon.config.schema import Config
from gpumon.fleet.row import FleetRow
from gpumon.fleet.rows import by_host
from gpumon.fleet.snapshot import HostState
from gpumon.readings.fleet import HostFrame
from gpumon.readings.snapshot import FaultShown, Level, Limit, Verdict
from gpumon.readings.verdict import Signal
from gpumon.session.fleet_host_past import with_fleet_name
from gpumon.tui.control import BundleFacts
from gpumon.tui.fleet import row_words
from gpumon.tui.fleet.app import FleetApp
from gpumon.tui.fleet.host_pane import _fold_text
from gpumon.tui.table import clock
from gpumon.tui.widgets.process_pane import NO_PROCESSES_AFAR
from tests.each_row import each_row
from tests.fleet.fleets import fed, fleet_frame
from tests.history.frames import WALL_S
from tests.records import replace
from tests.tui import scenes
from tests.tui.feed import Still
from tests.tui.fleet_feed import NEWEST_S, Scrapes, opened, watching
from tests.tui.running import foot, running, text_of, until

LOADING, ASKING = "loading the past", "ASKING FOR"


def drawn(app: FleetApp) -> int:
    """Cells of charts that are drawn."""
    return sum("\u2800" < character <= "\u28ff" for line in text_of(app) for character in line)


async def test_charts_are_drawn_whole_as_soon_as_their_past_is_there() -> None:
    source = Scrapes(3)
    async with watching(source, 200, 60) as (app, pilot):
        source.free.clear()
        await pilot.press("enter")
        await until(lambda: any(LOADING in line for line in text_of(app)), pilot, 20.0)
        before = drawn(app)
        source.free.set()
        await until(lambda: not any(LOADING in line for line in text_of(app)), pilot, 20.0)
        assert drawn(app) > 5 * before + 500


async def test_a_way_back_that_is_awaited_says_so() -> None:
    source = Scrapes(3)
    async with watching(source, 120, 40) as (app, pilot):
        host = await opened(app, pilot)
        source.free.clear()
        await pilot.press("left_square_bracket")
        await until(lambda: ASKING in text_of(app)[0], pilot)
        source.free.set()
        await until(lambda: host.gone_back, pilot, 20.0)
        assert ASKING not in text_of(app)[0]
        assert "AGO" in text_of(app)[0]


async def test_a_past_that_fails_or_is_empty_says_why_nothing_moves() -> None:
    source = Scrapes(3)
    async with watching(source, 120, 40) as (app, pilot):
        await opened(app, pilot)
        source.fault = "it is being restarted"
        await pilot.press("left_square_bracket")
        await until(lambda: "it is being restarted" in foot(app), pilot, 20.0)
        source.fault, source.left = "", {"gpu01", "gpu02", "gpu03"}
        await pilot.press("left_curly_bracket")
        await until(lambda: "nothing is kept of that time" in foot(app), pilot, 20.0)


async def test_a_marked_moment_of_a_host_is_compared_by_what_its_prometheus_has() -> None:
    source = Scrapes(3)
    async with watching(source, 120, 40) as (app, pilot):
        host = await opened(app, pilot)
        await pilot.press("left_curly_bracket")
        await until(lambda: host.gone_back, pilot)
        await pilot.press("M")
        await pilot.press("end")
        await until(lambda: not host.gone_back, pilot)
        await pilot.press("2", "D")
        await until(lambda: "set differently" in "\n".join(text_of(app)), pilot)
        shown = "\n".join(text_of(app))
        assert "nothing known was set differently" in shown
        assert "then and now: engine vllm:8000" in shown
        assert "load (requests/s)" in shown
        source.fault = "it is being restarted"
        await pilot.press("D")
        await until(lambda: "prometheus: it is being restarted" in "\n".join(text_of(app)), pilot)


async def test_a_bundle_of_a_host_that_is_left_meanwhile_is_told_of_on_the_fleets_screen(tmp_path: Path) -> None:
    class Slow(ScreenFiles):
        """Files that wait for the test."""

        async def save_bundle(self, incident: BundleFacts) -> str:
            await free.wait()
            return f"wrote a bundle of {incident.screen.split()[3]}"

    free = asyncio.Event()
    async with watching(Scrapes(3), 120, 40) as (app, pilot):
        host = await opened(app, pilot)
        host.files = app.monitor.files = Slow(Loaded(Config(), "", {}), {"HOME": str(tmp_path)})
        await pilot.press("w", "escape")
        await until(lambda: app.host_screen is None and app.screen is app.monitor, pilot)
        await pilot.press("w")
        assert "still writing" in foot(app)
        free.set()
        await until(lambda: "wrote a bundle of gpu0" in foot(app), pilot)


async def test_a_mark_on_one_host_is_none_of_the_next_one() -> None:
    """Engines on two hosts may have the same key, and a host that is opened again counts anew."""
    async with watching(Scrapes(3), 120, 40) as (app, pilot):
        host = await opened(app, pilot)
        await pilot.press("M")
        await until(lambda: "marked" in foot(app), pilot)
        assert host.view.marked is not None
        await pilot.press("escape")
        await until(lambda: app.host_screen is None and app.screen is app.monitor, pilot)
        host = await opened(app, pilot)
        assert host.latest is not None
        assert host.latest.engines
        assert host.view.marked is None


def exported(host: HostFrame) -> HostFrame:
    """No exporter tells of processes."""
    return replace(host, gpus=tuple(replace(gpu, processes=()) for gpu in host.gpus))


async def test_where_there_can_be_no_process_it_says_so() -> None:
    wrong = {f"gpu0{number}": exported for number in (1, 2, 3)}
    async with watching(Scrapes(3, wrong=wrong), 120, 40) as (app, pilot):
        await opened(app, pilot)
        await pilot.press("4")
        await until(lambda: any(NO_PROCESSES_AFAR in line for line in text_of(app)), pilot, 20.0)
        assert not any("hidden from this container" in line for line in text_of(app))


async def test_the_sizing_panel_stays_with_the_newest_and_names_its_time() -> None:
    async with watching(Scrapes(3, wrong={}), 160, 50) as (app, pilot):
        await pilot.press("left", "space", "left", "left")
        await until(lambda: app.monitor.gone_back and not app.monitor.travel.seeking, pilot, 20.0)
        await pilot.press("s")
        panel, newest = app.monitor.dock.panel, app.monitor.latest
        assert panel is not None
        assert newest is not None
        assert panel.snapshot is newest.whole
        await pilot.press("left_square_bracket")
        await until(lambda: not app.monitor.travel.seeking, pilot, 20.0)
        assert panel.snapshot is newest.whole, "another moment of the table is none of the panel"
        rule = next(line for line in text_of(app) if f"sizing as of {clock(NEWEST_S)}" in line)
        assert "space: live again" in rule
        await pilot.press("space")
        await until(lambda: not any("as of" in line for line in text_of(app)), pilot, 20.0)


def nameless(host: HostFrame) -> HostFrame:
    """Nobody knows what its engines serve."""
    engines = tuple(replace(each, model="", model_root="") for each in host.engines)
    return replace(host, engines=engines)


async def test_enter_on_engines_without_a_model_opens_their_host() -> None:
    async with watching(Scrapes(3, wrong={"gpu02": nameless}), 120, 40) as (app, pilot):
        await pilot.press("m", "g")
        names = [row.name for row in app.monitor.body.table.listed_items()]
        await pilot.press(*["down"] * names.index("model not known"))
        await opened(app, pilot)
        assert text_of(app)[0].startswith(" gpumon  fleet > gpu02")


def test_a_host_has_the_name_that_the_fleet_has_for_it():
    snapshot = fed(fleet_frame(0)).hosts[0].snapshot
    assert with_fleet_name(snapshot, "10.0.0.1").host.name == "10.0.0.1"
    assert with_fleet_name(snapshot, snapshot.host.name) is snapshot


@each_row(
    ("most", "lines"),
    [
        (1, ["VRAM 89%, 8…"]),
        (2, ["VRAM 89%,", "8.9 GiB left for …"]),
        (3, ["VRAM 89%,", "8.9 GiB left for", "programs that are…"]),
        (4, ["VRAM 89%,", "8.9 GiB left for", "programs that are", "not visible"]),
    ],
)
def test_a_verdict_takes_the_lines_that_are_free(most: int, lines: list[str]):
    assert _fold_text("VRAM 89%, 8.9 GiB left for programs that are not visible", 12, 18, most) == lines


def row_in(state: HostState, *verdicts: Verdict, faults: tuple[FaultShown, ...] = ()) -> FleetRow:
    """The row of a host in a state, 2 minutes after it was seen last."""
    fleet = fed(fleet_frame(0))
    shown = replace(fleet.hosts[0].snapshot, verdicts=verdicts, faults=faults)
    host = replace(fleet.hosts[0], snapshot=shown, state=state, seen_wall_s=WALL_S - 120.0)
    return by_host(replace(fleet, hosts=(host,)), {})[0]


@each_row(
    ("state", "room", "text"),
    [
        (HostState.UNREACHABLE, 12, " ✗ no answer"),
        (HostState.UNREACHABLE, 14, " ✗ unreachable"),
        (HostState.UNREACHABLE, 20, " ✗ unreachable 2m"),
        (HostState.UNREACHABLE, 40, " ✗ unreachable 2m: up is 0"),
        (HostState.STALE, 12, " ! stale 2m"),
        (HostState.STARTING, 12, " … starting"),
        (HostState.STARTING, 40, " … starting 2m: up is 0"),
        (HostState.GONE, 12, " ✗ gone 2m"),
    ],
)
def test_the_state_of_a_host_is_a_whole_word_in_whatever_room(state: HostState, room: int, text: str) -> None:
    row = row_in(state, faults=(FaultShown("prometheus", "up is 0", ""),))
    assert "".join(piece for piece, _ in row_words.state_or_verdict(row, WALL_S, room)) == text


def test_what_can_not_be_told_is_said_once() -> None:
    verdict = Verdict("vllm:8000", Limit.UNKNOWN, "", "", level=Level.NOTE, unknown=(Signal("mbu"),))
    row = row_in(HostState.OK, verdict)
    assert row_words.row_sentence(row, WALL_S)[2] == "gpu01: unknown: vllm:8000: MBU or memory bandwidth"
    painted = "".join(piece for piece, _ in row_words.state_or_verdict(row, WALL_S, 40))
    assert painted.startswith(" ? unknown   vllm:8000: MBU")


async def test_a_host_whose_exporter_is_not_scraped_says_why_it_has_no_gpu() -> None:
    fault = FaultShown("prometheus", "the dcgm-exporter is not scraped", "2027-01-15T08:00:00Z")
    of = replace(scenes.snapshot(), gpus=(), faults=(fault,))
    async with running(Still(of, scenes.history(of))) as (app, _):
        assert any("no GPU found: the dcgm-exporter is not scraped" in line for line in text_of(app))
