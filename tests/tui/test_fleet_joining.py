"""A key takes the line of the config that a notice proposes: it is written after a question, and holds at once."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from textual.pilot import Pilot

from gpumon.commands.files import ScreenFiles
from gpumon.config.load import load
from gpumon.config.schema import Config
from gpumon.config.schema import Prometheus as Settings
from gpumon.config.themes import load_theme
from gpumon.session.fleet import FleetSession
from gpumon.tui.fleet.app import FleetApp
from tests.fakes.backfill import Scraped, store
from tests.fakes.prometheus import Prometheus
from tests.sources.prometheus.test_identity import engine, gpus
from tests.tui.fleet_feed import Scrapes, watching
from tests.tui.running import foot, text_of, until

EVERY_S: Final = 15.0
BEFORE: Final = "# ours\n[prometheus]\ninterval_s = 15 # as scraped\n"
LINE: Final = 'host_labels = ["k8s_node_name", "node"'


def screen_of(app: FleetApp) -> str:
    return "\n".join(text_of(app))


@asynccontextmanager
async def apart(folder: Path) -> AsyncIterator[tuple[FleetApp, Pilot[int]]]:
    """Two machines whose engines and exporters are scraped at addresses of their own, and share one odd label."""
    now_s = time.time()
    targets = []
    for number in (1, 2):
        for port, job, page in ((8000, "vllm", engine(400.0, now_s - 5000.0)), (9400, "dcgm", gpus(f"g{number}", 2))):
            address = f"10.{port // 1000}.0.{number}:{port}"
            labels = {"job": job, "instance": address, "k8s_node_name": f"gpu{number}"}
            targets.append(Scraped(labels, page, now_s - 300.0, now_s + 300.0))
    store(folder, targets, EVERY_S)
    file = folder / "config.toml"
    file.write_text(BEFORE)
    with Prometheus(folder) as prometheus:
        config = Config(prometheus=Settings(url=prometheus.url, interval_s=EVERY_S))
        files = ScreenFiles(load(str(file), {}), {"HOME": str(folder)})
        app = FleetApp(FleetSession(config), load_theme("default"), config, files)
        async with app.run_test(size=(160, 40), notifications=True) as pilot:
            yield app, pilot


async def test_the_line_is_written_after_a_question_and_brings_engines_to_their_gpus_at_once(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    async with apart(tmp_path) as (app, pilot):
        await until(lambda: "they may be the same machines" in screen_of(app), pilot, 30.0)
        await until(lambda: "J join engines" in screen_of(app), pilot)
        assert {host.name for host in app.monitor.shown.fleet.hosts} == {
            *("10.8.0.1", "10.8.0.2"),
            *("10.9.0.1", "10.9.0.2"),
        }
        await pilot.press("J")
        await until(lambda: LINE in foot(app) or LINE in screen_of(app), pilot)
        await pilot.press("escape")
        assert file.read_text() == BEFORE, "Esc changes nothing"
        await pilot.press("J", "enter")
        await until(lambda: {host.name for host in app.monitor.shown.fleet.hosts} == {"gpu1", "gpu2"}, pilot, 30.0)
        await until(lambda: LINE in file.read_text(), pilot)
        await until(
            lambda: all(host.snapshot.engines[0].hardware.gpus for host in app.monitor.shown.fleet.hosts), pilot, 30.0
        )
        assert "J join engines" not in screen_of(app)
        assert not app.monitor.shown.fleet.proposals
    written = file.read_text()
    assert written.startswith("# ours\n[prometheus]\ninterval_s = 15 # as scraped\n")
    assert load(str(file), {}).config.prometheus.host_labels[0] == "k8s_node_name"


async def test_without_a_proposal_the_key_says_so() -> None:
    async with watching(Scrapes(2), 120, 40) as (app, pilot):
        await pilot.press("J")
        await until(lambda: "no line of the config is proposed" in foot(app), pilot)
