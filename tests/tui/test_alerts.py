"""Alerts on the screen: a mark in the title line, and the terminal's bell once each time that one is raised."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from gpumon.readings.snapshot import Snapshot
from gpumon.readings.verdict import RaisedAlert
from gpumon.tui.screens.host import ringing_alerts
from tests.records import replace
from tests.tui import scenes
from tests.tui.feed import Still
from tests.tui.pty_process import PtyProcess
from tests.tui.running import running, text_of, until

CONFIG = """
[[alert]]
when = "gpus.busy_ratio >= 0"
name = "busy"
for_s = 0
bell = true
title = true
"""
OSC = re.compile(rb"\x1b\][^\x07\x1b]*\x07")
"""A control string that ends with the bell's character rings no bell."""
SINCE = "2025-10-09T08:53:00Z"


def raised(name: str, scope: str = "gpu 3", *, bell: bool = False, title: bool = True) -> RaisedAlert:
    return RaisedAlert(name, scope, "text", SINCE, bell=bell, title=title)


def shot(*alerts: RaisedAlert) -> Snapshot:
    return replace(scenes.snapshot(), alerts=alerts)


MARKS: list[tuple[tuple[RaisedAlert, ...], str]] = [
    ((raised("hot"),), " ! hot "),
    ((raised("hot"), raised("hot", "gpu 4"), raised("kv full")), " ! hot +1 "),
    ((), ""),
    ((raised("a name that is far too long for it"),), " ! a name that is far … "),
    ((raised("quiet", title=False),), ""),
]
"""Alerts, one set after the other, and what the title then has."""


async def test_an_alert_marks_the_title_and_the_mark_goes_with_it() -> None:
    feed = Still(shot())
    tick = 0
    async with running(feed, 80, 24) as (app, pilot):
        for width in (80, 120):
            await pilot.resize_terminal(width, 24)
            for alerts, badge in MARKS:
                tick += 1
                feed.give(replace(scenes.snapshot(tick=tick), alerts=alerts))
                await until(
                    lambda badge=badge: badge in text_of(app)[0] and ("!" in text_of(app)[0]) is bool(badge), pilot
                )  # type: ignore[misc]
                assert re.search(r"● \d\d:\d\d:\d\d", text_of(app)[0])


def test_only_what_rings_is_rung_and_again_when_it_is_raised_again() -> None:
    first, again = raised("hot", bell=True), replace(raised("hot", bell=True), since="2025-10-09T09:00:00Z")
    assert ringing_alerts(shot(first, raised("quiet"))) == {("hot", "gpu 3", SINCE)}
    assert ringing_alerts(shot(again)) - ringing_alerts(shot(first)) == ringing_alerts(shot(again))
    assert ringing_alerts(shot(first)) - ringing_alerts(shot(first, raised("hot", "gpu 4", bell=True))) == set()


def test_the_bell_is_rung_once_by_what_stays_raised(tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text(CONFIG)
    command = [sys.executable, "-m", "gpumon", "demo", "--no-mouse", "--interval", "0.25", "--config", str(config)]
    process = PtyProcess(command, 80, 24, XDG_CONFIG_HOME=str(tmp_path))
    process.read(15.0, lambda written: b"! busy" in written)
    process.read(1.5)
    process.close()
    assert b"! busy" in process.written
    assert OSC.sub(b"", process.written).count(b"\x07") == 1
