"""Nothing on the sizing panel changes by itself but the age of what it works on, and the offer of what is newer."""

from __future__ import annotations

import copy
import random
import re

import pytest
from textual.pilot import Pilot

from gpumon.config.keymap import COMMANDS
from gpumon.tui.app import MonitorApp
from tests.records import replace
from tests.tui import scenes
from tests.tui.feed import Still
from tests.tui.running import foot, running, text_of, until
from tests.tui.sizing_scenes import desk_of, panel_of, snapshot, watched
from tests.tui.test_keys import type_keys

pytestmark = pytest.mark.usefixtures("lasting_notices")
_AGE = re.compile(r"(seen +\S.*?), \w+ old.*")
"""The line of the age and the offer."""


def still_lines(app: MonitorApp) -> list[str]:
    """The lines of the panel without the age and the offer."""
    region = panel_of(app).region
    lines = [line[region.x :] for line in text_of(app)[region.y : region.bottom]]
    return [_AGE.sub(r"\1", line) for line in lines]


def offer(app: MonitorApp) -> str:
    """The line of the age and the offer."""
    return next(line for line in text_of(app) if " old" in line and "seen " in line).partition("seen ")[2].strip()


async def simulated(app: MonitorApp, pilot: Pilot[int]) -> None:
    """Wait for the p95 that are simulated a moment after a key, and said to be on their way until then."""

    def is_done() -> bool:
        work = [worker for worker in app.workers if worker.node is panel_of(app)]
        pending = desk_of(app).calculation.pending
        return all(worker.is_finished for worker in work) and pending in ((), panel_of(app)._being_simulated)

    await until(is_done, pilot)


async def pass_by(app: MonitorApp, pilot: Pilot[int], feed: Still, seconds: float) -> None:
    """Seconds in which the engines run another load each 11 s: the calibration learns all the time."""
    for window in range(1, 2 + int(seconds / 11.0)):
        shot = snapshot(window * 11.0, 60.0 + window)
        feed.calibration.take(shot)
        feed.give(shot)
    await until(lambda: panel_of(app).snapshot is shot, pilot)


KEYS = {
    "as it opens": (),
    "a target and a goal": (*"400", "enter", "i", *"40", "enter"),
    "the fields of a row": ("enter", "down", "down"),
    "a number that is being typed": tuple("51"),
    "the comparison of GPUs": ("v", "v"),
}


@pytest.mark.parametrize("keys", KEYS.values(), ids=KEYS.keys())
async def test_forty_seconds_and_ten_minutes_without_a_key_change_the_age_and_the_offer_alone(
    keys: tuple[str, ...],
) -> None:
    feed = watched()
    async with running(feed, 120, 40) as (app, pilot):
        await type_keys(app, pilot, "s", *keys)
        await simulated(app, pilot)
        before = still_lines(app)
        answer = desk_of(app).calculation.answer
        for seconds in (40.0, 600.0):
            await pass_by(app, pilot, feed, seconds)
            assert still_lines(app) == before
            assert desk_of(app).calculation.answer == answer


async def test_a_newer_basis_is_offered_with_what_it_would_change_and_taken_by_its_key() -> None:
    feed = watched()
    async with running(feed, 120, 40) as (app, pilot):
        await type_keys(app, pilot, "s", *"700", "enter", "i", *"40", "enter")
        assert re.fullmatch(r"\d+ points, 0s old", offer(app))
        for second in range(40):
            shot = snapshot(120.0 + 11.0 * second, 70.0 + second)
            slower = tuple(replace(engine, itl_mean_s=0.030 + 0.0008 * (70.0 + second)) for engine in shot.engines)
            feed.calibration.take(replace(shot, engines=slower))
        feed.give(replace(snapshot(600.0, 24.0)))
        await until(lambda: " -> " in offer(app), pilot)  # what it would need is simulated beside
        need = re.fullmatch(
            r"\d+ points, 10m old; r takes \d+ more points, .*10m newer: need (\d+) -> (\d+)", offer(app)
        )
        assert need is not None, offer(app)
        answer = desk_of(app).calculation.answer
        assert answer is not None
        assert answer.totals.gpus == float(need[1])
        await type_keys(app, pilot, "r")
        answer = desk_of(app).calculation.answer
        assert answer is not None
        assert answer.totals.gpus == float(need[2])
        assert re.fullmatch(r"\d+ points, 0s old", offer(app))
        assert "taken" in foot(app)
        assert desk_of(app).present.workload[0].target == 700.0


async def test_after_a_key_the_offer_names_no_need_until_it_is_worked_out_again() -> None:
    feed = watched()
    async with running(feed, 120, 40) as (app, pilot):
        await type_keys(app, pilot, "s")
        feed.give(snapshot(30.0, 60.0))
        await until(lambda: "need" in offer(app), pilot)
        assert "3 other targets" in offer(app)
        await type_keys(app, pilot, "d")
        assert "need" not in offer(app)
        assert "r takes" in offer(app)
        feed.give(snapshot(33.0, 60.0))
        await until(lambda: "need" in offer(app), pilot)


async def test_opened_again_it_begins_with_what_runs_unless_something_was_changed() -> None:
    feed = watched()
    async with running(feed, 120, 40) as (app, pilot):
        await type_keys(app, pilot, "s", "s")
        later = snapshot(60.0, 40.0)
        feed.give(later)
        await until(lambda: app.monitor.newest is later, pilot)
        await type_keys(app, pilot, "s")
        assert desk_of(app).present.workload[0].target == 40.0
        await type_keys(app, pilot, "d", "s")
        latest = snapshot(120.0, 10.0)
        feed.give(latest)
        await until(lambda: app.monitor.newest is latest, pilot)
        await type_keys(app, pilot, "s")
        assert desk_of(app).present.workload[0].target == 80.0
        assert "1m old" in offer(app)


OWN_KEYS = sorted({key for command in COMMANDS if command.scope == "sizing" for key in command.keys})
WALKED = [*OWN_KEYS, *"0123456789.", "enter", "escape", "up", "down", "left", "right", "pagedown", "backspace"]


@pytest.mark.parametrize("seed", range(6))
async def test_after_any_keys_time_alone_changes_nothing(seed: int) -> None:
    chance = random.Random(seed)
    keys = [chance.choice(WALKED) for _ in range(30)]
    feed = watched()
    async with running(feed, 120, 40) as (app, pilot):
        await type_keys(app, pilot, "s")
        for key in keys:
            await type_keys(app, pilot, *(() if app.monitor.dock.open else ("s",)), key)
        if not app.monitor.dock.open:
            await type_keys(app, pilot, "s")
        await simulated(app, pilot)
        before = still_lines(app)
        await pass_by(app, pilot, feed, 60.0)
        assert still_lines(app) == before, keys


async def test_each_key_of_the_panel_does_its_own_job_there_and_not_that_of_the_screen() -> None:
    """`r` reads anew elsewhere, `t` goes to triage, `f` and `g` move among tiles and rows: in the panel none does."""
    feed = watched()
    async with running(feed, 160, 50) as (app, pilot):
        for key in OWN_KEYS:
            await type_keys(app, pilot, "s")
            panel = panel_of(app)
            ran: list[str] = []
            panel.run = ran.append  # type: ignore[method-assign]
            refreshed = feed.refreshed
            await type_keys(app, pilot, key)
            (name,) = ran
            (command,) = [command for command in COMMANDS if command.id == f"sizing.{name}"]
            assert key in command.keys
            assert feed.refreshed == refreshed, key
            assert app.monitor.focused is panel
            del panel.run
            await type_keys(app, pilot, "s")
        await type_keys(app, pilot, "r")
        assert feed.refreshed == 1


LETTERS = {
    "i": "tpot_p95_ms",
    "T": "ttft_p95_ms",
}


@pytest.mark.parametrize(("letter", "goal"), LETTERS.items())
async def test_a_letter_that_is_no_unit_takes_the_number_and_does_its_own_job(letter: str, goal: str) -> None:
    async with running(watched(), 120, 40) as (app, pilot):
        await type_keys(app, pilot, "s", *"400", letter)
        desk = desk_of(app)
        assert desk.present.workload[0].target == 400.0
        assert desk.edit is None
        assert desk.place.field.key == goal
        await type_keys(app, pilot, *"45", "D")
        assert getattr(desk_of(app).present, goal) == 45.0
        assert desk_of(app).present.workload[0].target == 800.0
        await type_keys(app, pilot, *"2k", "d")
        assert desk_of(app).present.workload[0].target == 4000.0
        await type_keys(app, pilot, *"1e3", "u")
        assert desk_of(app).present.workload[0].target == 4000.0
        await type_keys(app, pilot, *"61", "s")
        assert not app.monitor.dock.open
        await type_keys(app, pilot, "s")
        assert desk_of(app).present.workload[0].target == 61.0


async def test_what_is_no_number_is_not_taken_by_a_letter() -> None:
    async with running(watched(), 120, 40) as (app, pilot):
        await type_keys(app, pilot, "s", *"1e", "i")
        assert desk_of(app).edit is not None
        assert "1ei is no number" in "\n".join(text_of(app))
        await type_keys(app, pilot, "escape")
        assert desk_of(app).present.workload[0].target == 24.0


def test_the_feed_of_these_tests_learns() -> None:
    """Else nothing above would show that the panel holds still."""
    calibration = copy.deepcopy(watched().calibration)
    before = sum(len(seen.points) for seen in calibration.observed())
    for second in range(20):
        calibration.take(snapshot(120.0 + 11.0 * second, 70.0 + second))
    assert sum(len(seen.points) for seen in calibration.observed()) > before
    assert scenes.WALL_S > 0
